"""Preflight findings: a grade, the field, the cause, and fixes that the form can apply."""

from dataclasses import dataclass
from enum import StrEnum


class Grade(StrEnum):
    STOP = "stop"
    """The run would fail or learn nothing: it can't be launched."""
    WARN = "warn"
    NOTE = "note"


@dataclass(frozen=True)
class Fix:
    """A one-click fix: form field name -> new text."""

    label: str
    values: dict[str, str]


@dataclass(frozen=True)
class Finding:
    grade: Grade
    field: str
    """The form field's name; "" for the launch as a whole."""
    cause: str
    fix: str
    """The remedy, in words."""
    fixes: tuple[Fix, ...] = ()
    detail: str = ""
    """The original message of a failure; the New run page folds it away."""


def stop(at: str, cause: str, fix: str, *fixes: Fix) -> Finding:
    return Finding(Grade.STOP, at, cause, fix, fixes)


def warn(at: str, cause: str, fix: str, *fixes: Fix) -> Finding:
    return Finding(Grade.WARN, at, cause, fix, fixes)


def note(at: str, cause: str, fix: str = "", *fixes: Fix) -> Finding:
    return Finding(Grade.NOTE, at, cause, fix, fixes)


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
