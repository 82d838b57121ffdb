"""The changes between a version of a config and the previous one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import unified_diff
from typing import Any

from controlplane.rewards.models import RewardVersion
from controlplane.rewards.reading import specs
from controlplane.templatetags.figures import setting
from workers.contract import RewardSpec
from workers.rewards import LIBRARY
from workers.rewards.parameters import Described

MOST_LINES = 200
"""Changed lines of a text to show."""


@dataclass(frozen=True)
class Difference:
    what: str
    before: str = ""
    after: str = ""
    lines: tuple[str, ...] = ()
    """Diff lines of a multi-line text, with +, - or a blank in front."""


def differences(before: RewardVersion, after: RewardVersion) -> list[Difference]:
    """Compare components by name; one whose function changed counts as another one."""
    old = {spec.name: spec for spec in specs(before)}
    new = {spec.name: spec for spec in specs(after)}
    changes = []
    for name, spec in new.items():
        if name not in old or old[name].function != spec.function:
            changes.append(Difference(name, old[name].function if name in old else "", _words(spec)))
        else:
            changes += _changed(old[name], spec)
    changes += [Difference(name, _words(spec), "") for name, spec in old.items() if name not in new]
    common = [name for name in old if name in new]
    if not changes and common != [name for name in new if name in old]:
        changes.append(Difference("order", ", ".join(old), ", ".join(new)))
    for what, column in (("aggregation", "aggregation"), ("failure threshold", "failed_share")):
        if getattr(before, column) != getattr(after, column):
            changes.append(Difference(what, setting(getattr(before, column)), setting(getattr(after, column))))
    return changes


def changed_params(
    what: str, entry: Described | None, old: Mapping[str, Any], new: Mapping[str, Any]
) -> list[Difference]:
    """Of a part named `what`; missing parameters are the entry's defaults."""
    defaults = entry.defaults() if entry else {}
    first, second = defaults | dict(old), defaults | dict(new)
    return [
        _param(f"{what} {name.replace('_', ' ')}", first.get(name), second.get(name))
        for name in dict.fromkeys([*first, *second])
        if first.get(name) != second.get(name)
    ]


def _words(spec: RewardSpec) -> str:
    reward = LIBRARY.get(spec.function)
    turns = ", each turn" if spec.per_turn else ""
    return f"{reward.title if reward else spec.function} × {setting(spec.weight)}{turns}"


def _scored(spec: RewardSpec) -> str:
    return "each turn" if spec.per_turn else "the whole completion"


def _changed(old: RewardSpec, new: RewardSpec) -> list[Difference]:
    changes = []
    if old.weight != new.weight:
        changes.append(Difference(f"{new.name} weight", setting(old.weight), setting(new.weight)))
    if old.per_turn != new.per_turn:
        changes.append(Difference(f"{new.name} scores", _scored(old), _scored(new)))
    return changes + changed_params(new.name, LIBRARY.get(new.function), old.params, new.params)


def _param(what: str, old: Any, new: Any) -> Difference:
    first, second = (value if isinstance(value, str) else setting(value) for value in (old, new))
    if all("\n" not in text and len(text) <= 80 for text in (first, second)):
        return Difference(what, first, second)
    lines = list(unified_diff(first.splitlines(), second.splitlines(), lineterm="", n=2))[2:]
    more = [f" … {len(lines) - MOST_LINES} more lines"] if len(lines) > MOST_LINES else []
    return Difference(what, lines=(*lines[:MOST_LINES], *more))
