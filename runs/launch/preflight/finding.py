"""Preflight findings: a grade, the field, the cause, and fixes that the form can apply."""

from dataclasses import dataclass
from enum import StrEnum

from controlplane.platform.confined.limits import NotFinished


class Grade(StrEnum):
    STOP = "stop"
    """The run would fail or learn nothing, so it can't be launched."""
    WARN = "warn"
    NOTE = "note"


@dataclass(frozen=True)
class Fix:
    """A one-click fix of a finding, with new values by form field."""

    label: str
    values: dict[str, str]


@dataclass(frozen=True)
class Finding:
    grade: Grade
    field: str
    """Name of the form field; "" for the launch as a whole."""
    cause: str
    fix: str
    fixes: tuple[Fix, ...] = ()
    detail: str = ""
    """Original message of a failure, folded away on the New run page."""


def stop(field: str, cause: str, fix: str, *fixes: Fix) -> Finding:
    return Finding(Grade.STOP, field, cause, fix, fixes)


def warn(field: str, cause: str, fix: str, *fixes: Fix) -> Finding:
    return Finding(Grade.WARN, field, cause, fix, fixes)


def note(field: str, cause: str, fix: str = "", *fixes: Fix) -> Finding:
    return Finding(Grade.NOTE, field, cause, fix, fixes)


def unjudged(field: str, name: str, error: NotFinished) -> Finding:
    """Return the warning about parameters that could not be judged now, which says nothing about them."""
    return warn(
        field, f"{name}: its parameters could not be checked. {error}", "They are checked again with the draft."
    )


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
