"""What can be deleted and restored: for each kind what it is called, what forbids deleting it, and what that means.

A run's spec is frozen with rewards, environment and profile in it, so these may go while runs with them stay. A
dataset's rows are not in the spec: hosts fetch them again at a resume, so a dataset with runs stays.
"""

from __future__ import annotations

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

MOST_NAMED = 5
_OTHERS = {EVALUATION: "evaluation", CHECK: "learnability check", "trial": "trial"}
"""Kinds of runs that are neither training runs nor jobs -> their word."""


@dataclass(frozen=True)
class DeletableKind:
    slug: str
    one: str
    many: str
    model: type[Any]
    """A controlplane.platform.deletable.Deletable with a name."""
    page: str
    """The route of one."""
    listed: str
    """The route of all."""
    obstacles: Callable[[Any], Iterator[str]]
    """Why it can't be deleted now, in sentences."""
    consequences: Callable[[Any], Iterator[str]]
    """What refers to it and what goes with it, in sentences."""

    @property
    def section(self) -> str:
        """What the page of all is called, as in the rail."""
        return {"reward": "Rewards", "profile": "Hardware"}.get(self.slug, self.many)

    @property
    def names_are_unique(self) -> bool:
        return self.slug != "run"

    @property
    def longest_name(self) -> int:
        return int(self.model._meta.get_field("name").max_length)

    def key(self, text: str) -> Any:
        """A primary key as its model has it. Raises Http404 for what can name no row."""
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
    """The jobs and evaluations on its models, and those on the models that jobs have made."""
    found: list[Run] = []
    sources = [run.pk]
    while sources:
        rows = list(among.filter(source__in=sources).prefetch_related("attempts"))
        found += rows
        sources = [row.pk for row in rows]
    return found


def _run_stays(run: Run) -> Iterator[str]:
    latest = run.latest()
    if latest.status == "queued":
        yield f"{run.name} is queued: remove it from the queue first."
    elif latest.status in ACTIVE:
        yield f"{run.name} is {latest.status}: stop it first."
    yield from deletions.needed_by(run, jobs={job.pk for job in jobs_of(run)})
    held = Lease.objects.filter(attempt__run=run).exclude(state=Lease.RELEASED).select_related("host")
    if (leases := list(held)) and latest.status not in ACTIVE:
        words = f"{resource_words(lease.resource for lease in leases)} of {leases[0].host.name}"
        yield f"{words} is not proved free after it: release it on the Hardware page first."


def _of_run(run: Run) -> Iterator[str]:
    if jobs := jobs_of(run):
        made = counted(sum(job.kind in JOBS for job in jobs), "job")
        others = counted(sum(job.kind not in JOBS for job in jobs), "evaluation")
        yield f"With it go {made} and {others} on its models, and the merged models that they made."
    begun = Run.objects.filter(spec__start_from__startswith=f"{run.pk}/").exclude(source=run)
    if names := _names(begun):
        yield f"Runs that began with one of its checkpoints stay, and can't be repeated from it: {names}."
    if run.latest().resumes_at:
        yield "Its automatic resume is called off."
    sizes = disk.of_run(run).words
    yield (
        f"It takes {', '.join(sizes)}: free once it is deleted for good."
        if sizes
        else "It takes no space that is known."
    )
    for attempt in run.attempts.select_related("host"):
        if attempt.host and attempt.dispatched_at and deletions.is_lost(attempt):
            yield f"{attempt.host} is gone: what is on its disk stays there."


def _dataset_stays(dataset: Dataset) -> Iterator[str]:
    if names := _names(Run.objects.filter(dataset_version__dataset=dataset)):
        yield (
            f"Runs were trained on {dataset.name}, and a resume fetches its rows again: {names}. Archive its versions "
            "instead, or delete these runs first."
        )


def _of_dataset(dataset: Dataset) -> Iterator[str]:
    versions = list(dataset.versions.defer("report"))
    size = sum(path.stat().st_size for each in versions for path in each.folder.rglob("*") if path.is_file())
    yield f"{counted(len(versions), 'version')} with {size_in_words(size)} here, and copies in the artifact store."
    if names := _names(Run.every.filter(dataset_version__dataset=dataset).exclude(deleted_at=None)):
        yield f"Recently deleted runs used it, and bring it back if they are restored: {names}."
    if count := ReferenceCheck.objects.filter(dataset_version__dataset=dataset).count():
        yield f"{counted(count, 'check')} of its answers."
    yield "Datasets and corpora that were made from it stay."


def _none(row: Model) -> Iterator[str]:
    return iter(())


def _frozen_in(runs: str) -> Callable[[Any], Iterator[str]]:
    """`runs`: the lookup from runs to the item."""

    def consequences(row: Any) -> Iterator[str]:
        if names := _names(Run.objects.filter(**{runs: row})):
            yield f"Runs with it have a frozen copy and can be resumed; a clone needs another one: {names}."
        else:
            yield "No run has used it."

    return consequences


def _of_rewards(config: RewardConfig) -> Iterator[str]:
    yield from _frozen_in("reward_version__config")(config)
    if count := ReferenceCheck.objects.filter(reward_version__config=config).count():
        yield f"{counted(count, 'check')} of datasets' answers with it are deleted for good with it."


def _names(runs: QuerySet[Run]) -> str:
    """The first training runs by name, those of other kinds in numbers; "" if there are none."""
    numbers = Counter(runs.order_by().values_list("kind", flat=True))
    names = list(runs.filter(kind="train").values_list("name", flat=True)[:MOST_NAMED])
    trained = numbers.pop("train", 0)
    words: Counter[str] = Counter()
    for kind, number in numbers.items():
        words[_OTHERS.get(kind, "job")] += number
    parts = [and_more(names, trained)] if names else []
    return "; ".join(parts + [counted(number, word) for word, number in words.items()])


KINDS: dict[str, DeletableKind] = {
    kind.slug: kind
    for kind in (
        DeletableKind("run", "run", "Runs", Run, "run", "runs", _run_stays, _of_run),
        DeletableKind("dataset", "dataset", "Datasets", Dataset, "dataset", "datasets", _dataset_stays, _of_dataset),
        DeletableKind(
            *("reward", "reward config", "Reward configs", RewardConfig, "reward_config", "reward_configs"),
            *(_none, _of_rewards),
        ),
        DeletableKind(
            *("environment", "environment", "Environments", Environment, "environment", "environments"),
            *(_none, _frozen_in("environment_version__environment")),
        ),
        DeletableKind(
            *("profile", "hardware profile", "Hardware profiles", HardwareProfile, "profile", "hardware"),
            *(_none, _frozen_in("profile")),
        ),
    )
}
"""Runs first: what they refer to is deleted for good after them."""
