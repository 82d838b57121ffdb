"""`manage.py bench gamed`: are gamed rewards named, and do healthy runs that look alike stay without an alarm?

`named` is the share of gamed runs for which a rule about gamed rewards has a finding, `alarmed` that of healthy ones.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from typing import Any

from tests.benchmarks._gamed import HACKED, HONEST, Kind, Run
from tests.runs.insight.health.watched import Watched

EVERY = 5
RULES = {
    "judge_parted",
    "length_explains",
    "components",
    "component_falling",
    "component_stuck",
    "solved_falling",
    "eval_falling",
    "eval_gap",
    "length_rewarded",
}
"""Rules about gamed or memorized rewards."""


def main(argv: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(prog="bench gamed")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each kind")
    parser.add_argument("--only", default="", help="kinds whose name matches this pattern")
    options = parser.parse_args(argv or [])
    hacked, honest = (_all(kinds, options) for kinds in (HACKED, HONEST))
    return {
        "runs": {"gamed": len(hacked), "healthy": len(honest)},
        "named": _share([bool(rules & RULES) for rules, _ in hacked.values()]),
        "one_alert": _share([len(opened) <= 1 for _, opened in hacked.values()]),
        "alarmed": _share([bool(opened) for _, opened in honest.values()]),
        "offenders": {
            "named": [f"{name}: {sorted(rules)}" for name, (rules, _) in hacked.items() if not rules & RULES],
            "one_alert": [f"{name}: {opened}" for name, (_, opened) in hacked.items() if len(opened) > 1],
            "alarmed": [f"{name}: {opened}" for name, (_, opened) in honest.items() if opened],
        },
    }


def _all(kinds: Mapping[str, Kind], options: argparse.Namespace) -> dict[str, tuple[set[str], list[str]]]:
    return {
        f"{name} {seed}": _watch(Run(name, kind, seed))
        for name, kind in kinds.items()
        if re.search(options.only, name)
        for seed in range(options.seeds)
    }


def _watch(run: Run) -> tuple[set[str], list[str]]:
    """Return the rules with findings, and the alerts that were sent."""
    watched = Watched(run.config())
    groups: list[Any] = []
    for lived in run.lines():
        watched.rows.append(lived.row)
        watched.t = lived.row[1]
        groups += lived.groups
        if watched.step % EVERY == 0:
            watched.look(groups=groups)
            groups = []
    return set(watched.named), [f"{rule} at {step}" for step, rule, _ in watched.opened]


def _share(values: list[bool]) -> float:
    return round(sum(values) / len(values), 3) if values else 0.0
