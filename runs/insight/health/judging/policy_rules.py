"""Health rules about the policy's updates: divergence, entropy, gradients."""

from runs.insight.health.config import Config
from runs.insight.health.judging.rule import ATROPOS, AXOLOTL, MISMATCH, OWN, HealthRule, share_rule


def _one_update(config: Config) -> str:
    return "" if config.updates > 1 else "With one update per batch the ratio is 1 and nothing is clipped."


def _clips_nothing(config: Config) -> str:
    if config.loss in ("sapo", "vespo"):
        return f"The loss {config.loss} doesn't clip."
    return _one_update(config)


def _one_policy(config: Config) -> str:
    return "" if config.corrected else "The trainer generates completions itself, or the correction is off."


def _no_mask(config: Config) -> str:
    if reason := _one_policy(config):
        return reason
    return "" if config.correction.endswith("mask") else "The correction truncates weights and doesn't mask anything."


def _masked_ratio(config: Config) -> str:
    if reason := _one_policy(config):
        return reason
    masks = config.correction.endswith("mask")
    return "The correction masks, and one masked sequence makes the lowest ratio 0." if masks else ""


def _no_vllm(config: Config) -> str:
    return "" if config.from_vllm or config.served or config.corrected else "The trainer generates completions itself."


RULES: dict[str, HealthRule] = {
    "other_tokens": HealthRule(
        title="Not the same tokens",
        about="Distance of the mean ratio from 1 at each batch’s first update, or the gap in log-probabilities between "
        "vLLM and the trainer that has been above 0.1 since the first 20 generations, whichever is larger",
        warning=0.05,
        bad=1.0,
        hold=5,
        source=f"The thresholds are {OWN}: nothing has been learned from a batch before its first update, so both "
        "programs should give each token the same probability.",
        means="vLLM and the trainer disagree about new samples ({what}), so they probably don’t see the same tokens.",
        try_="Compare the tokenizer, the chat template and special tokens of both, then the dtype. The learning rate "
        "is not the cause.",
        metric="mean_ratio",
    ),
    "weights_apart": HealthRule(
        title="Not the same weights",
        about="Growth of the gap in log-probabilities between vLLM and the trainer since the start, if it grew little "
        "by little to at least three times as much",
        warning=0.05,
        bad=1.0,
        source=f"The thresholds are {OWN}: with the same weights, the gap hardly changes during training.",
        means="New weights or the adapter may not reach vLLM: the gap to the trainer grew from {start} to {now} nats.",
        try_="Check that vLLM receives each weight update and applies the adapter. What is trained is not what is "
        "sampled, so changing the learning rate doesn’t help.",
        metric="sampling/sampling_logp_difference/mean",
        unless=_one_policy,
        follows=("other_tokens",),
    ),
    "kl_flat": HealthRule(
        title="Policy moves, reward doesn’t",
        about="Median KL to the reference model over 10 steps, if the reward has no trend after 60 generations or more",
        warning=0.1,
        source=f"The threshold is {OWN}.",
        means="What is trained may not be what is sampled: the KL has grown to {value} nats, but the reward is flat, "
        "so check that new weights or the adapter reach vLLM.{gap}",
        try_="Check that vLLM receives each weight update and applies the adapter. If it does, the rewards can’t tell "
        "better completions from worse ones.",
        metric="kl",
        unless=lambda config: _no_vllm(config) or ("" if config.beta else "β is 0, so no KL is logged."),
        follows=("other_tokens", "weights_apart", "not_finite", "grad_high"),
    ),
    "kl": HealthRule(
        title="KL drift",
        about="Median KL to the reference model over 10 steps, unless it is falling from a peak, as after a resume",
        warning=0.5,
        bad=2.0,
        hold=20,
        source=f"{ATROPOS}: drifting above 0.5. {AXOLOTL}: 0 to 0.5 is good; above 2 is bad.",
        means="The policy stays {now} nats away from the reference model: it may be losing earlier abilities.",
        try_="{lower_rate}, or {higher_beta} so that the distance is penalized more.",
        metric="kl",
        drawn=True,
        unless=lambda config: "" if config.beta else "β is 0, so there is no reference model and no KL.",
        follows=(*MISMATCH, "not_finite", "stale", "ratio", "clip", "grad_high"),
        field="learning_rate",
    ),
    "clip": share_rule(
        title="Clipped tokens",
        about="Share of tokens whose ratio was clipped, mean over 20 steps (excluding each batch’s first update)",
        warning=0.4,
        bad=0.6,
        source=f"The thresholds are {OWN}, without the first updates, which clip nothing. With them, {ATROPOS}: "
        f"healthy below 0.3, too high above 0.5; {AXOLOTL}: 0.1 and 0.3.",
        means="{value} of the tokens are clipped: the updates on a batch go beyond the clip range.",
        try_="{lower_rate}, or make fewer updates on each batch ({updates}: num_iterations, steps_per_generation).",
        metric="clip_ratio/region_mean",
        also="cispo_clip_ratio",
        drawn=True,
        unless=_clips_nothing,
        follows=(*MISMATCH, "not_finite", "ratio"),
        field="learning_rate",
    ),
    "ratio": HealthRule(
        title="Policy ratio",
        about="Distance of the mean ratio of new to old probabilities from 1, over 20 steps (excluding each batch’s "
        "first update)",
        warning=0.2,
        bad=0.5,
        source=f"{ATROPOS}: 0.8 to 1.2; far from 1 the policy has changed too much. The second threshold is {OWN}.",
        means="The ratio of new to old probabilities moves {value} away from 1 in a batch’s later updates: each batch "
        "changes the policy a lot.",
        try_="{lower_rate}, or make fewer updates on each batch ({updates}); also check the gradient norm.",
        metric="mean_ratio",
        drawn=True,
        around=1.0,
        unless=_one_update,
        follows=MISMATCH,
        field="learning_rate",
    ),
    "entropy": HealthRule(
        title="Entropy collapse",
        about="Median token entropy over 10 steps, in nats",
        above=False,
        warning=0.05,
        bad=0.01,
        source=f"{AXOLOTL}: 0.05 to 0.5 is usual; below 0.01 it has collapsed.",
        means="The entropy is {value} nats: the policy hardly explores, so rewards within groups become equal.",
        try_="Raise the temperature or epsilon_high, add an entropy bonus (entropy_coef), or {lower_rate}.",
        solved="The entropy is {value} nats with the reward near its maximum: the policy is sure and mostly right.",
        metric="entropy",
        drawn=True,
        follows=("entropy_fall",),
        field="learning_rate",
    ),
    "entropy_fall": share_rule(
        title="Entropy falling far",
        about="Median token entropy over 10 steps, as a share of the first steps’ (only below 0.2 nats)",
        above=False,
        warning=0.15,
        source=f"The threshold is {OWN}: a policy that learns usually keeps a quarter of its entropy or more.",
        means="The entropy has fallen from {usual} to {now} nats: the policy explores less and less, even if the "
        "reward still rises.",
        try_="Raise the temperature or epsilon_high, add an entropy bonus (entropy_coef), or {lower_rate}.",
        solved="The entropy has fallen from {usual} to {now} nats, with the reward near its maximum.",
        metric="entropy",
        field="learning_rate",
    ),
    "entropy_rise": HealthRule(
        title="Entropy rising",
        about="Median token entropy over 10 steps, relative to the lowest usual value (only above 0.5 nats)",
        warning=3.0,
        hold=20,
        format="times",
        minimum=1.0,
        source=f"The threshold is {OWN}. Guides differ on the level: up to 0.5 nats in {AXOLOTL}, 2 to 10 nats as "
        "TRL’s targets.",
        means="The entropy is {now} nats, {value} the usual {usual}: completions may be turning into noise.",
        try_="Read some completions; then {lower_rate}, or {higher_beta}.",
        metric="entropy",
        follows=("not_finite", "kl", "stale", "grad_high", "loss"),
        field="learning_rate",
        read=True,
    ),
    "entropy_high": HealthRule(
        title="Entropy stays high",
        about="Median token entropy over 10 steps, in nats",
        hold=50,
        source="Off unless a preset sets it, because guides contradict each other here.",
        means="The entropy stays at {value} nats.",
        try_="Lower the temperature, or wait: TRL’s own targets for long completions are 2 to 10 nats.",
        metric="entropy",
        drawn=True,
    ),
    "stale": HealthRule(
        title="Sampling/training mismatch",
        about="Mean difference in log-probabilities between vLLM and the trainer, median over 10 steps",
        warning=0.1,
        bad=1.0,
        source=f"{AXOLOTL}: below 0.1 is good; above 1 the two have diverged.",
        means="vLLM and the trainer differ by {value} nats per token: {why}.",
        try_="Check that each weight update reaches vLLM, and use the same dtype, attention implementation and "
        "tokenizer for both. If batches are generated ahead, make fewer updates between generations.",
        metric="sampling/sampling_logp_difference/mean",
        drawn=True,
        unless=_one_policy,
        follows=MISMATCH,
    ),
    "masked": HealthRule(
        title="Completions masked",
        about="Share of completions or tokens that the correction of vLLM's sampling masks, median over 10 steps",
        warning=0.1,
        bad=0.4,
        format="percent",
        means="{value} of each batch is ignored because the importance ratio is above the cap, which is common for "
        "long completions.",
        try_="Set vllm_importance_sampling_mode to token_truncate, which weights each token instead of masking any.",
        metric="sampling/share_masked",
        drawn=True,
        unless=_no_mask,
        follows=(*MISMATCH, "stale"),
        field="vllm_importance_sampling_mode",
    ),
    "stale_mean": HealthRule(
        title="Importance ratio low",
        about="Mean importance ratio between vLLM and the trainer, median over 10 steps; masked sequences count as 0",
        above=False,
        warning=0.7,
        bad=0.3,
        means="The mean importance ratio is {value}, so much of each batch has little or no weight: {why}.",
        try_="Check that each weight update, or the adapter, reaches vLLM. If the ratio was low from the start, use "
        "the same dtype and attention implementation in both, and keep top_p at 1 and top_k off.",
        metric="sampling/importance_sampling_ratio/mean",
        drawn=True,
        unless=_one_policy,
        follows=(*MISMATCH, "stale", "masked"),
    ),
    "stale_least": HealthRule(
        title="Lowest importance ratio",
        about="Lowest importance ratio between vLLM and the trainer, median over 10 steps",
        above=False,
        warning=0.1,
        bad=0.01,
        source=f"{AXOLOTL}: above 0.1 is good; near 0 the samples are stale. The second threshold is {OWN}.",
        means="The lowest importance ratio is {value}: some completions come from an outdated policy.",
        try_="Update vLLM’s weights more often: make fewer updates between generations, and don’t generate one step "
        "ahead.",
        metric="sampling/importance_sampling_ratio/min",
        drawn=True,
        unless=_masked_ratio,
        follows=("stale", "stale_mean"),
    ),
    "grad_spikes": HealthRule(
        title="Gradient spikes",
        about="Number of steps among the last 50 with a gradient more than ten times as large as usual",
        warning=3,
        bad=10,
        hold=0,
        format="count",
        source=f"The thresholds are {OWN}; an occasional spike is harmless, because it is clipped.",
        means="{value} of the last 50 steps had a gradient more than ten times as large as usual, up to {largest}.",
        try_="{lower_rate}; look for prompts with unusual rewards at those steps.",
        metric="grad_norm",
        follows=("grad_high",),
        field="learning_rate",
    ),
    "grad_high": HealthRule(
        title="Large gradients",
        about="Median gradient norm over 20 steps",
        warning=10.0,
        bad=100.0,
        source=f"{AXOLOTL}: 0.001 to 1 is usual; above 10 is unstable. The second threshold is {OWN}.",
        means="The gradient norm stays at {value}, while max_grad_norm is {clip}: every update is clipped heavily.",
        try_="{lower_rate}; check the scale of the rewards and scale_rewards.",
        metric="grad_norm",
        drawn=True,
        follows=("other_tokens", "weights_apart"),
        field="learning_rate",
    ),
    "grad_zero": HealthRule(
        title="No gradient",
        about="Median gradient norm over 20 steps",
        above=False,
        warning=1e-6,
        source=f"The threshold is {OWN}; an occasional 0 is fine.",
        means="The gradient norm is {value}: the weights do not change.",
        try_="Check whether rewards differ within groups, whether any weights are trainable, and the precision.",
        solved="The gradient norm is {value} with the reward near its maximum: there is nothing left to learn.",
        metric="grad_norm",
        drawn=True,
        follows=("not_finite", "zero_spread", "component_low", "reward_noise"),
    ),
    "lr_zero": HealthRule(
        title="Learning rate 0",
        about="Largest learning rate of the last 10 steps",
        above=False,
        bad=1e-12,
        hold=5,
        source=f"The threshold is {OWN}; a schedule may begin and end with a step at 0.",
        means="The learning rate has been {value} for at least ten steps: the weights do not change.",
        try_="Set learning_rate, and check the schedule: warm-up, minimum, and the planned number of steps.",
        metric="learning_rate",
        field="learning_rate",
    ),
    "loss": HealthRule(
        title="Exploding loss",
        about="Absolute loss, median over 10 steps; about 0 is normal",
        warning=10.0,
        bad=100.0,
        source=f"The thresholds are {OWN}. {ATROPOS}: warns of an exploding or very negative loss; TRL’s is about 0.",
        means="The absolute loss is {value}; about 0 is normal.",
        try_="{lower_rate}; check the KL term and the scale of the rewards.",
        metric="loss",
        drawn=True,
        around=0.0,
        follows=("kl",),
        field="learning_rate",
    ),
    "not_finite": HealthRule(
        title="Loss or gradient not finite",
        about="Number of steps among the last 20 with a loss or gradient that is not finite",
        warning=2,
        bad=10,
        hold=0,
        format="count",
        maximum=20.0,
        source=f"The thresholds are {OWN}; one or two are usual with float16, while its loss scale adapts.",
        means="{value} of the last 20 steps had a NaN or infinite loss or gradient: nothing is learned from them.",
        try_="Go back to an earlier checkpoint and {lower_rate}; use bfloat16 instead of float16.",
        metric="grad_norm",
        field="learning_rate",
    ),
}
