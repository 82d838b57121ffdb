"""The kinds of rows that can be deleted and restored: their names, the obstacles to deleting them, the consequences.

A run's frozen spec includes its rewards, environment and profile, so these can be deleted while runs use them. It
doesn't include a dataset's rows, which hosts fetch again at a resume, so a dataset with runs can't be deleted.
"""

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
from runs.engine.states import ACTIVE
from workers.contract.run.evaluation import EVALUATION
from workers.contract.run.jobs import KINDS as JOBS
from workers.contract.run.learnability import CHECK

MAX_NAMED = 5
_OTHERS = {EVALUATION: "evaluation", CHECK: "learnability check", "trial": "trial"}
"""Kinds of runs that are neither training runs nor jobs -> their names."""


@dataclass(frozen=True)
class DeletableKind:
    slug: str
    label: str
    title: str
    """The title of the list."""
    model: type[Any]
    """A controlplane.platform.deletable.Deletable with a name."""
    page: str
    """The route of a row's page."""
    listed: str
    """The route of the list."""
    consequences: Callable[[Any], Iterator[str]]
    """Sentences on what refers to a row and what is deleted with it."""
    obstacles: Callable[[Any], Iterator[str]] = lambda _row: iter(())
    """Sentences on why a row can't be deleted now."""

    @property
    def section(self) -> str:
        """The title of the list in the navigation."""
        return {"reward": "Rewards", "profile": "Hardware"}.get(self.slug, self.title)

    @property
    def names_are_unique(self) -> bool:
        return self.slug != "run"

    @property
    def longest_name(self) -> int:
        return int(self.model._meta.get_field("name").max_length)

    def key(self, text: str) -> Any:
        """Parse a primary key. Raises Http404 for a text that can't be one."""
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
    """List the jobs and evaluations on a run's models, and those on the models that its jobs made."""
    jobs: list[Run] = []
    sources = [run.pk]
    while sources:
        rows = list(among.filter(source__in=sources).prefetch_related("attempts"))
        jobs += rows
        sources = [row.pk for row in rows]
    return jobs


def _run_stays(run: Run) -> Iterator[str]:
    latest = run.latest()
    if latest.status == "queued":
        yield f"{run.name} is queued: remove it from the queue first."
    elif latest.status in ACTIVE:
        yield f"{run.name} is {latest.status}: stop it first."
    yield from deletions.needed_by(run, jobs={job.pk for job in jobs_of(run)})
    leases = list(Lease.objects.filter(attempt__run=run).exclude(state=Lease.RELEASED).select_related("host"))
    if leases and latest.status not in ACTIVE:
        resources = f"{resource_words(lease.resource for lease in leases)} of {leases[0].host.name}"
        yield f"{resources} is not proved free after it: release it on the Hardware page first."


def _run_consequences(run: Run) -> Iterator[str]:
    if jobs := jobs_of(run):
        count = sum(job.kind in JOBS for job in jobs)
        numbers = f"{counted(count, 'job')} and {counted(len(jobs) - count, 'evaluation')}"
        yield f"Also deleted: {numbers} on its models, and the merged models that they made."
    begun = Run.objects.filter(spec__start_from__startswith=f"{run.pk}/").exclude(source=run)
    if names := _names(begun):
        yield f"Runs that started from one of its checkpoints stay, and can't be repeated from it: {names}."
    if run.latest().resumes_at:
        yield "Its automatic resume is canceled."
    sizes = disk.of_run(run).parts
    yield (
        f"It takes {', '.join(sizes)}, which is freed once it is deleted for good."
        if sizes
        else "It takes no known disk space."
    )
    for attempt in run.attempts.select_related("host"):
        if attempt.host and attempt.dispatched_at and deletions.is_lost(attempt):
            yield f"{attempt.host} is gone: its files there stay."


def _dataset_stays(dataset: Dataset) -> Iterator[str]:
    if names := _names(Run.objects.filter(dataset_version__dataset=dataset)):
        yield (
            f"These runs were trained on {dataset.name}, and a resume needs its rows: {names}. Archive its versions "
            "instead, or delete these runs first."
        )


def _dataset_consequences(dataset: Dataset) -> Iterator[str]:
    versions = list(dataset.versions.defer("report"))
    size = sum(path.stat().st_size for version in versions for path in version.folder.rglob("*") if path.is_file())
    number = counted(len(versions), "version")
    yield f"Deletes {number} with {size_in_words(size)} here, and copies in the artifact store."
    if names := _names(Run.every.filter(dataset_version__dataset=dataset).exclude(deleted_at=None)):
        yield f"Recently deleted runs used it; restoring one of them restores it, too: {names}."
    if count := ReferenceCheck.objects.filter(dataset_version__dataset=dataset).count():
        yield f"Deletes {counted(count, 'check')} of its answers."
    yield "Datasets and corpora that were made from it stay."


def _frozen_in(runs: str) -> Callable[[Any], Iterator[str]]:
    """Make the consequences for a kind that runs keep a frozen copy of. `runs`: the lookup from a run to the row."""

    def consequences(row: Any) -> Iterator[str]:
        if names := _names(Run.objects.filter(**{runs: row})):
            yield f"Runs with it have a frozen copy and can be resumed; a clone needs another one: {names}."
        else:
            yield "No run has used it."

    return consequences


def _reward_consequences(config: RewardConfig) -> Iterator[str]:
    yield from _frozen_in("reward_version__config")(config)
    if count := ReferenceCheck.objects.filter(reward_version__config=config).count():
        yield f"Deleting it for good also deletes {counted(count, 'check')} of datasets' answers with it."


def _names(runs: QuerySet[Run]) -> str:
    """Name the first training runs, and count the runs of other kinds; "" if there are none."""
    numbers = Counter(runs.order_by().values_list("kind", flat=True))
    names = list(runs.filter(kind="train").values_list("name", flat=True)[:MAX_NAMED])
    trained = numbers.pop("train", 0)
    labels: Counter[str] = Counter()
    for kind, number in numbers.items():
        labels[_OTHERS.get(kind, "job")] += number
    parts = [and_more(names, trained)] if names else []
    return "; ".join(parts + [counted(number, label) for label, number in labels.items()])


KINDS: dict[str, DeletableKind] = {
    kind.slug: kind
    for kind in (
        DeletableKind("run", "run", "Runs", Run, "run", "runs", _run_consequences, _run_stays),
        DeletableKind(
            *("dataset", "dataset", "Datasets", Dataset, "dataset", "datasets"),
            *(_dataset_consequences, _dataset_stays),
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
"""Runs come first, since the rows that they refer to are deleted for good after them."""
