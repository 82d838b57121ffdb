"""Progress of each prompt over a run: updated when groups arrive, recounted when a resume makes visits void."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from django.db.models import Min

from runs.engine.models import Attempt
from runs.engine.records import PromptProgress, SampleRow, SampleStore

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
    "recent",
    "recent_completions",
    "recent_solved",
)
RECENT = 3
"""Number of newest visits that decide whether a prompt counts as never, sometimes or always solved."""


@dataclass(frozen=True)
class Visit:
    row: int
    step: int
    completions: int
    solved: int
    mean: float | None
    best: float | None

    @classmethod
    def of(cls, group: SampleRow) -> "Visit":
        """Return the visit that a stored group represents. The group must belong to a row of the dataset."""
        row = group.row if group.row is not None else -1
        return cls(row, group.step, group.completions, group.solved, group.reward_mean, group.reward_high)


def locked_store(run_id: str) -> SampleStore:
    """Lock a run's completions against other writers, within the caller's transaction, and return their store."""
    store, _ = SampleStore.objects.select_for_update().get_or_create(run_id=run_id)
    return store


def add(run_id: str, visits: Iterable[Visit]) -> None:
    """Add visits to their prompts' counts, in two queries per batch. Requires the store's lock."""
    by_row = _by_row(visits)
    stored_prompts = {prompt.row: prompt for prompt in PromptProgress.objects.filter(run_id=run_id, row__in=by_row)}
    _save(run_id, stored_prompts, by_row)


def void_from(attempt: Attempt) -> int | None:
    """Return the step after which a later resume makes the attempt's work void, or None if nothing is void."""
    later_attempts = Attempt.objects.filter(run_id=attempt.run_id, number__gt=attempt.number, started_at__isnull=False)
    step: int | None = later_attempts.aggregate(step=Min("resume_step"))["step"]
    return step


def supersede(attempt: Attempt, step: int) -> None:
    """Mark earlier attempts' groups after `step`, from which `attempt` resumed, as void, and recount their prompts.

    Deleted groups stay counted: a resume starts from a checkpoint, and checkpoints are newer than deleted groups.
    """
    locked_store(attempt.run_id)
    void_rows = SampleRow.objects.filter(
        run_id=attempt.run_id, attempt__number__lt=attempt.number, step__gt=step, superseded=False
    )
    rows = sorted({row for row in void_rows.values_list("row", flat=True) if row is not None})
    void_rows.update(superseded=True)
    for start in range(0, len(rows), BATCH):
        recount(attempt.run_id, rows[start : start + BATCH])


def recount(run_id: str, rows: Sequence[int]) -> None:
    """Recount prompts from the stored groups and the sums of the deleted ones."""
    with_deleted = PromptProgress.objects.filter(run_id=run_id, row__in=rows).exclude(gone={})
    deleted_sums = {
        row: PromptProgress(run_id=run_id, row=row, **gone) for row, gone in with_deleted.values_list("row", "gone")
    }
    samples = SampleRow.objects.filter(run_id=run_id, row__in=rows, superseded=False).order_by("row", "step", "pk")
    columns = samples.values_list("row", "step", "completions", "solved", "reward_mean", "reward_high")
    visits = [Visit(row, *fields) for row, *fields in columns]  # type: ignore[arg-type]  # `row__in` leaves no NULL
    by_row = {row: list(row_visits) for row, row_visits in groupby(visits, key=lambda visit: visit.row)}
    PromptProgress.objects.filter(run_id=run_id, row__in=set(rows) - set(by_row) - set(deleted_sums)).delete()
    _save(run_id, deleted_sums, by_row)


def forget(run_id: str, visits: Iterable[Visit]) -> None:
    """Add visits whose groups are being deleted to the sums that recounts start from. Requires the store's lock."""
    by_row = _by_row(visits)
    stored_prompts = list(PromptProgress.objects.filter(run_id=run_id, row__in=by_row).only("pk", "row", "gone"))
    for prompt in stored_prompts:
        sum_ = PromptProgress(**prompt.gone)
        for visit in by_row[prompt.row]:
            add_visit(sum_, visit)
        prompt.gone = {name: getattr(sum_, name) for name in _FIELDS}
    PromptProgress.objects.bulk_update(stored_prompts, ["gone"], batch_size=100)


def _by_row(visits: Iterable[Visit]) -> dict[int, list[Visit]]:
    by_row: dict[int, list[Visit]] = {}
    for visit in visits:
        by_row.setdefault(visit.row, []).append(visit)
    return by_row


def _save(run_id: str, prompts: dict[int, PromptProgress], visits: dict[int, list[Visit]]) -> None:
    for row, of_row in visits.items():
        prompt = prompts.setdefault(row, PromptProgress(run_id=run_id, row=row))
        for visit in of_row:
            add_visit(prompt, visit)
        prompt.pk = None  # existing rows are matched by run and row
    PromptProgress.objects.bulk_create(
        prompts.values(), update_conflicts=True, unique_fields=["run", "row"], update_fields=_FIELDS
    )


def add_visit(prompt: PromptProgress, visit: Visit) -> None:
    """Add a visit to a prompt's counts. Visits may come in any order, since an attempt's late lines can arrive after
    the next attempt's first lines."""
    if not prompt.visits or visit.step < prompt.first_step:
        prompt.first_step, prompt.first_mean = visit.step, visit.mean
    if not prompt.visits or visit.step >= prompt.last_step:
        prompt.last_step, prompt.last_mean = visit.step, visit.mean
    prompt.visits += 1
    prompt.completions += visit.completions
    prompt.solved += visit.solved
    if visit.solved and (prompt.first_solved_step is None or visit.step < prompt.first_solved_step):
        prompt.first_solved_step = visit.step
    if visit.best is not None and (prompt.best is None or visit.best > prompt.best):
        prompt.best = visit.best
    prompt.recent = sorted([*prompt.recent, [visit.step, visit.completions, visit.solved]])[-RECENT:]
    prompt.recent_completions = sum(completions for _, completions, _ in prompt.recent)
    prompt.recent_solved = sum(solved for _, _, solved in prompt.recent)
