"""Kinds of rows that can be deleted and restored: their names, and the obstacles and consequences of a deletion. A
run's frozen spec includes its rewards, environment and profile, so these can be deleted while runs use them. It doesn't
include a dataset's rows, which hosts fetch again at a resume, so a dataset with runs can't be deleted."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import ValidationError
from django.db.models import Manager, Model, QuerySet
from django.http import Http404
from django.urls import reverse

from controlplane.catalogue.datasets.models import Dataset
from controlplane.catalogue.environments.models import Environment
from controlplane.catalogue.hardware.models import HardwareProfile
from controlplane.catalogue.references.models import ReferenceCheck
from controlplane.catalogue.rewards.models import RewardConfig
from controlplane.platform.templatetags.figures import size_in_words
from runs.engine import deletions, disk
from runs.engine.models import Lease, Run
from runs.engine.sentences import and_more, counted, resource_words
from runs.engine.spec import runs_on
from runs.engine.states import ACTIVE
from workers.contract.run.evaluation import EVALUATION
from workers.contract.run.jobs import KINDS as JOBS
from workers.contract.run.learnability import CHECK

MAX_NAMED = 5
_OTHER_KINDS = {EVALUATION: "evaluation", CHECK: "learnability check", "trial": "trial"}
"""Kinds of runs that are neither training runs nor jobs -> their names."""


@dataclass(frozen=True)
class DeletableKind:
    slug: str
    label: str
    title: str
    model: type[Any]
    """Subclass of controlplane.platform.deletable.Deletable that has a name."""
    page: str
    """Route of a row's page."""
    listed: str
    """Route of the list."""
    consequences: Callable[[Any], Iterator[str]]
    """Function that yields sentences on what refers to a row and what is deleted with it."""
    obstacles: Callable[[Any], Iterator[str]] = lambda _row: iter(())
    """Function that yields sentences on why a row can't be deleted now."""

    @property
    def section(self) -> str:
        return {"reward": "Rewards", "profile": "Hardware"}.get(self.slug, self.title)

    @property
    def names_are_unique(self) -> bool:
        return self.slug != "run"

    @property
    def longest_name(self) -> int:
        return int(self.model._meta.get_field("name").max_length)

    def key(self, text: str) -> Any:
        """Parse a primary key. Raises Http404 for a string that can't be one."""
        try:
            key = self.model._meta.pk.to_python(text)
        except ValidationError:
            raise Http404 from None
        if "\0" in text or (isinstance(key, int) and key >= 2**63):
            raise Http404
        return key

    def address(self, row: Model) -> str:
        return reverse(self.page, args=[row.pk])


def jobs_of(run: Run, among: QuerySet[Run] | Manager[Run] = Run.objects) -> list[Run]:
    """List the jobs and evaluations on a run's models and on the models that those jobs saved."""
    jobs: list[Run] = []
    sources = [run.pk]
    while sources:
        rows = list(among.filter(source__in=sources).prefetch_related("attempts"))
        jobs += rows
        sources = [row.pk for row in rows]
    return jobs


def _run_obstacles(run: Run) -> Iterator[str]:
    latest_attempt = run.latest()
    if latest_attempt.status == "queued":
        yield f"{run.name} is queued. Remove it from the queue first."
    elif latest_attempt.status in ACTIVE:
        yield f"{run.name} is {latest_attempt.status}. Stop it first."
    yield from deletions.needed_by(run, jobs={job.pk for job in jobs_of(run)})
    leases = list(Lease.objects.filter(attempt__run=run).exclude(state=Lease.RELEASED).select_related("host"))
    if leases and latest_attempt.status not in ACTIVE:
        resources = f"{resource_words(lease.resource for lease in leases)} of {leases[0].host.name}"
        yield f"{resources} is in quarantine after this run. Release it on the Hardware page first."


