"""Health rules about why rewards change: the scorer, lengths, sources of prompts, memorized prompts."""

from runs.insight.health.judging.rule import DECAY, DIVERGENCE, OWN, HealthRule, share_rule

RULES: dict[str, HealthRule] = {
    "scorer_changed": share_rule(
        title="Scorer changed",
        about="Share of the newest 10 generations in which a component’s mean is out of its declared range, has the "
        "opposite sign, or is at the lower end of its range since it fell there at once",
        warning=0.45,
        bad=0.95,
        hold=0,
        source=f"The thresholds are {OWN}: learning moves scores little by little, and within their range.",
        means="{component} has been scored otherwise since step {since} ({now} instead of {before}, {why}): the scorer "
        "has changed, not the policy.",
        try_="Compare the reward function, its sign and its answers before and after step {since}, and try it on "
        "stored completions in the playground. Go back to a checkpoint before that step.",
        metric="{metric}",
        follows=(*DIVERGENCE, *DECAY, "component_failing"),
        read=True,
    ),
    "length_rewarded": HealthRule(
        title="Length is rewarded",
        about="Mean length relative to the first steps’, if a component has risen with it while the one that checks "
        "answers, or the one with the largest weight, has not; growth at once doesn’t count",
        warning=1.5,
        hold=20,
        format="times",
        minimum=1.0,
        source=f"The threshold is {OWN}.",
        means="{paid} rises with the length (from {start} to {now} tokens) while {goal} stays at {level}: longer "
        "completions are rewarded, or only what is easier to learn than {goal}.",
        try_="Read completions of one prompt: if the longer ones score higher in {paid}, subtract a little for each "
        "token or lower its weight; if not, give partial credit in {goal} or use easier prompts.",
        metric="completions/mean_length",
        follows=("component_failing", *DIVERGENCE, "repetition", "gibberish"),
        read=True,
    ),
    "source_falling": share_rule(
        title="One source falls",
        about="Share of their best reward that the prompts of one source have lost (mean over 20 generations), for the "
        "source that has lost most, if it is more than twice the mean share that the other sources have lost",
        warning=0.3,
        source=f"The threshold is {OWN}; chance and small changes are ignored.",
        means="Prompts from {source} score {now}, down from {best} at step {best_step}: the source is being forgotten.",
        try_="Read completions of {source} since then. Give the source more prompts or a weight of its own; check that "
        "its answers and its scorer are right.",
        metric="{metric}",
        leads_to=("reward_falling", "component_falling", "components"),
        follows=("scorer_changed", "component_failing", *DIVERGENCE, *DECAY),
        read=True,
    ),
    "eval_gap": share_rule(
        title="Training and validation part",
        about="Growth of the gap between the rewards in training and validation since the first evaluations, as a "
        "share of the reward’s range, while the validation reward isn’t rising",
        warning=0.1,
        hold=0,
        calm=1,
        source=f"The threshold is {OWN}; chance is ignored.",
        means="The reward in training is now {now} above the validation reward, {start} at first, and the validation "
        "reward isn’t rising: the policy is memorizing its prompts.",
        try_="Stop at the checkpoint with the best validation reward. Use more prompts, fewer epochs, or a higher β.",
        metric="eval_reward",
        unless=lambda config: "" if config.eval_every else "The run does not evaluate on held-out rows.",
        follows=(
            "eval_falling",
            "scorer_changed",
            "reward_falling",
            "component_falling",
            "components",
            *DIVERGENCE,
            *DECAY,
        ),
    ),
}
