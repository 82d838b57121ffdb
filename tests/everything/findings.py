"""Findings of every health rule, as an assessment stores them: derived from the table of rules, so that none is left
out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from string import Formatter
from typing import Any
from unittest import mock

import numpy as np

from runs.insight.health import assess
from runs.insight.health.config import Component, Config
from runs.insight.health.history import History, MetricHistory
from runs.insight.health.judging.rule import HealthRule
from runs.insight.health.judging.rules import RULES
from runs.insight.health.judging.signal import Signal
from runs.insight.health.presets import Preset

STEPS = 500
CONFIG = Config(components=(Component("format", 1.0, 0.0, 1.0),))
SPOKEN = {"metric": "rewards/format/mean", "component": "format", "best_step": "120", "row": "7"}
"""Fields of rules' sentences whose values lead somewhere; the others are only words."""
KINDS = ("bad", "mild", "solved")


def health(kind: str, now: datetime) -> dict[str, Any]:
    """An assessment in which every rule has a finding: at its worst level, at its first, or beside a reward that is
    near its maximum."""
    column = MetricHistory(np.arange(1, STEPS + 1), np.arange(1.0, STEPS + 1), np.full(STEPS, float(kind == "solved")))
    history = History(CONFIG, {"reward": column}, step=STEPS)
    figures = {rule.id: _figure(rule, kind) for rule in RULES}
    applying = tuple(replace(rule, unless=lambda config: "") for rule in RULES)
    with mock.patch.object(assess, "RULES", applying), mock.patch.object(assess, "FIGURES", figures):
        found = assess.assess(history, Preset("Everything", dict(_bounds())), {}, now)
    return {**found, "memory": {"attempt": 1, "seq": 0, "step": STEPS, "moved_at": now.isoformat()}}


def _bounds() -> Iterator[tuple[str, dict[str, Any]]]:
    """Of rules that are off unless a preset sets a bound."""
    for rule in RULES:
        if rule.warning is None and rule.bad is None:
            yield rule.id, {"on": True, "warning": 0.5, "bad": None}


def _figure(rule: HealthRule, kind: str) -> Callable[[History], Signal]:
    first, worst = rule.warning, rule.bad
    bound = (worst if worst is not None else first) or 0.5
    beyond = (rule.maximum or 10 * bound + 1) if rule.above else min(rule.minimum, bound - 1e-6)
    value = beyond if kind == "bad" or None in (first, worst) else (first + worst) / 2  # type: ignore[operator]
    words = " ".join((rule.means, rule.try_, rule.solved, rule.metric, rule.find))
    fields = {name: SPOKEN.get(name, "0.5") for _, name, _, _ in Formatter().parse(words) if name}
    for own in ("value", "bound", "step", *CONFIG.advice):
        fields.pop(own, None)
    return lambda history: Signal(np.arange(1, STEPS + 1), np.full(STEPS, float(value)), fields)
