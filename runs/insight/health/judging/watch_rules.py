"""Health rules about failures that the reward doesn’t show: weights that don’t reach vLLM, and gamed rewards."""

from runs.insight.health.judging.rule import DIVERGENCE, OWN, HealthRule, share_rule

SYNC: dict[str, HealthRule] = {
    "sync": HealthRule(
        title="Weights don’t reach vLLM",
        about="Share of the policy’s change on fixed sequences that vLLM shows too: the higher one of the last two "
        "weight syncs that were checked, which are the first eight and then every eighth",
        above=False,
        warning=0.7,
        bad=0.1,
        hold=0,
        calm=3,
        format="percent",
        maximum=1.0,
        source=f"The thresholds are {OWN}: about 100% is healthy. A change that may be rounding isn’t judged.",
        means="{what}: on fixed sequences, vLLM shows {value} of the last changes of the trainer’s log-probabilities, "
        "which are now {change} nats per token away from those of the first batch.",
        try_="Stop the run, since rewards come from another policy than the trained one. Then {check_sync}.",
        metric="sync/followed",
        logs=True,
        leads_to=(
            *DIVERGENCE,
            "masked",
            "stale_mean",
            "stale_least",
            "reward_stuck",
            "reward_falling",
        ),
        unless=lambda config: "" if config.from_vllm else "The trainer generates completions itself.",
    ),
}
_CAUSES = (*DIVERGENCE, "component_failing", "repetition", "gibberish")
HACKING: dict[str, HealthRule] = {
    "judge_parted": share_rule(
        title="Reward parts from its judge",
        about="Rise of the trained reward, as a share of its range, while a reward that isn’t trained on (weight 0, or "
        "only evaluated) falls, or stays flat although it checks answers",
        warning=0.05,
        hold=0,
        calm=2,
        source=f"The threshold is {OWN}; both changes must be beyond chance.",
        means="The trained reward rises (from {start} to {now}) while {judge}, which isn’t trained on, {moves} (from "
        "{judge_start} to {judge_now}): the policy may be gaming the reward.",
        try_="Read the examples, which score high in training and low in {judge}. Close the loophole in the trained "
        "reward, or train on {judge} too.",
        metric="{metric}",
        leads_to=(
            "eval_falling",
            "eval_gap",
            "components",
            "component_falling",
            "component_stuck",
            "solved_falling",
        ),
        follows=_CAUSES,
        unless=lambda config: "" if config.judges else "No reward is observed without being trained on.",
    ),
    "length_explains": share_rule(
        title="Length explains the reward",
        about="Share of the reward’s rise that longer completions explain: the growth of the mean length times the "
        "reward’s slope on length within groups; only if answers have not become better",
        warning=0.6,
        hold=0,
        calm=2,
        maximum=None,
        source=f"The threshold is {OWN}; within a group, the prompt is the same, so it can’t explain the relation.",
        means="Length explains the reward’s rise: completions grew from {start} to {now} tokens, and of one prompt’s "
        "completions the longer ones score higher (correlation {correlation}): length may be rewarded, not quality.",
        try_="Read the longest completions. Subtract a little for each token, or score without regard to length.",
        metric="completions/mean_length",
        leads_to=("judge_parted", "length_rewarded", "length_cap", "component_stuck", "eval_falling", "components"),
        follows=_CAUSES,
    ),
}
