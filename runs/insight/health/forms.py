"""The form of a health preset: its name and, for each rule, a switch and two bounds."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django import forms

from controlplane.platform.http.form_pages import wrong_fields
from runs.engine.models import HealthPreset
from runs.insight.health.judging.rule import HealthRule
from runs.insight.health.judging.rules import GROUPS, RULES
from runs.insight.health.presets import RuleBounds, as_preset

LEVELS = {"note": "Note", "warning": "Warning", "bad": "Bad"}


@dataclass(frozen=True)
class RuleFields:
    rule: HealthRule
    on: forms.BoundField
    bounds: list[forms.BoundField]
    source: str
    changed: bool


@dataclass(frozen=True)
class RuleGroup:
    title: str
    lines: list[RuleFields]

    @property
    def changed(self) -> int:
        return sum(line.changed for line in self.lines)

    @property
    def wrong(self) -> bool:
        return any(field.errors for line in self.lines for field in line.bounds)


class PresetForm(forms.Form):
    name = forms.CharField(max_length=80)
    source = forms.CharField(
        required=False,
        max_length=2000,
        widget=forms.Textarea(attrs={"rows": 2}),
        label="Source of the numbers",
    )

    def __init__(self, data: Mapping[str, Any] | None, *, preset: HealthPreset) -> None:
        super().__init__(data, initial={"name": preset.name, "source": preset.source})
        self.preset = preset
        value = as_preset(preset)
        self._before = {rule.id: value.bounds(rule) for rule in RULES}
        for rule in RULES:
            self._add(rule, self._before[rule.id])

    def _add(self, rule: HealthRule, bounds: RuleBounds) -> None:
        initial_bounds = RuleBounds(rule.warning, rule.bad, "") if bounds.off else bounds
        side = "above" if rule.above else "below"
        self.fields[f"{rule.id}-on"] = forms.BooleanField(required=False, initial=not bounds.off, label=rule.title)
        for name, level, value in (("warning", rule.mild, initial_bounds.warning), ("bad", "bad", initial_bounds.bad)):
            field = forms.FloatField(
                required=False, initial=_to_input(rule, value), label=f"{LEVELS[level]} {side}{_unit(rule)}"
            )
            field.widget.attrs["step"] = "any"
            self.fields[f"{rule.id}-{name}"] = field

    def wrong(self) -> list[tuple[str, str, str]]:
        ends = ("on", "warning", "bad")
        return wrong_fields(self, {f"{rule.id}-{end}": rule.title for rule in RULES for end in ends})

    def groups(self) -> list[RuleGroup]:
        return [RuleGroup(title, list(map(self._line, rules))) for title, rules in GROUPS.items()]

    def _line(self, rule: HealthRule) -> RuleFields:
        bounds = [self[f"{rule.id}-{name}"] for name in ("warning", "bad")]
        changed = rule.id in self.preset.bounds
        return RuleFields(rule, self[f"{rule.id}-on"], bounds, self._before[rule.id].source, changed)

    def clean_name(self) -> str:
        name: str = self.cleaned_data["name"].strip()
        if HealthPreset.objects.filter(name=name).exclude(pk=self.preset.pk).exists():
            raise forms.ValidationError("A preset with this name already exists.")
        return name

    def clean(self) -> dict[str, Any]:
        for rule in RULES:
            if self.cleaned_data.get(f"{rule.id}-on"):
                self._check(rule)
        return self.cleaned_data

    def _check(self, rule: HealthRule) -> None:
        names = [f"{rule.id}-warning", f"{rule.id}-bad"]
        if any(name in self.errors for name in names):
            return
        warning, bad = (_from_input(rule, self.cleaned_data.get(name)) for name in names)
        for name, value in zip(names, (warning, bad), strict=True):
            if value is not None and (problem := _out_of_range(rule, value)):
                self.add_error(name, problem)
        if warning is None and bad is None:
            self.add_error(names[0], "Enter a bound, or turn the rule off.")
        elif warning is not None and bad is not None and warning != bad and (bad > warning) is not rule.above:
            side = "above" if rule.above else "below"
            self.add_error(names[1], f"The worse bound must be {side} the milder one.")

    def entries(self) -> dict[str, dict[str, Any]]:
        entries: dict[str, dict[str, Any]] = {}
        for rule in RULES:
            warning, bad = (
                _from_input(rule, self.cleaned_data.get(f"{rule.id}-{name}")) for name in ("warning", "bad")
            )
            if not self.cleaned_data[f"{rule.id}-on"]:
                if rule.warning is not None or rule.bad is not None:
                    entries[rule.id] = {"on": False}
                continue
            if (warning, bad) == (rule.warning, rule.bad):
                continue
            entries[rule.id] = {"warning": warning, "bad": bad}
            previous = self.preset.bounds.get(rule.id) or {}
            if previous.get("source") and (previous.get("warning"), previous.get("bad")) == (warning, bad):
                entries[rule.id]["source"] = previous["source"]
        return entries

    def save(self) -> HealthPreset:
        self.preset.name = self.cleaned_data["name"]
        self.preset.source = self.cleaned_data["source"].strip()
        self.preset.bounds = self.entries()
        self.preset.save(update_fields=["name", "source", "bounds", "updated_at"])
        return self.preset


def _unit(rule: HealthRule) -> str:
    units = {"percent": "%", "percent100": "%", "times": "times", "steps": "steps"}
    return f" ({units[rule.format]})" if rule.format in units else ""


def _to_input(rule: HealthRule, value: float | None) -> float | None:
    """Convert a value to the form in which users enter it: shares in percent, whole numbers without decimals."""
    if value is None:
        return None
    typed = round(100 * value, 6) if rule.format == "percent" else value
    return int(typed) if typed == int(typed) else typed


def _from_input(rule: HealthRule, value: float | None) -> float | None:
    if value is None or rule.format != "percent":
        return value
    return round(value / 100, 8)


def _out_of_range(rule: HealthRule, value: float) -> str:
    if not math.isfinite(value):
        return "Enter a number."
    if value < rule.minimum:
        return f"At least {_to_input(rule, rule.minimum):g}."
    if rule.maximum is not None and value > rule.maximum:
        return f"At most {_to_input(rule, rule.maximum):g}."
    return ""
