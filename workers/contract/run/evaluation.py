"""Evaluation of a model or checkpoint: completions of held-out prompts, scored, with nothing trained. Standard library
only."""

from math import ceil, lcm
from typing import Any

from workers.contract.run.batch import Batch
from workers.contract.run.hardware import Rollout
from workers.contract.run.spec import RunSpec

EVALUATION = "evaluation"
"""The kind of such a run (RunSpec.kind). Its prompts are spec.data.eval_rows validation rows, drawn by the seed; its
weights the model's, or those of spec.start_from; the completions of each prompt are num_generations_eval."""
AT_ONCE = 1024
"""Completions that all ranks request from vLLM at once: with fewer, its batch runs empty at each request's end."""
_INSTEAD: dict[str, Any] = {
    "learning_rate": 0.0,
    "beta": 0.0,  # no reference model
    "vllm_importance_sampling_correction": False,  # no pass over what was sampled
    "max_steps": 1,
    "save_strategy": "no",
    "eval_strategy": "no",
    "eval_on_start": False,
}


def settings(run: RunSpec) -> dict[str, Any]:
    """Turn a run's GRPO settings into those of an evaluation: as many completions at once as the run generates, and
    more from vLLM, whose memory they don't change."""
    batch = Batch.of(run.grpo, run.hardware.processes)
    group = int(run.grpo.get("num_generations_eval") or batch.num_generations)
    grpo = {**run.grpo, **_INSTEAD, "num_generations_eval": group}
    if run.hardware.rollout == Rollout.TRANSFORMERS:
        return {**grpo, "per_device_eval_batch_size": group * max(1, batch.completions // batch.processes // group)}
    # TRL wants whole groups of training and of evaluation, and lets vLLM run as many at once as one generation has.
    whole = lcm(group, batch.num_generations)
    share = min(AT_ONCE, run.data.eval_rows * group) / batch.processes
    at_once = whole * max(1, ceil(share / whole))
    for name in ("generation_batch_size", "steps_per_generation"):
        grpo.pop(name, None)
    single = {"gradient_accumulation_steps": 1, "num_iterations": 1}
    return {**grpo, **single, "per_device_train_batch_size": at_once, "per_device_eval_batch_size": at_once}
