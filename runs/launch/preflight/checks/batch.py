"""Batch sizes that break a rule of workers.contract.run.batch_rules, the nearest valid ones, and the data's steps."""

from collections.abc import Iterator

from runs.launch.preflight.draft import Draft
from runs.launch.preflight.finding import Finding, Fix, label, note, stop
from workers.contract.run.batch_rules import Batch, BatchRule, epochs, nearest, problems, repairs, steps

MAX_FIXES = 4


def check_sizes(draft: Draft) -> Iterator[Finding]:
    batch = draft.batch
    if batch.micro_batch < 1 or batch.gradient_accumulation_steps < 1:
        return  # the form or `choices` reports it
    for problem in problems(batch):
        fixes = [set_number(name, value) for name, value in repairs(batch, problem.rule)[:MAX_FIXES]]
        if problem.rule == BatchRule.BOTH_GIVEN:
            fixes = [
                Fix("Clear steps per generation", {"steps_per_generation": ""}),
                Fix("Clear the generation batch size", {"generation_batch_size": ""}),
            ]
        fix = "Choose smaller sizes, so that the batch is a whole number of groups."
        yield stop(problem.field, problem.sentence, "Use one of the nearest sizes that fit." if fixes else fix, *fixes)


def set_number(name: str, value: int) -> Fix:
    return Fix(f"Set {label(name)} to {value}", {name: str(value)})


_ADJUSTABLE_SIZES = (
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "steps_per_generation",
    "generation_batch_size",
    "num_generations",
)


def check_steps(draft: Draft) -> Iterator[Finding]:
    batch, rows = draft.batch, draft.train_rows
    if draft.data is None or not draft.data.ready or problems(batch):
        return
    if rows < batch.prompts:
        yield _no_steps(batch, rows)
        return
    max_steps = draft.value("max_steps")
    if max_steps and max_steps > 0:
        times = epochs(batch, rows, steps=max_steps)
        yield note("max_steps", f"{max_steps:,} steps {_visits(rows, times)}.")
    else:
        times = draft.value("num_train_epochs")
        total = steps(batch, rows, epochs=times)
        length = "1 epoch is" if times == 1 else f"{times:g} epochs are"
        yield note("num_train_epochs", f"{length} {total:,} steps.")
    yield note(
        "num_generations",
        f"Each step learns from {batch.prompts_per_step:.3g} "
        f"{'prompt' if batch.prompts_per_step == 1 else 'prompts'} × {batch.num_generations} completions.",
    )


def total_steps(draft: Draft) -> int | None:
    """Count the optimizer steps of the whole run; return None if they aren't known yet."""
    batch, rows = draft.batch, draft.train_rows
    if batch.micro_batch < 1 or batch.gradient_accumulation_steps < 1 or problems(batch) or rows < batch.prompts:
        return None
    max_steps = draft.value("max_steps") or -1
    return max_steps if max_steps > 0 else steps(batch, rows, epochs=draft.value("num_train_epochs"))


def _visits(rows: int, times: float) -> str:
    if times < 1:
        return f"use {round(times * rows):,} of the {rows:,} training prompts"
    return f"go over the {rows:,} training prompts {times:.3g} times"


def _no_steps(batch: Batch, rows: int) -> Finding:
    fitting_sizes = nearest(batch, _ADJUSTABLE_SIZES, lambda b: not problems(b) and rows >= b.prompts)
    return stop(
        "dataset_version",
        f"One generation takes {batch.prompts:,} prompts, but there are only {rows:,} to train on, "
        "so TRL would stop without a single step.",
        "Use more prompts, or a smaller batch.",
        *(set_number(name, value) for name, value in fitting_sizes[:MAX_FIXES]),
    )
