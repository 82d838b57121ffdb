"""Several runs of one launch: the same settings with other seeds, and a small grid of settings.

They are launched all together or not at all. They belong to a RunGroup, which can limit how many of them run at the
same time, carry one tag, and are compared by default.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from heapq import heapreplace
from math import prod
from typing import Any

from django.db import transaction

from controlplane.catalogue.hardware.prices import total
from controlplane.platform.accounts.models import User
from runs.engine.idempotency import once
from runs.engine.models import Run, RunGroup
from runs.engine.scheduling import dispatching, launching
from runs.launch.new_run import past_runs
from runs.launch.new_run.choices import LaunchChoices, choices_of
from runs.launch.new_run.drafting import CheckedChoices, checked, findings_of
from runs.launch.new_run.fields.grid import SEVERAL_FIELDS, Variation
from runs.launch.preflight import ORDER
from runs.launch.preflight.duration import Duration
from runs.launch.preflight.finding import Finding, Grade

KIND = "several"
"""Kind of a group of runs in a launch key."""


@dataclass(frozen=True)
class PlannedRun:
    variation: Variation
    checked: CheckedChoices
    findings: list[Finding]


@dataclass(frozen=True)
class Checks:
    """The preflight of a launch: of its single run, or of each of several runs."""

    checked: CheckedChoices
    """The check of the settings without variations."""
    findings: list[Finding]
    parts: list[PlannedRun] = field(default_factory=list)
    """The planned runs; [] for a single run."""


@dataclass(frozen=True)
class GroupEstimate:
    """The expected time and cost of a group's runs."""

    durations: list[Duration]
    at_once: int | None

    @property
    def alike(self) -> bool:
        return len({(run.step_s, run.steps) for run in self.durations}) == 1

    @property
    def span(self) -> tuple[float, float] | None:
        """Seconds of the shortest and of the longest run, or None if any is unknown."""
        seconds = self._all("seconds")
        return (min(seconds), max(seconds)) if seconds else None

    @property
    def seconds(self) -> float | None:
        """Seconds of the whole group, started in order. Without a limit, they run one after another."""
        ends = [0.0] * (self.at_once or 1)
        seconds = self._all("seconds")
        for duration in seconds:
            heapreplace(ends, ends[0] + duration)
        return max(ends) if seconds else None

    @property
    def gpu_hours(self) -> float | None:
        return sum(self._all("gpu_hours")) or None

    @property
    def cost(self) -> str:
        return total(self._all("cost"))

    def _all(self, name: str) -> list[Any]:
        """Read an attribute of each run's duration; return [] if any is unknown."""
        values = [getattr(run, name) for run in self.durations]
        return [] if None in values else values


def estimate_group(parts: Sequence[PlannedRun], at_once: int | None) -> GroupEstimate | None:
    """Estimate the group's time and cost; return None for a single run, or if any run's time is unknown."""
    durations = [past_runs.expected_duration(part.checked.draft, part.checked.hosts) for part in parts]
    known_durations = [duration for duration in durations if duration is not None]
    return GroupEstimate(known_durations, at_once) if durations and len(known_durations) == len(durations) else None


def check(choices: LaunchChoices, user: User, kind: str = "train") -> Checks:
    """Check a launch of one run or several. A learnability check is always a single run, without variations."""
    variations = choices.variations if kind == "train" else []
    if not variations:
        return check_single(choices, user, kind)
    parts = [_part(choices, variation, user, runs=len(variations)) for variation in variations]
    return Checks(checked(choices, user), _findings(choices, parts), parts)


def check_single(choices: LaunchChoices, user: User, kind: str = "train") -> Checks:
    """Check the launch's settings without its variations."""
    draft_check = checked(choices, user)
    return Checks(draft_check, findings_of(choices, draft_check, user, kind))


def _part(choices: LaunchChoices, variation: Variation, user: User, *, runs: int) -> PlannedRun:
    name = f"{choices.run_name()[: 118 - len(variation.label)]}, {variation.label}"[:120]
    blank_values = dict.fromkeys(SEVERAL_FIELDS, "")
    own_choices = choices_of(choices.sent_values() | variation.values | blank_values | {"name": name}, choices.schema)
    draft_check = checked(own_choices, user)
    draft_check = replace(draft_check, draft=replace(draft_check.draft, runs=runs))
    return PlannedRun(variation, draft_check, findings_of(own_choices, draft_check, user))


def _findings(choices: LaunchChoices, parts: list[PlannedRun]) -> list[Finding]:
    """Merge the findings of all runs, worst first. Findings that all runs share stay as they are. Stops and warnings of
    only some runs are moved to the grid or seeds, with these runs' settings; their notes are dropped."""
    by_content: dict[tuple[str, ...], dict[int, Finding]] = {}
    for number, part in enumerate(parts):
        for finding in part.findings:
            by_content.setdefault((finding.grade, finding.field, finding.cause, finding.fix), {})[number] = finding
    variations, field_name = [part.variation for part in parts], "grid" if choices.chosen("grid") else "seeds"
    merged_findings: list[Finding] = []
    for by_number in by_content.values():
        finding = next(iter(by_number.values()))
        if len(by_number) == len(variations):
            fixes = tuple(fix for fix in finding.fixes if not fix.values.keys() & variations[0].values.keys())
            merged_findings.append(replace(finding, fixes=fixes))
        elif finding.grade != Grade.NOTE:
            cause = f"With {_settings([variations[number] for number in by_number], variations)}: {finding.cause}"
            merged_findings.append(replace(finding, field=field_name, cause=cause, fixes=()))
    return sorted(merged_findings, key=lambda finding: ORDER[finding.grade])


def _settings(own_variations: list[Variation], all_variations: list[Variation]) -> str:
    """Name the settings that only these runs have, such as "num generations 6 or 7". If no such combination describes
    them, list each run's settings."""
    values, all_values = _values(own_variations), _values(all_variations)
    if prod(map(len, values.values())) != len(own_variations):
        return "; ".join(variation.label for variation in own_variations)
    names = [name for name in values if len(values[name]) < len(all_values[name])]
    return Variation({name: " or ".join(values[name]) for name in names}).label


def _values(variations: list[Variation]) -> dict[str, list[str]]:
    names = variations[0].values
    return {name: list(dict.fromkeys(variation.values[name] for variation in variations)) for name in names}


def launch(parts: list[PlannedRun], user: User, *, at_once: int | None, key: str | None) -> tuple[RunGroup, bool]:
    """Launch all runs and return (their group, True), or (the earlier group, False) if the key was used before. No run
    is launched if this raises QueueFull, because the user may not queue that many, or ContractError, because a request
    is invalid."""

    def make() -> RunGroup:
        group = RunGroup.objects.create(owner=user, at_once=at_once, launch_key=key)
        for part in parts:
            run = launching.submit(replace(part.checked.request, group=group), user=user, dispatch=False)
            Run.objects.filter(pk=run.pk).update(tags=[group.tag])
        transaction.on_commit(dispatching.dispatch_ready, robust=True)
        return group

    return once(RunGroup.objects.all(), key, make)
