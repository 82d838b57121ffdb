"""Several runs from one form: the same settings with other seeds, and a small grid of settings.

They are launched together or not at all, belong to a RunGroup with a bound on how many of them run at once, carry one
tag, and are compared by default.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from django.db import transaction

from controlplane.accounts.models import User
from controlplane.hardware.prices import Money
from runs import preflight
from runs.idempotency import once
from runs.models import Run, RunGroup
from runs.new_run.drafting import Checked, checked, findings_of
from runs.new_run.several_fields import SEVERAL_FIELDS, Variation
from runs.preflight.duration import Duration
from runs.scheduling import launching

KIND = "several"
"""In the key of a launch, in the place of a run's kind."""


@dataclass(frozen=True)
class Part:
    """A variation with its own form, preflight and findings."""

    variation: Variation
    form: Any
    checked: Checked
    findings: list[preflight.Finding]

    @property
    def problems(self) -> Iterator[str]:
        """What keeps it from being launched."""
        for name, errors in self.form.errors.items():
            label = self.form.fields[name].label if name in self.form.fields else ""
            yield from (f"{label}: {error}".removeprefix(": ") for error in errors)
        stops = (each for each in self.findings if each.grade == preflight.Grade.STOP)
        yield from (f"{each.cause} {each.fix}".strip() for each in stops if each.field not in self.form.errors)


@dataclass(frozen=True)
class Together:
    """What the runs of a group take in all, if each takes what the form's own settings do."""

    runs: int
    at_once: int | None
    each: Duration

    @property
    def seconds(self) -> float | None:
        """Without a bound: one after another, the longest that it can take."""
        return None if self.each.seconds is None else ceil(self.runs / (self.at_once or 1)) * self.each.seconds

    @property
    def gpu_hours(self) -> float | None:
        return None if self.each.gpu_hours is None else self.runs * self.each.gpu_hours

    @property
    def cost(self) -> Money | None:
        return None if self.each.cost is None else self.each.cost * self.runs


def parts(form: Any, user: User) -> list[Part]:
    return [_part(form, variation, user) for variation in form.variations]


def problems(found: Iterable[Part]) -> Iterator[str]:
    """What keeps any of them from being launched."""
    return (f"With {part.variation.words}: {problem}" for part in found for problem in part.problems)


def _part(form: Any, variation: Variation, user: User) -> Part:
    data = form.data.copy()
    data.update({**variation.values, **dict.fromkeys(SEVERAL_FIELDS, "")})
    data["name"] = f"{form.run_name()[: 118 - len(variation.words)]}, {variation.words}"[:120]
    own = type(form)(data, schema=form.schema)
    draft_check = checked(own, user)
    return Part(variation, own, draft_check, findings_of(own, draft_check))


def launch(found: list[Part], user: User, *, at_once: int | None, key: str | None) -> tuple[RunGroup, bool]:
    """Launch all of them; with the key of an earlier launch, that group and False. Raises QueueFull and ContractError,
    then none is launched."""

    def make() -> RunGroup:
        group = RunGroup.objects.create(owner=user, at_once=at_once, launch_key=key)
        for part in found:
            run = launching.submit(replace(part.checked.request, group=group), user=user, dispatch=False)
            Run.objects.filter(pk=run.pk).update(tags=[group.tag])
        transaction.on_commit(launching.dispatch_ready, robust=True)
        return group

    return once(RunGroup.objects.all(), key, make)
