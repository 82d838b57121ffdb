"""Health presets: bounds that override the rules' defaults."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.db.models import Q

from controlplane.catalogue.versioned.queries import with_free_name
from controlplane.platform.accounts.models import User
from controlplane.platform.activity.recording import record
from controlplane.platform.templatetags.figures import significant
from runs.engine.models import HealthPreset, Run
from runs.insight.health.judging.rule import HealthRule


@dataclass(frozen=True)
class RuleBounds:
    warning: float | None
    bad: float | None
    source: str

    @property
    def off(self) -> bool:
        return self.warning is None and self.bad is None

    def scaled(self, factor: float) -> "RuleBounds":
        warning, bad = (None if bound is None else bound * factor for bound in (self.warning, self.bad))
        return RuleBounds(warning, bad, self.source)


@dataclass(frozen=True)
class Preset:
    name: str = "Mixed"
    entries: Mapping[str, Mapping[str, Any]] | None = None
    """Rule -> {"on", "warning", "bad", "source"}, only for rules whose bounds differ from the defaults."""

    def bounds(self, rule: HealthRule) -> RuleBounds:
        entry = (self.entries or {}).get(rule.id)
        if entry is None:
            return RuleBounds(rule.warning, rule.bad, rule.source)
        source = str(entry.get("source") or f"Preset “{self.name}”.")
        if not entry.get("on", True):
            return RuleBounds(None, None, source)
        return RuleBounds(_number(entry, "warning", rule.warning), _number(entry, "bad", rule.bad), source)


def preset_of(run: Run) -> Preset:
    """Return the run's preset. For many runs, use `Presets`, which saves a query per run."""
    condition = Q(pk=run.preset_id) if run.preset_id else Q(is_default=True)
    return as_preset(HealthPreset.objects.filter(condition).first())


def choices() -> list[HealthPreset]:
    return sorted(HealthPreset.objects.all(), key=lambda row: (not row.is_default, row.slug is None, row.name))


def as_preset(row: HealthPreset | None) -> Preset:
    return Preset(row.name, row.bounds) if row is not None else Preset()


def copy(row: HealthPreset, owner: User) -> HealthPreset:
    """Create an editable copy of a preset for the owner, with the next free name, and return it."""
    source = row.source if row.slug is None else f"From “{row.name}”. {row.source}".strip()

    def create(name: str) -> HealthPreset:
        return HealthPreset.objects.create(name=name, owner=owner, bounds=row.bounds, source=source)

    return with_free_name(HealthPreset, f"Copy of {row.name}"[:72], create)


def make_default(row: HealthPreset) -> None:
    with transaction.atomic():
        HealthPreset.objects.filter(is_default=True).update(is_default=False)
        HealthPreset.objects.filter(pk=row.pk).update(is_default=True)
        record(row, "Made the default")


def undeletable(row: HealthPreset) -> str:
    """Return why a preset can't be deleted, or "" if it can."""
    if row.is_default:
        return "The default preset can’t be deleted."
    return "" if row.slug is None else "A built-in preset can’t be deleted."


class Presets:
    """All presets, read once for assessing many runs."""

    def __init__(self) -> None:
        rows = list(HealthPreset.objects.all())
        self._of = {row.pk: as_preset(row) for row in rows}
        self._default = next((self._of[row.pk] for row in rows if row.is_default), Preset())

    def of(self, run: Run) -> Preset:
        return self._of.get(run.preset_id, self._default) if run.preset_id else self._default


def _number(entry: Mapping[str, Any], name: str, default: float | None) -> float | None:
    value = entry.get(name, default)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


@functools.lru_cache(maxsize=1024)  # the bounds of all rules are formatted again in each assessment
def value_text(value: float, form: str) -> str:
    if form == "percent":
        return f"{_short_number(100 * value, 2)}%"
    if form == "percent100":
        return f"{_short_number(value, 2)}%"
    if form == "times":
        return f"{_short_number(value, 2)} times"
    if form == "steps":
        return f"{value:,.0f} steps"
    return f"{value:.0f}" if form == "count" else _short_number(value, 3)


def bound_text(rule: HealthRule, bounds: RuleBounds) -> str:
    """Format bounds, as in `warning above 0.5, bad above 2`."""
    side = "above" if rule.above else "below"
    levels = ((rule.mild, bounds.warning), ("bad", bounds.bad))
    return ", ".join(f"{level} {side} {value_text(bound, rule.format)}" for level, bound in levels if bound is not None)


def _short_number(value: float, digits: int) -> str:
    text = significant(value, digits)
    return text.rstrip("0").rstrip(".") if "." in text and "e" not in text else text