def _run_consequences(run: Run) -> Iterator[str]:
    if jobs := jobs_of(run):
        count = sum(job.kind in JOBS for job in jobs)
        numbers = f"{counted(count, 'job')} and {counted(len(jobs) - count, 'evaluation')}"
        yield f"Also deleted: {numbers} on its models, and the merged models that they saved."
    started_runs = Run.objects.filter(spec__start_from__startswith=f"{run.pk}/").exclude(source=run)
    if names := _names(started_runs):
        yield f"Runs that started from one of its checkpoints are kept but can't be repeated from it: {names}."
    if run.latest().resumes_at:
        yield "Its automatic resume is canceled."
    sizes = disk.of_run(run).parts
    yield (
        f"It takes {', '.join(sizes)}, which is freed once it is permanently deleted."
        if sizes
        else "The disk space that it takes is unknown."
    )
    for attempt in run.attempts.select_related("host"):
        if attempt.host and attempt.dispatched_at and deletions.is_lost(attempt):
            yield f"{attempt.host} is gone, so the run's files on it stay there."


def _dataset_obstacles(dataset: Dataset) -> Iterator[str]:
    if names := _names(runs_on(dataset).filter(deleted_at=None)):
        yield (
            f"These runs use {dataset.name}, and resuming them needs its rows: {names}. Archive its versions instead, "
            "or delete these runs first."
        )


def _dataset_consequences(dataset: Dataset) -> Iterator[str]:
    versions = list(dataset.versions.defer("report"))
    size = sum(path.stat().st_size for version in versions for path in version.folder.rglob("*") if path.is_file())
    number = counted(len(versions), "version")
    yield f"Deletes {number} with {size_in_words(size)} on the control plane, and copies in the artifact store."
    if names := _names(runs_on(dataset).exclude(deleted_at=None)):
        yield f"These recently deleted runs used it, and restoring one of them also restores the dataset: {names}."
    if count := ReferenceCheck.objects.filter(dataset_version__dataset=dataset).count():
        yield f"Deletes {counted(count, 'check')} of its answers."
    yield "Datasets and corpora that were created from it are kept."


def _frozen_in(runs: str) -> Callable[[Any], Iterator[str]]:
    """Build the `consequences` function of a kind that runs keep frozen copies of. `runs` looks a row up from a run."""

    def consequences(row: Any) -> Iterator[str]:
        if names := _names(Run.objects.filter(**{runs: row})):
            yield f"These runs have a frozen copy and can still be resumed, but a clone needs a replacement: {names}."
        else:
            yield "No run has used it."

    return consequences


def _reward_consequences(config: RewardConfig) -> Iterator[str]:
    yield from _frozen_in("reward_version__config")(config)
    if count := ReferenceCheck.objects.filter(reward_version__config=config).count():
        yield f"Deleting it permanently also deletes {counted(count, 'check')} of datasets' answers that used it."


def _names(runs: QuerySet[Run]) -> str:
    """Name the first training runs, and count the runs of other kinds; return "" if there are no runs."""
    numbers = Counter(runs.order_by().values_list("kind", flat=True))
    names = list(runs.filter(kind="train").values_list("name", flat=True)[:MAX_NAMED])
    train_count = numbers.pop("train", 0)
    labels: Counter[str] = Counter()
    for kind, number in numbers.items():
        labels[_OTHER_KINDS.get(kind, "job")] += number
    parts = [and_more(names, train_count)] if names else []
    return "; ".join(parts + [counted(number, label) for label, number in labels.items()])


KINDS: dict[str, DeletableKind] = {
    kind.slug: kind
    for kind in (
        DeletableKind("run", "run", "Runs", Run, "run", "runs", _run_consequences, _run_obstacles),
        DeletableKind(
            *("dataset", "dataset", "Datasets", Dataset, "dataset", "datasets"),
            *(_dataset_consequences, _dataset_obstacles),
        ),
        DeletableKind(
            *("reward", "reward config", "Reward configs", RewardConfig, "reward_config", "reward_configs"),
            _reward_consequences,
        ),
        DeletableKind(
            *("environment", "environment", "Environments", Environment, "environment", "environments"),
            _frozen_in("environment_version__environment"),
        ),
        DeletableKind(
            *("profile", "hardware profile", "Hardware profiles", HardwareProfile, "profile", "hardware"),
            _frozen_in("profile"),
        ),
    )
}
"""Deletable kinds by slug. Runs come first, since the rows that they refer to are purged after them."""
