"""Which bounds a run's health goes by: a rule's own, with a preset's laid over them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import Q

from runs.health.rules import HealthRule
from runs.models import HealthPreset, Run

MIXED = "mixed"


@dataclass(frozen=True)
class RuleBounds:
    watch: float | None
    bad: float | None
    source: str

    @property
    def off(self) -> bool:
        return self.watch is None and self.bad is None


@dataclass(frozen=True)
class Preset:
    name: str = "Mixed"
    entries: Mapping[str, Mapping[str, Any]] | None = None
    """Rule -> {"on", "watch", "bad", "source"}, each only where it differs from the rule's own."""

    def bounds(self, rule: HealthRule) -> RuleBounds:
        entry = (self.entries or {}).get(rule.id)
        if entry is None:
            return RuleBounds(rule.watch, rule.bad, rule.source)
        source = str(entry.get("source") or f"Preset “{self.name}”.")
        if not entry.get("on", True):
            return RuleBounds(None, None, source)
        return RuleBounds(_number(entry, "watch", rule.watch), _number(entry, "bad", rule.bad), source)


def preset_of(run: Run) -> Preset:
    """Two queries less where `Presets` is asked for many runs."""
    wanted = Q(pk=run.preset_id) if run.preset_id else Q(is_default=True)
    return as_preset(HealthPreset.objects.filter(wanted).first())


def choices() -> list[HealthPreset]:
    """All of them, the default first."""
    return sorted(HealthPreset.objects.all(), key=lambda row: (not row.is_default, row.slug is None, row.name))


def as_preset(row: HealthPreset | None) -> Preset:
    return Preset(row.name, row.bounds) if row is not None else Preset()


class Presets:
    """All of them, read once for a round over many runs."""

    def __init__(self) -> None:
        rows = list(HealthPreset.objects.all())
        self._of = {row.pk: as_preset(row) for row in rows}
        self._default = next((self._of[row.pk] for row in rows if row.is_default), Preset())

    def of(self, run: Run) -> Preset:
        return self._of.get(run.preset_id, self._default) if run.preset_id else self._default


def _number(entry: Mapping[str, Any], name: str, own: float | None) -> float | None:
    value = entry.get(name, own)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
