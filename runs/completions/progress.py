"""Each prompt over a run: counted when its groups land, and counted anew where a resume made visits void."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from django.db.models import Min

from runs.models import Attempt, PromptProgress, SampleRow, SampleStore

BATCH = 500
_FIELDS = (
    "visits",
    "completions",
    "solved",
    "first_step",
    "last_step",
    "first_solved_step",
    "first_mean",
    "last_mean",
    "best",
)


@dataclass(frozen=True)
class Visit:
    """One group of a prompt, by its figures."""

    row: int
    step: int
    completions: int
    solved: int
    mean: float | None
    best: float | None


def locked_store(run_id: str) -> SampleStore:
    """The lock of who writes a run's completions; inside the caller's transaction."""
    store, _ = SampleStore.objects.select_for_update().get_or_create(run_id=run_id)
    return store


def add(run_id: str, visits: Iterable[Visit]) -> None:
    """Count visits: two queries for a batch, whatever is in it. The caller holds the store."""
    by_row: dict[int, list[Visit]] = {}
    for visit in visits:
        by_row.setdefault(visit.row, []).append(visit)
    known = {each.row: each for each in PromptProgress.objects.filter(run_id=run_id, row__in=by_row)}
    _save(run_id, known, by_row)


def void_from(attempt: Attempt) -> int | None:
    """The step after which what the attempt did is void, because a later one resumed from there; None: nothing is."""
    later = Attempt.objects.filter(run_id=attempt.run_id, number__gt=attempt.number, started_at__isnull=False)
    step: int | None = later.aggregate(step=Min("resume_step"))["step"]
    return step


def supersede(attempt: Attempt, step: int) -> None:
    """`attempt` resumed from `step`: earlier attempts' groups of later steps count no more, nor do their visits. What
    is forgotten stays counted: a resume goes back to a checkpoint, and those are newer than that."""
    locked_store(attempt.run_id)
    void = SampleRow.objects.filter(
        run_id=attempt.run_id, attempt__number__lt=attempt.number, step__gt=step, superseded=False
    )
    rows = sorted({row for row in void.values_list("row", flat=True) if row is not None})
    void.update(superseded=True)
    for start in range(0, len(rows), BATCH):
        recount(attempt.run_id, rows[start : start + BATCH])


def recount(run_id: str, rows: Sequence[int]) -> None:
    """From what is stored, whatever became of its texts, and what the forgotten visits add up to."""
    told = PromptProgress.objects.filter(run_id=run_id, row__in=rows).exclude(gone={})
    begun = {row: PromptProgress(run_id=run_id, row=row, **gone) for row, gone in told.values_list("row", "gone")}
    valid = SampleRow.objects.filter(run_id=run_id, row__in=rows, superseded=False).order_by("row", "step", "pk")
    columns = valid.values_list("row", "step", "completions", "solved", "reward_mean", "reward_high")
    visits = [Visit(row, *rest) for row, *rest in columns]  # type: ignore[arg-type]  # `row__in` leaves no NULL
    counted = {row: list(of_row) for row, of_row in groupby(visits, key=lambda visit: visit.row)}
    PromptProgress.objects.filter(run_id=run_id, row__in=set(rows) - set(counted) - set(begun)).delete()
    _save(run_id, begun, counted)


def forget(run_id: str, visits: Iterable[Visit]) -> None:
    """These visits' groups go: a recount begins with what they add up to. The caller holds the store."""
    by_row: dict[int, list[Visit]] = {}
    for visit in visits:
        by_row.setdefault(visit.row, []).append(visit)
    known = list(PromptProgress.objects.filter(run_id=run_id, row__in=by_row).only("pk", "row", "gone"))
    for each in known:
        sum_ = PromptProgress(**each.gone)
        for visit in by_row[each.row]:
            take(sum_, visit)
        each.gone = {name: getattr(sum_, name) for name in _FIELDS}
    PromptProgress.objects.bulk_update(known, ["gone"], batch_size=100)


def _save(run_id: str, known: dict[int, PromptProgress], visits: dict[int, list[Visit]]) -> None:
    for row, of_row in visits.items():
        each = known.setdefault(row, PromptProgress(run_id=run_id, row=row))
        for visit in of_row:
            take(each, visit)
        each.pk = None  # one that is there is found by its run and row
    PromptProgress.objects.bulk_create(
        known.values(), update_conflicts=True, unique_fields=["run", "row"], update_fields=_FIELDS
    )


def take(each: PromptProgress, visit: Visit) -> None:
    """In whatever order visits come: an attempt's late lines may come after the next attempt's first."""
    if not each.visits or visit.step < each.first_step:
        each.first_step, each.first_mean = visit.step, visit.mean
    if not each.visits or visit.step >= each.last_step:
        each.last_step, each.last_mean = visit.step, visit.mean
    each.visits += 1
    each.completions += visit.completions
    each.solved += visit.solved
    if visit.solved and (each.first_solved_step is None or visit.step < each.first_solved_step):
        each.first_solved_step = visit.step
    if visit.best is not None and (each.best is None or visit.best > each.best):
        each.best = visit.best
