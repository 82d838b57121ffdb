"""Batch sizes that GRPOConfig refuses, with the nearest ones it accepts."""

from __future__ import annotations

from collections.abc import Iterator

from runs.preflight.batch import Rule, broken, repairs
from runs.preflight.draft import Draft
from runs.preflight.finding import Finding, Fix, stop
from runs.preflight.labels import label

MOST_FIXES = 4


def check(draft: Draft) -> Iterator[Finding]:
    batch = draft.batch
    if batch.micro_batch < 1 or batch.gradient_accumulation_steps < 1:
        return  # the form or `choices` says so
    for problem in broken(batch):
        fixes = [set_number(name, value) for name, value in repairs(batch, problem.rule)[:MOST_FIXES]]
        if problem.rule == Rule.BOTH_GIVEN:
            fixes = [
                Fix("Clear steps per generation", {"steps_per_generation": ""}),
                Fix("Clear the generation batch size", {"generation_batch_size": ""}),
            ]
        yield stop(problem.field, problem.cause, _words(fixes), *fixes)


def set_number(name: str, value: int) -> Fix:
    return Fix(f"Set {label(name)} to {value}", {name: str(value)})


def _words(fixes: list[Fix]) -> str:
    if not fixes:
        return "Choose smaller sizes, so that the batch holds whole groups."
    return "Take one of the nearest sizes that fit."
