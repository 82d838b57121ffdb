"""The interpreter of the health rules: it derives a verdict, findings and checks from a history and a preset's bounds.

A finding opens when its condition has lasted for the rule's `hold` steps, or at once if the signal is sure. It closes
when the value has been back within the bound, by a tenth of the bound, for the rule's `calm` steps. So a single step
beyond a bound opens nothing, and a value that oscillates around a bound opens one finding, not twenty.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from runs.insight.health.history import ROLL, History
from runs.insight.health.judging import (
    cause_signals,
    completion_signals,
    episode_signals,
    hacking_signals,
    machine_rules,
    machine_signals,
    policy_signals,
    reward_signals,
    sync_signals,
)
from runs.insight.health.judging.rule import HealthRule, Level
from runs.insight.health.judging.rules import BY_ID, RULES
from runs.insight.health.judging.signal import Signal, SignalReader
from runs.insight.health.presets import Preset, RuleBounds, bound_text, value_text

EASING_SHARE = 0.1
MIN_GENERATIONS = 2 * ROLL
"""Minimum number of generations of a run that is called healthy."""
REWARD_METRICS = ("reward", "frac_reward_zero_std", "{metric}")
MACHINE_RULES = set(machine_rules.RULES)
REWARD_RULES = {rule.id for rule in RULES if rule.metric in REWARD_METRICS}
FIGURES: dict[str, SignalReader] = {
    **cause_signals.SIGNALS,
    **reward_signals.SIGNALS,
    **completion_signals.SIGNALS,
    **episode_signals.SIGNALS,
    **policy_signals.SIGNALS,
    **sync_signals.SIGNALS,
    **hacking_signals.SIGNALS,
    **machine_signals.SIGNALS,
}
"""Rule -> the function that computes its value over the newest steps."""
_SINGULAR_UNIT = re.compile(r"(?<![\d.,])1 (nat|token|call|turn|step|generation|completion)s\b")
"""A plural after a figure that is exactly 1."""
RANK = {"bad": 0, "warning": 1, "note": 2}

Finding = dict[str, Any]


class _Breach(NamedTuple):
    level: Level
    bound: float
    since: float


@np.errstate(over="ignore", invalid="ignore")  # values too large for a float are not judged
def assess(history: History, preset: Preset, before: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """Assess a run. `before` is the previous assessment, or {} if there is none."""
    open_before = {finding["rule"]: finding for finding in before.get("findings") or ()}
    closed = {check["rule"]: check.get("resolved") for check in before.get("checks") or ()}
    findings: list[Finding] = []
    checks: list[dict[str, Any]] = []
    for rule in RULES:
        bounds = preset.bounds(rule)
        check, finding = _judge(rule, bounds, history, open_before.get(rule.id))
        if check["state"] == "well" and (resolved := history.step if rule.id in open_before else closed.get(rule.id)):
            check["resolved"] = resolved
        checks.append(check)
        if finding is not None:
            findings.append(finding)
    findings = _grouped(findings)
    return {
        "verdict": _verdict(findings, checks, history),
        "step": history.step,
        "at": now.isoformat(),
        "preset": preset.name,
        "findings": findings,
        "checks": checks,
    }


def alerts(health: Mapping[str, Any]) -> dict[str, Finding]:
    """Return the open findings that raise alerts, by rule. Consequences of other findings raise none."""
    findings = health.get("findings") or ()
    return {f["rule"]: f for f in findings if f["level"] in ("warning", "bad") and not f.get("cause")}


def news(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[tuple[Finding, bool]]:
    """Yield alerts that are new or worse, and whether to send a message about each. No message is sent about the cause
    of findings that were already reported, so that one problem gives one message."""
    earlier_findings = {f["rule"]: f for f in before.get("findings") or () if f["level"] != "note"}
    for rule, finding in alerts(after).items():
        previous = earlier_findings.get(rule)
        if previous is None:
            yield finding, not any(f["cause"] == rule and f["rule"] in earlier_findings for f in after["findings"])
        elif (previous["level"], finding["level"]) == ("warning", "bad"):
            yield finding, True


def _grouped(findings: list[Finding]) -> list[Finding]:
    """Sort the findings, worst first, each followed by its probable consequences, whose `cause` names its rule."""
    alarming = {finding["rule"] for finding in findings if finding["level"] != "note"}
    for finding in findings:
        cause = "" if finding["level"] == "note" else _root(finding["rule"], alarming)
        finding["cause"] = cause or finding["cause"]
    roots = [finding for finding in findings if not finding["cause"]]
    names = {root["rule"] for root in roots}
    roots += [finding for finding in findings if finding["cause"] and finding["cause"] not in names]
    groups = [[root, *(f for f in findings if f["cause"] == root["rule"] and f is not root)] for root in roots]
    groups.sort(key=lambda group: min(RANK[finding["level"]] for finding in group))
    return [finding for group in groups for finding in group]


def _root(rule: str, alarming: set[str]) -> str:
    """Return the rule of a finding's root cause among the open findings, or "" if it has no cause."""
    root, visited_rules = rule, {rule}
    while cause := next((rule_id for rule_id in BY_ID[root].follows if rule_id in alarming - visited_rules), ""):
        root = cause
        visited_rules.add(root)
    return "" if root == rule else root


