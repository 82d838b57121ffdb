"""Selection of a run's stored prompt groups, with their rows, for a replay of bounded size."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Count, Q, QuerySet, Sum

from runs.engine.models import Run
from runs.engine.records import SampleRow
from runs.insight.completions.groups import completions
from runs.insight.completions.reading import valid_groups
from runs.insight.scoring import rows
from runs.pages.playground.completions_source import stored_row
from runs.pages.playground.replay import StoredGroup
from workers.contract.run.evaluation import EVALUATION

COUNTS = (16, 64, 256)
MAX_BYTES = 24 * 2**20
MAX_COMPLETIONS = 8192
NEWEST_STEPS, SPREAD_OVER_RUN, ONE_STEP = "newest", "spread", "one"
SELECTIONS = {SPREAD_OVER_RUN: "Spread over the run", NEWEST_STEPS: "The newest", ONE_STEP: "From one step"}


@dataclass(frozen=True)
class ReplayableGroups:
    """Extent and number of the stored groups that can be replayed: those that still have their completions."""

    first: int | None = None
    last: int | None = None
    groups: int = 0
    gone: int = 0
    """Number of groups whose completions have been deleted."""


@dataclass
class PickedGroups:
    groups: list[StoredGroup]
    gone: int = 0
    """Number of groups of the same steps whose completions have been deleted."""
    cut: bool = False
    """True if groups were omitted because of the limits on number and size."""
    problems: list[str] = field(default_factory=list)


def replayable_groups(run: Run) -> ReplayableGroups:
    sampled = _stored_samples(run)
    counts = sampled.aggregate(groups=Count("pk", filter=Q(size__gt=0)), gone=Count("pk", filter=Q(size=0)))
    steps = sampled.filter(size__gt=0).order_by("step").values_list("step", flat=True)
    return ReplayableGroups(steps.first(), steps.last(), **counts)


def pick(run: Run, selection: str, step: int | None, count: int) -> PickedGroups:
    """Pick about `count` groups, from whole steps and in training order. Steps without completions are skipped."""
    sampled = _stored_samples(run)
    by_step = sampled.filter(size__gt=0).values("step").annotate(many=Count("pk"), size=Sum("size")).order_by("step")
    step_sizes = list(by_step.values_list("step", "many", "size"))
    steps = _steps(step_sizes, selection, step, count)
    chosen_ids: list[int] = []
    total_size = completions = 0
    is_cut = False
    sizes = sampled.filter(step__in=steps, size__gt=0).order_by("step", "pk")
    for pk, group_size, group_completions in sizes.values_list("pk", "size", "completions"):
        total_size, completions = total_size + group_size, completions + group_completions
        if chosen_ids and (len(chosen_ids) >= max(COUNTS) or total_size > MAX_BYTES or completions > MAX_COMPLETIONS):
            is_cut = True
            break
        chosen_ids.append(pk)
    rows = list(sampled.filter(pk__in=chosen_ids, size__gt=0).order_by("step", "pk"))
    picked = PickedGroups([], gone=sampled.filter(step__in=steps, size=0).count(), cut=is_cut)
    _read_groups(run, rows, picked)
    return picked


def _stored_samples(run: Run) -> QuerySet[SampleRow]:
    return valid_groups(run).filter(mode="eval" if run.kind == EVALUATION else "train")


def _steps(sizes: Sequence[tuple[int, int, int]], selection: str, step: int | None, count: int) -> list[int]:
    """Choose among the steps that have completions; `sizes` lists their (step, groups, bytes) in order."""
    if not sizes:
        return []
    if selection == ONE_STEP:
        earlier_steps = [sampled_step for sampled_step, _, _ in sizes if step is None or sampled_step <= step] or [
            sizes[0][0]
        ]
        return earlier_steps[-1:]
    if selection == NEWEST_STEPS:
        return _first_that_fit(reversed(sizes), count)
    median_groups = sorted(groups for _, groups, _ in sizes)[len(sizes) // 2]
    number = min(len(sizes), max(1, round(count / median_groups)))
    indices = [round(i * (len(sizes) - 1) / max(1, number - 1)) for i in range(number)]
    # The last step is chosen first, in case there is room for only one.
    return _first_that_fit([sizes[index] for index in dict.fromkeys([len(sizes) - 1, *indices])], count)


def _first_that_fit(steps: Any, count: int) -> list[int]:
    chosen_steps: list[int] = []
    groups = size = 0
    for step, step_groups, step_size in steps:
        groups, size = groups + step_groups, size + step_size
        if chosen_steps and (groups > count or size > MAX_BYTES):
            break
        chosen_steps.append(step)
    return chosen_steps


def _read_groups(run: Run, samples: Sequence[SampleRow], picked: PickedGroups) -> None:
    numbers = [row.row for row in samples if row.row is not None]
    row_search = rows.of_run(run, numbers) if numbers else rows.RowSearch({})
    missing_count = 0
    for sample in samples:
        dataset_row: Mapping[str, Any] | None = row_search.rows.get(sample.row) if sample.row is not None else None
        missing_count += dataset_row is None
        prompt = sample.data.get("prompt")
        row = stored_row(sample) if dataset_row is None else dataset_row
        text = prompt if isinstance(prompt, str) else rows.shown_prompt(row)
        picked.groups.append(StoredGroup(sample.pk, sample.step, row, text, completions(sample.data)))
    if missing_count:
        reason = row_search.problem or f"{run.dataset_version} doesn't have every row."
        groups = f"{missing_count} groups are" if missing_count > 1 else "1 group is"
        picked.problems.append(f"{reason} {groups} scored with only the prompt and the answer that the run stored.")
    sha256 = (run.spec.get("data") or {}).get("sha256")
    if sha256 and run.dataset_version.sha256 and sha256 != run.dataset_version.sha256:
        picked.problems.append(f"{run.dataset_version} is not the data the run was trained on: its checksum differs.")
