"""The selection of a run's stored prompt groups for a replay, with their rows; bounded in size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Count, Q, QuerySet, Sum

from runs.engine.models import Run
from runs.engine.records import SampleRow
from runs.insight.completions.groups import completions
from runs.insight.completions.reading import valid
from runs.insight.scoring import rows
from runs.pages.playground.completions_source import stored_row
from runs.pages.playground.replay import StoredGroup
from workers.contract.run.evaluation import EVALUATION

COUNTS = (16, 64, 256)
"""Numbers of groups to choose from."""
MOST_BYTES = 24 * 2**20
"""Bytes of the stored groups."""
MOST_COMPLETIONS = 8192
NEWEST, SPREAD, ONE = "newest", "spread", "one"
WHICH = {SPREAD: "Spread over the run", NEWEST: "The newest", ONE: "Of one step"}


@dataclass(frozen=True)
class KeptCompletions:
    """The stored groups that can be replayed: those that still have their texts."""

    first: int | None = None
    last: int | None = None
    groups: int = 0
    gone: int = 0
    """Groups whose texts are deleted."""


@dataclass
class Picked:
    groups: list[StoredGroup]
    gone: int = 0
    """Groups of the same steps whose texts are deleted."""
    cut: bool = False
    """Some groups of a step are left out because of their size."""
    problems: list[str] = field(default_factory=list)


def kept(run: Run) -> KeptCompletions:
    sampled = _sampled(run)
    counts = sampled.aggregate(groups=Count("pk", filter=Q(size__gt=0)), gone=Count("pk", filter=Q(size=0)))
    steps = sampled.filter(size__gt=0).order_by("step").values_list("step", flat=True)
    return KeptCompletions(steps.first(), steps.last(), **counts)


def pick(run: Run, which: str, step: int | None, count: int) -> Picked:
    """About `count` groups of whole steps, in training order. Steps without texts are skipped."""
    sampled = _sampled(run)
    of_steps = sampled.filter(size__gt=0).values("step").annotate(many=Count("pk"), size=Sum("size")).order_by("step")
    step_sizes = list(of_steps.values_list("step", "many", "size"))
    steps = _steps(step_sizes, which, step, count)
    chosen: list[int] = []
    size = many = 0
    cut = False
    of_them = sampled.filter(step__in=steps, size__gt=0).order_by("step", "pk")
    for pk, its_size, its_many in of_them.values_list("pk", "size", "completions"):
        size, many = size + its_size, many + its_many
        if chosen and (len(chosen) >= max(COUNTS) or size > MOST_BYTES or many > MOST_COMPLETIONS):
            cut = True
            break
        chosen.append(pk)
    rows = list(sampled.filter(pk__in=chosen, size__gt=0).order_by("step", "pk"))
    picked = Picked([], gone=sampled.filter(step__in=steps, size=0).count(), cut=cut)
    _read(run, rows, picked)
    return picked


def _sampled(run: Run) -> QuerySet[SampleRow]:
    """Groups of training, and of an evaluation, which has no others."""
    return valid(run).filter(mode="eval" if run.kind == EVALUATION else "train")


def _steps(known: Sequence[tuple[int, int, int]], which: str, step: int | None, count: int) -> list[int]:
    """`known`: (step, groups, bytes) of the steps that have texts, in order."""
    if not known:
        return []
    if which == ONE:
        earlier = [at for at, _, _ in known if step is None or at <= step] or [known[0][0]]
        return earlier[-1:]
    if which == NEWEST:
        return _while_room(reversed(known), count)
    usual = sorted(many for _, many, _ in known)[len(known) // 2]
    number = min(len(known), max(1, round(count / usual)))
    places = [round(i * (len(known) - 1) / max(1, number - 1)) for i in range(number)]
    # The last step comes first, in case there is room for only one.
    return _while_room([known[place] for place in dict.fromkeys([len(known) - 1, *places])], count)


def _while_room(steps: Any, count: int) -> list[int]:
    chosen: list[int] = []
    groups = size = 0
    for step, many, bytes_ in steps:
        groups, size = groups + many, size + bytes_
        if chosen and (groups > count or size > MOST_BYTES):
            break
        chosen.append(step)
    return chosen


def _read(run: Run, samples: Sequence[SampleRow], picked: Picked) -> None:
    numbers = [row.row for row in samples if row.row is not None]
    read = rows.by_number(run.dataset_version, numbers) if numbers else rows.RowSearch({})
    missing = 0
    for sample in samples:
        known: Mapping[str, Any] | None = read.rows.get(sample.row) if sample.row is not None else None
        missing += known is None
        prompt = sample.data.get("prompt")
        row = stored_row(sample) if known is None else known
        text = prompt if isinstance(prompt, str) else rows.shown_prompt(row)
        picked.groups.append(StoredGroup(sample.pk, sample.step, row, text, completions(sample.data)))
    if missing:
        why = read.problem or f"{run.dataset_version} doesn't have every row."
        which = f"{missing} groups go" if missing > 1 else "1 group goes"
        picked.problems.append(f"{why} {which} by the prompt and the answer that the run stored.")
    sha256 = (run.spec.get("data") or {}).get("sha256")
    if sha256 and run.dataset_version.sha256 and sha256 != run.dataset_version.sha256:
        picked.problems.append(f"{run.dataset_version} is not what the run was trained on: its checksum differs.")
