"""The one interpreter of the rules: a history and a preset's bounds give a verdict, findings, and every figure.

A finding opens when its condition has lasted for the rule's hold, and closes when the figure has been back within the
bound, by a tenth of it, for as long. So a single step beyond a bound opens nothing, and a figure that oscillates around
a bound opens one finding, not twenty.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from runs.health import machine_rules, signals
from runs.health.history import History
from runs.health.presets import Preset, RuleBounds, bound_text, value_text
from runs.health.rules import RULES, HealthRule, Level
from runs.health.signals import Signal

EASED = 0.1
MACHINE = {rule.id for rule in machine_rules.RULES}
RANK = {"bad": 0, "watch": 1, "note": 2}

Finding = dict[str, Any]


class _Stand(NamedTuple):
    level: Level
    bound: float
    since: float
    """Where it began, on the signal's axis."""


@np.errstate(over="ignore", invalid="ignore")  # figures too large for a float are not judged
def assess(history: History, preset: Preset, before: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """Assess a run. `before`: the previous assessment, {} for the first."""
    open_before = {finding["rule"]: finding for finding in before.get("findings") or ()}
    findings: list[Finding] = []
    checks: list[dict[str, Any]] = []
    for rule in RULES:
        bounds = preset.bounds(rule)
        check, finding = _judge(rule, bounds, history, open_before.get(rule.id))
        checks.append(check)
        if finding is not None:
            findings.append(finding)
    findings.sort(key=lambda finding: RANK[finding["level"]])
    return {
        "verdict": _verdict(findings, checks),
        "step": history.step,
        "at": now.isoformat(),
        "preset": preset.name,
        "findings": findings,
        "checks": checks,
    }


def alerts(health: Mapping[str, Any]) -> dict[str, Finding]:
    """The open findings that raise alerts, by rule."""
    return {f["rule"]: f for f in health.get("findings") or () if f["level"] in ("watch", "bad")}


def _verdict(findings: list[Finding], checks: list[dict[str, Any]]) -> str:
    levels = {finding["level"] for finding in findings}
    if "bad" in levels:
        return "bad"
    if "watch" in levels:
        return "watch"
    # Judged by the policy's figures: the machine's alone allow no verdict.
    judged = [check for check in checks if check["value"] is not None and check["rule"] not in MACHINE]
    return "well" if judged else "unknown"


def _judge(
    rule: HealthRule, bounds: RuleBounds, history: History, was: Finding | None
) -> tuple[dict[str, Any], Finding | None]:
    check: dict[str, Any] = {"rule": rule.id, "state": "waits", "value": None, "bound": bound_text(rule, bounds)}
    if bounds.source != rule.source:  # lists of runs read this too, so it stays short
        check["source"] = bounds.source
    if bounds.off:
        return {**check, "state": "off"}, None
    if reason := rule.unless(history.config):
        return {**check, "state": "apart", "why": reason}, None
    signal = signals.OF[rule.id](history)
    if signal is None or not len(signal.value) or not np.isfinite(signal.value[-1]):
        return check, None
    value = float(signal.value[-1])
    check |= {"value": value, "state": "well"}
    stand = _stand(rule, bounds, signal, was)
    if stand is None:
        return check, None
    finding = _finding(rule, bounds, history, signal, stand, was)
    return {**check, "state": finding["level"]}, finding


def _stand(rule: HealthRule, bounds: RuleBounds, signal: Signal, was: Finding | None) -> _Stand | None:
    """The level at which the rule stands now, checking the worse one first."""
    levels: tuple[tuple[Level, float | None], ...] = (("bad", bounds.bad), (rule.mild, bounds.watch))
    for level, bound in levels:
        if bound is None:
            continue
        since = _lasting(_beyond(rule, signal, bound), signal, rule.hold)
        if since is not None:
            return _Stand(level, bound, since)
        open_at = was is not None and RANK[was["stood"]] <= RANK[level]
        eased = bound - EASED * abs(bound) if rule.above else bound + EASED * abs(bound)
        if open_at and _lasting(~_beyond(rule, signal, eased), signal, rule.hold) is None:
            return _Stand(level, bound, float(signal.at[-1]))
    return None


def _beyond(rule: HealthRule, signal: Signal, bound: float) -> NDArray[np.bool_]:
    return signal.value > bound if rule.above else signal.value < bound


def _lasting(holds: NDArray[np.bool_], signal: Signal, hold: int) -> float | None:
    """The start of the stretch that has lasted until now, if it is as long as `hold`."""
    if not holds[-1]:
        return None
    breaks = np.flatnonzero(~holds)
    first = int(breaks[-1]) + 1 if len(breaks) else 0
    return float(signal.at[first]) if signal.at[-1] - signal.at[first] >= hold else None


def _finding(
    rule: HealthRule, bounds: RuleBounds, history: History, signal: Signal, stand: _Stand, was: Finding | None
) -> Finding:
    value = float(signal.value[-1])
    learnt = bool(rule.solved) and history.solved
    began = history.step_at(stand.since) if rule.clock else int(stand.since)
    words = {
        "value": value_text(value, rule.format),
        "bound": value_text(stand.bound, rule.format),
        "step": f"{history.step:,}",
        **signal.words,
    }
    return {
        "rule": rule.id,
        "title": rule.title,
        "level": "note" if learnt else stand.level,
        "stood": stand.level,
        "value": value,
        "value_text": words["value"],
        "format": rule.format,
        "bound": stand.bound,
        "bound_text": bound_text(rule, bounds),
        "source": bounds.source,
        "sentence": (rule.solved if learnt else rule.means).format(**words),
        "try": "" if learnt else rule.try_.format(**words),
        "metric": rule.metric.format(**words) if rule.metric else "",
        "since_step": was["since_step"] if was else began,
    }
