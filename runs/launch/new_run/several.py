"""Several runs from one form: the same settings with other seeds, and a small grid of settings.

They are launched together or not at all, belong to a RunGroup with a bound on how many of them run at once, carry one
tag, and are compared by default.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from heapq import heapreplace
from math import prod
from typing import Any

from django.db import transaction

from controlplane.catalogue.hardware.prices import total
from controlplane.platform.accounts.models import User
from runs.engine.idempotency import once
from runs.engine.models import Run, RunGroup
from runs.engine.scheduling import launching
from runs.launch.new_run import past_runs
from runs.launch.new_run.drafting import Checked, checked, findings_of
from runs.launch.new_run.fields.several_fields import SEVERAL_FIELDS, Variation
from runs.launch.preflight import ORDER
from runs.launch.preflight.duration import Duration
from runs.launch.preflight.finding import Finding, Grade

KIND = "several"
"""In the key of a launch, in the place of a run's kind."""


@dataclass(frozen=True)
class Part:
    """A variation with its own preflight."""

    variation: Variation
    checked: Checked
    findings: list[Finding]


@dataclass(frozen=True)
class Checks:
    """The preflight of a form: of its single run, or of each of its several runs."""

    checked: Checked
    """The form's own settings."""
    findings: list[Finding]
    parts: list[Part]
    """[] for a single run."""


@dataclass(frozen=True)
class Together:
    """What the runs of a group take in all."""

    each: list[Duration]
    at_once: int | None

    @property
    def alike(self) -> bool:
        """Whether each takes as long as the others."""
        return len({(one.step_s, one.steps) for one in self.each}) == 1

    @property
    def span(self) -> tuple[float, float] | None:
        """Seconds of the shortest run and of the longest."""
        seconds = self._all("seconds")
        return (min(seconds), max(seconds)) if seconds else None

    @property
    def seconds(self) -> float | None:
        """In the group's order. Without a bound: one after another, the longest that it can take."""
        ends = [0.0] * (self.at_once or 1)
        seconds = self._all("seconds")
        for one in seconds:
            heapreplace(ends, ends[0] + one)
        return max(ends) if seconds else None

    @property
    def gpu_hours(self) -> float | None:
        return sum(self._all("gpu_hours")) or None

    @property
    def cost(self) -> str:
        return total(self._all("cost"))

    def _all(self, figure: str) -> list[Any]:
        """Of each run; [] if it is unknown of one."""
        figures = [getattr(one, figure) for one in self.each]
        return [] if None in figures else figures


def together(parts: Sequence[Part], at_once: int | None) -> Together | None:
    """None for a single run, and if the time of one of them is unknown."""
    each = [past_runs.expected(part.checked.draft, part.checked.hosts) for part in parts]
    known = [one for one in each if one is not None]
    return Together(known, at_once) if each and len(known) == len(each) else None


def check(form: Any, user: User, kind: str = "train") -> Checks:
    """`kind`: a learnability check is a single run, with the form's own settings."""
    draft_check, variations = checked(form, user), form.variations if kind == "train" else []
    found = [_part(form, variation, user, runs=len(variations)) for variation in variations]
    return Checks(draft_check, _findings(form, found) if found else findings_of(form, draft_check), found)


def _part(form: Any, variation: Variation, user: User, *, runs: int) -> Part:
    data = form.data.copy()
    data.update({**variation.values, **dict.fromkeys(SEVERAL_FIELDS, "")})
    data["name"] = f"{form.run_name()[: 118 - len(variation.words)]}, {variation.words}"[:120]
    own = type(form)(data, schema=form.schema)
    draft_check = checked(own, user)
    draft_check = replace(draft_check, draft=replace(draft_check.draft, runs=runs))
    return Part(variation, draft_check, findings_of(own, draft_check))


def _findings(form: Any, parts: list[Part]) -> list[Finding]:
    """What is true of every run, as of a single one; and what keeps only some of them from being launched, or is a
    warning about them, at the grid and with their settings. The worst first."""
    of: dict[tuple[str, ...], dict[int, Finding]] = {}
    for number, part in enumerate(parts):
        for finding in part.findings:
            of.setdefault((finding.grade, finding.field, finding.cause, finding.fix), {})[number] = finding
    every, at = [part.variation for part in parts], "grid" if form.row("grid") else "seeds"
    found: list[Finding] = []
    for numbered in of.values():
        finding = next(iter(numbered.values()))
        if len(numbered) == len(every):
            fixes = tuple(fix for fix in finding.fixes if not fix.values.keys() & every[0].values.keys())
            found.append(replace(finding, fixes=fixes))
        elif finding.grade != Grade.NOTE:
            cause = f"With {_settings([every[number] for number in numbered], every)}: {finding.cause}"
            found.append(replace(finding, field=at, cause=cause, fixes=()))
    return sorted(found, key=lambda finding: ORDER[finding.grade])


def _settings(those: list[Variation], every: list[Variation]) -> str:
    """What those have in common and the others haven't, such as "num generations 6 or 7"; otherwise each by itself."""
    values, most = _values(those), _values(every)
    if prod(map(len, values.values())) != len(those):
        return "; ".join(variation.words for variation in those)
    names = [name for name in values if len(values[name]) < len(most[name])]
    return Variation({name: " or ".join(values[name]) for name in names}).words


def _values(variations: list[Variation]) -> dict[str, list[str]]:
    names = variations[0].values
    return {name: list(dict.fromkeys(variation.values[name] for variation in variations)) for name in names}


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
