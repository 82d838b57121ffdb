"""Evaluation of a model or checkpoint: completions of held-out prompts, scored, with nothing trained; and the best
checkpoint of a run by a metric, which the trainer keeps and the page marks. Standard library only."""

import math
from collections.abc import Sequence
from typing import Any

from workers.contract.run.batch_rules import Batch
from workers.contract.run.hardware import Rollout
from workers.contract.run.spec import RunSpec

EVALUATION = "evaluation"
"""The kind of an evaluation (RunSpec.kind). Its prompts are spec.data.eval_rows validation rows, drawn by the seed. Its
weights are those of spec.start_from or, without it, of the model. Each prompt gets num_generations_eval completions."""
COMPLETIONS_AT_ONCE = 1024
"""Number of completions that all ranks together request from vLLM at a time; with fewer, vLLM's batch runs empty as
each request ends."""
_OVERRIDES: dict[str, Any] = {
    "learning_rate": 0.0,
    "beta": 0.0,  # no reference model
    "vllm_importance_sampling_correction": False,  # no pass over the sampled completions
    "max_steps": 1,
    "save_strategy": "no",
    "eval_strategy": "no",
    "eval_on_start": False,
}
FIGURE_STEPS = 10
"""Number of steps up to a checkpoint over which a metric is averaged, since a single step's value is mostly chance."""
EVAL_PREFIX = "eval_"
"""Prefix of evaluation metrics, of which the newest value is used."""
OTHER = "other_reward"
OTHER_REWARD = EVAL_PREFIX + OTHER
"""Metric of RunSpec.eval_rewards: their weighted sum."""
_LOWER_IS_BETTER = ("loss", "kl", "failed", "clipped_ratio", "frac_reward_zero_std", "grad_norm", "step_time")


def settings(run: RunSpec) -> dict[str, Any]:
    """Return a run's GRPO settings changed for an evaluation, which generates as many completions at a time as the run,
    or more with vLLM, because vLLM's memory doesn't depend on them."""
    batch = Batch.of(run.grpo, run.hardware.processes)
    group = int(run.grpo.get("num_generations_eval") or batch.num_generations)
    grpo = {**run.grpo, **_OVERRIDES, "num_generations_eval": group}
    if run.hardware.rollout == Rollout.TRANSFORMERS:
        return {**grpo, "per_device_eval_batch_size": group * max(1, batch.completions // batch.processes // group)}
    # TRL requires whole groups in training and in evaluation, and lets vLLM run as many at once as one generation has.
    unit = math.lcm(group, batch.num_generations)
    share = min(COMPLETIONS_AT_ONCE, run.data.eval_rows * group) / batch.processes
    at_once = unit * max(1, math.ceil(share / unit))
    for name in ("generation_batch_size", "steps_per_generation"):
        grpo.pop(name, None)
    one_step = {"gradient_accumulation_steps": 1, "num_iterations": 1}
    return {**grpo, **one_step, "per_device_train_batch_size": at_once, "per_device_eval_batch_size": at_once}


def checkpoint_figure(metric: str, values: Sequence[float]) -> float | None:
    """Compute a metric's value for a checkpoint from the ordered values up to its step; return None if no value is
    finite."""
    finite_values = [value for value in values if math.isfinite(value)]
    newest_values = finite_values[-1:] if metric.startswith(EVAL_PREFIX) else finite_values[-FIGURE_STEPS:]
    return math.fsum(value / len(newest_values) for value in newest_values) if newest_values else None


def lower_is_better(metric: str) -> bool:
    return metric.removeprefix(EVAL_PREFIX).rpartition("/")[2] in _LOWER_IS_BETTER


def is_better(metric: str, value: float, reference: float) -> bool:
    return value < reference if lower_is_better(metric) else value > reference
