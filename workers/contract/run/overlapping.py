"""Work of a run that overlaps: asynchronous generation, and rewards scored while other groups are still generated.

Asynchronous generation works one step ahead: vLLM servers generate the next batch while the trainer learns from this
one. This is the one-step off-policy training of Noukhovitch et al. 2024 (arXiv:2410.18252): a batch comes from the
weights before the last push, and each token's loss is weighted by the ratio of the policy's probability to the one that
vLLM sampled with, truncated at a cap (TRL's `token_truncate`; Yao et al. 2025 call it truncated importance sampling). A
run without it trains exactly as TRL does.

With concurrent rewards, judges and sandboxes score a group as soon as it is complete, not once the whole batch is. The
scores are the same; only the time differs.

Both are off by default. Standard library only.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from workers.contract.run.episodes import EpisodeSpec
from workers.contract.run.hardware import HardwareSpec, Rollout
from workers.contract.run.problem import Problem
from workers.contract.run.prompts import PromptsSpec

AHEAD_FIELD, REWARDS_FIELD = "ahead", "rewards_beside"
STALENESS = "sampling/staleness"
"""Metric: mean number of optimizer steps between the weights that sampled a batch and those that are first trained on
it."""
AHEAD_SECONDS = "sampling/ahead_s"
"""Metric: seconds that the servers took for a batch generated ahead. time/generation_s is the part for which the
trainer still had to wait."""
TRUNCATED = "sampling/share_truncated"
"""Metric: share of tokens whose importance ratio is beyond a bound of a truncating correction."""
CORRECTION, MODE = "vllm_importance_sampling_correction", "vllm_importance_sampling_mode"
USUAL_MODE = "token_truncate"
"""Correction mode for batches generated ahead, unless the run sets another. TRL's own default drops whole completions,
which would be too many of those from an older policy."""


def with_correction(grpo: Mapping[str, Any], is_ahead: bool) -> dict[str, Any]:
    """Return GRPO settings with the correction for batches generated ahead, unless the user chose one."""
    return {MODE: USUAL_MODE, **grpo} if is_ahead else dict(grpo)


def ahead_problems(
    hardware: HardwareSpec | None, grpo: Mapping[str, Any], prompts: PromptsSpec, episodes: EpisodeSpec | None
) -> Iterator[Problem]:
    """Yield the reasons why a run can't generate one step ahead, with AHEAD_FIELD as the field. The rollout is checked
    only if `hardware` is given."""
    turn_off = "Turn it off, or "
    if hardware is not None and hardware.rollout != Rollout.SERVER:
        source = "inside the trainer" if hardware.rollout == Rollout.COLOCATE else "by the trainer itself"
        sentence = f"Generating one step ahead needs a vLLM server, but this profile generates {source}."
        yield Problem(AHEAD_FIELD, sentence, f"{turn_off}choose a profile with vLLM servers.")
    if episodes is not None:
        sentence = "Episodes can't be generated one step ahead, because their turns alternate with the environment."
        yield Problem(AHEAD_FIELD, sentence, f"{turn_off}train without an environment.")
    if prompts.by_difficulty:
        sentence = (
            "Prompts are drawn by difficulty, from the rewards of the previous batch, so the next can't be known ahead."
        )
        yield Problem(AHEAD_FIELD, sentence, f"{turn_off}draw prompts in epochs.")
    if grpo.get(CORRECTION) is False:
        sentence = "The correction of vLLM's sampling is off, so batches from older weights would bias every update."
        yield Problem(AHEAD_FIELD, sentence, f"{turn_off}leave {CORRECTION} on.")


def rewards_problem(hardware: HardwareSpec, episodes: EpisodeSpec | None) -> Problem | None:
    """Return a problem with REWARDS_FIELD if no group of a run is complete before its whole batch is, or None."""
    if episodes is not None:
        if episodes.gateway is None:
            return None
        sentence = "Other programs drive the episodes, and the trainer gets their batch as a whole."
        return Problem(REWARDS_FIELD, sentence, "Turn it off.")
    if hardware.rollout is Rollout.SERVER:
        return None
    source = "vLLM inside the trainer" if hardware.rollout is Rollout.COLOCATE else "transformers"
    sentence = f"This profile generates each batch as a whole, by {source}, so no group is complete before the others."
    return Problem(REWARDS_FIELD, sentence, "Choose a profile with vLLM servers, or turn it off.")
