"""The difficulty filter: a dataset version without the prompts that a run has solved too rarely or too often."""

from dataclasses import dataclass

from django.db.models import QuerySet

from controlplane.catalogue.datasets import deriving
from controlplane.catalogue.datasets.errors import DatasetError
from controlplane.catalogue.datasets.models import DatasetVersion
from controlplane.catalogue.datasets.reader.versions.filtering import RowFilter
from controlplane.platform.accounts.models import User
from runs.engine.models import Run
from runs.engine.records import PromptProgress
from runs.insight.completions import difficulty
from workers.contract.run.mixing import ROWS_OF_SOURCE


@dataclass(frozen=True)
class Coverage:
    """The number of training prompts in a run's dataset, and how many of them the run has sampled."""

    sampled: int
    rows: int

    @property
    def unsampled(self) -> int:
        return max(0, self.rows - self.sampled)


def coverage(run: Run) -> Coverage:
    version = run.dataset_version
    return Coverage(_own_prompts(run).count(), version.rows - version.validation_rows)


def _own_prompts(run: Run) -> QuerySet[PromptProgress]:
    """Return the prompts of the run's own dataset, without those that are mixed with it."""
    return difficulty.prompts(run).filter(row__lt=ROWS_OF_SOURCE)


def keep_solved(run: Run, low: int, high: int, user: User) -> DatasetVersion:
    """Derive a version with the prompts that `low` to `high` percent of the run's completions solve, bounds included.
    Unsampled prompts and validation rows stay. Raises DatasetError if `low` exceeds `high`, or if this would remove no
    prompt or all of them."""
    if low > high:
        raise DatasetError(f"{low} % is more than {high} %. Enter the lower percentage first.")
    counts = list(_own_prompts(run).values_list("row", "solved", "completions"))
    excluded_rows = tuple(
        sorted(row for row, solved_count, count in counts if not low <= 100 * solved_count / count <= high)
    )
    if not excluded_rows:
        raise DatasetError(
            f"Every sampled prompt is solved {low} to {high} % of the time, so there is nothing to filter out."
        )
    if len(excluded_rows) == len(counts) and not coverage(run).unsampled:
        raise DatasetError(f"No prompt is solved {low} to {high} % of the time, so no prompt would be left.")
    return deriving.derive(
        user,
        run.dataset_version,
        RowFilter(left_out=excluded_rows),
        why=f"keeping prompts solved {low} to {high} % in run {run.pk}",
    )
