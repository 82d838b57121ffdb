"""Evaluation of a model or checkpoint: completions of held-out prompts, scored, with nothing trained. Standard library
only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workers.contract.batch import Batch

EVALUATION = "evaluation"
"""The kind of such a run (RunSpec.kind). Its prompts are spec.data.eval_rows validation rows, drawn by the seed; its
weights the model's, or those of spec.start_from; the completions of each prompt are num_generations_eval."""
_INSTEAD: dict[str, Any] = {
    "learning_rate": 0.0,
    "beta": 0.0,  # no reference model
    "max_steps": 1,
    "save_strategy": "no",
    "eval_strategy": "no",
    "eval_on_start": False,
}


def settings(grpo: Mapping[str, Any], processes: int) -> dict[str, Any]:
    """The run's GRPO settings as an evaluation has them: as many completions at once as the run generates."""
    batch = Batch.of(grpo, processes)
    group = int(grpo.get("num_generations_eval") or batch.num_generations)
    at_once = group * max(1, batch.completions // batch.processes // group)
    return {**grpo, **_INSTEAD, "num_generations_eval": group, "per_device_eval_batch_size": at_once}