def _verdict(findings: list[Finding], checks: list[dict[str, Any]], history: History) -> str:
    levels = {finding["level"] for finding in findings}
    if alarming := next((level for level in ("bad", "warning") if level in levels), ""):
        return alarming
    # Whether a run learns is unknown until rules have judged its reward, over more than its first generations.
    is_judged = any(check["value"] is not None and check["rule"] in REWARD_RULES for check in checks)
    is_waiting = bool(reward_signals.unproven(history))
    return "well" if is_judged and not is_waiting and history.generations >= MIN_GENERATIONS else "unknown"


def _judge(
    rule: HealthRule, bounds: RuleBounds, history: History, previous: Finding | None
) -> tuple[dict[str, Any], Finding | None]:
    check: dict[str, Any] = {"rule": rule.id, "state": "waits", "value": None, "bound": ""}
    if bounds.source != rule.source:  # lists of runs read this too, so it must be short
        check["source"] = bounds.source
    if bounds.off:
        return {**check, "state": "off"}, None
    bounds = bounds.scaled(rule.scale(history.config))
    check["bound"] = bound_text(rule, bounds)
    if reason := rule.unless(history.config):
        return {**check, "state": "apart", "why": reason}, None
    signal = FIGURES[rule.id](history)
    if signal is None or not len(signal.value) or not np.isfinite(signal.value[-1]):
        if not history.has_stopped(rule.metric):
            return check, None
        return {**check, "state": "gone"}, previous  # a metric that is no longer logged is neither better nor worse
    value = float(signal.value[-1])
    check |= {"value": value, "state": "well"}
    breach = _breach(rule, bounds, signal, previous)
    if breach is None:
        return check, None
    finding = _finding(rule, bounds, history, signal, breach, previous)
    return {**check, "value": finding["value"], "state": finding["level"]}, finding


def _breach(rule: HealthRule, bounds: RuleBounds, signal: Signal, previous: Finding | None) -> _Breach | None:
    """Return the worst bound that the value has crossed for long enough, or None."""
    is_sure = signal.sure is not None and bool(signal.sure[-1])
    levels: tuple[tuple[Level, float | None], ...] = (("bad", bounds.bad), (rule.mild, bounds.warning))
    for level, bound in levels:
        if bound is None:
            continue
        hold = max(rule.hold, rule.hold_bad) if level == "bad" else rule.hold
        since = _lasting_since(_is_beyond(rule, signal, bound), signal, 0 if is_sure else hold)
        if since is not None:
            return _Breach(level, bound, since)
        open_at = previous is not None and RANK[previous["stood"]] <= RANK[level]
        eased_bound = bound - EASING_SHARE * abs(bound) if rule.above else bound + EASING_SHARE * abs(bound)
        calm_steps = max(rule.hold, rule.calm * max(1.0, _interval(signal)))
        if open_at and _lasting_since(~_is_beyond(rule, signal, eased_bound), signal, calm_steps) is None:
            return _Breach(level, bound, float(signal.at[-1]))
    return None


def _is_beyond(rule: HealthRule, signal: Signal, bound: float) -> NDArray[np.bool_]:
    return signal.value > bound if rule.above else signal.value < bound


def _interval(signal: Signal) -> float:
    """Return the mean number of steps between two values of a signal."""
    return float(signal.at[-1] - signal.at[0]) / max(len(signal.at) - 1, 1)


def _lasting_since(holds: NDArray[np.bool_], signal: Signal, hold: float) -> float | None:
    """Return the first step of the current stretch of true values, or None if it is shorter than `hold` steps."""
    if not holds[-1]:
        return None
    breaks = np.flatnonzero(~holds)
    start_index = int(breaks[-1]) + 1 if len(breaks) else 0
    return float(signal.at[start_index]) if signal.at[-1] - signal.at[start_index] >= hold else None


def _finding(
    rule: HealthRule, bounds: RuleBounds, history: History, signal: Signal, breach: _Breach, previous: Finding | None
) -> Finding:
    value = float(signal.value[-1])
    is_solved = bool(rule.solved) and history.solved
    fields = {
        "value": value_text(value, rule.format),
        "bound": value_text(breach.bound, rule.format),
        "step": f"{history.step:,}",
        **history.config.advice,
        **signal.fields,
    }
    advice = rule.try_.format(**fields)
    finding: Finding = {
        "rule": rule.id,
        "title": rule.title,
        "level": "note" if is_solved else breach.level,
        "stood": breach.level,
        "value": value,
        "value_text": fields["value"],
        "format": rule.format,
        "bound": breach.bound,
        "bound_text": bound_text(rule, bounds),
        "source": bounds.source,
        "sentence": _SINGULAR_UNIT.sub(r"1 \1", (rule.solved if is_solved else rule.means).format(**fields)),
        "try": "" if is_solved else advice[:1].upper() + advice[1:],
        "metric": rule.metric.format(**fields) if rule.metric else "",
        "find": rule.find.format(**fields),
        "cause": previous.get("cause", "") if previous else "",
        "since_step": previous["since_step"] if previous else int(breach.since),
    }
    same_level = previous is not None and previous["level"] == finding["level"]
    restarts = rule.format == "steps" or (rule.above and value == 0)
    if previous and same_level and restarts and not _is_beyond(rule, signal, breach.bound)[-1]:
        # A value that is 0 again doesn't say why the finding is still open.
        finding |= {name: previous[name] for name in ("value", "value_text", "sentence")}
    return finding
