"""Figures and bounds as the card, the events and the preset's form write them."""

from __future__ import annotations

from controlplane.templatetags.figures import significant
from runs.health.presets import RuleBounds
from runs.health.rules import HealthRule


def value_text(value: float, form: str) -> str:
    if form == "percent":
        return f"{_short(100 * value, 2)}%"
    if form == "percent100":
        return f"{_short(value, 2)}%"
    if form == "times":
        return f"{_short(value, 2)} times"
    if form == "steps":
        return f"{value:,.0f} steps"
    return f"{value:.0f}" if form == "count" else _short(value, 3)


def bound_text(rule: HealthRule, bounds: RuleBounds) -> str:
    """`watch above 0.5, bad above 2`"""
    side = "above" if rule.above else "below"
    named = ((rule.mild, bounds.watch), ("bad", bounds.bad))
    return ", ".join(f"{level} {side} {value_text(bound, rule.format)}" for level, bound in named if bound is not None)


def _short(value: float, digits: int) -> str:
    text = significant(value, digits)
    return text.rstrip("0").rstrip(".") if "." in text and "e" not in text else text
