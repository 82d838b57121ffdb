"""Readiness of a launch: the verdict of its checks, for the panel, the launch button and the link to the checks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from controlplane.platform.templatetags.optional import count
from runs.launch.new_run.drafting import Forecast
from runs.launch.preflight.finding import Finding, Grade


@dataclass(frozen=True)
class Readiness:
    tone: str
    icon: str
    verdict: str
    checks: str
    """Text of the link to the checks."""
    link_tone: str
    button: str
    ready: bool = False
    also: str = ""
    """A sentence on further missing choices."""


def readiness(findings: Sequence[Finding], to_choose: Sequence[str], launch: str) -> Readiness:
    """`to_choose`: labels of required choices; `launch`: the button's words once nothing is missing."""
    problems = count(sum(finding.grade == Grade.STOP for finding in findings), "problem,problems")
    warnings = count(sum(finding.grade == Grade.WARN for finding in findings), "warning,warnings")
    missing = ", ".join(to_choose).lower()
    if problems:
        also = f"Still to choose: {missing}." if missing else ""
        fix = f"Fix {problems}"
        return Readiness("bad", "circle-x", f"{fix} first", problems, "bad", f"{fix} to launch", also=also)
    if to_choose:
        more = f" and {len(to_choose) - 1} more" if len(to_choose) > 1 else ""
        button = f"Choose a {to_choose[0].lower()}{more} to launch"
        link_tone = "warn" if warnings else ""
        left = f"{len(to_choose)} to choose"
        return Readiness("open", "circle-dashed", f"Still to choose: {missing}", left, link_tone, button)
    if warnings:
        verdict = f"Can be launched, with {warnings}"
        return Readiness("warn", "triangle-alert", verdict, warnings, "warn", launch, ready=True)
    return Readiness("good", "circle-check", "Ready to launch", "Checked", "good", launch, ready=True)


def launch_label(forecast: Forecast, runs: int, at_once: int | None) -> str:
    """The launch button's words; `runs`: how many runs a launch of several has, `at_once` how many may run together."""
    if not runs:
        return forecast.words
    bound = f", {at_once} at a time" if at_once else ""
    return f"{'Launch' if forecast.now else 'Queue'} {runs} runs{bound}"
