"""What people call a field, for sentences and for the labels of fixes."""

from __future__ import annotations

LABELS: dict[str, str] = {
    "eval_rows": "evaluation rows",
    "generation_batch_size": "generation batch size",
    "gradient_accumulation_steps": "gradient accumulation",
    "max_completion_length": "maximum completion length",
    "num_generations": "generations per prompt",
    "num_generations_eval": "evaluation generations per prompt",
    "per_device_eval_batch_size": "evaluation batch per process",
    "per_device_train_batch_size": "batch per process",
    "steps_per_generation": "steps per generation",
}


def label(name: str) -> str:
    return LABELS.get(name, name.replace("_", " "))
