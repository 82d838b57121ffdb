"""What one version of a config changed of the one before it."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import unified_diff
from typing import Any

from controlplane.rewards.models import RewardVersion
from controlplane.rewards.reading import specs
from controlplane.templatetags.figures import setting
from workers.contract import RewardSpec
from workers.rewards import LIBRARY

MOST_LINES = 200
"""Of a text's changed lines."""


@dataclass(frozen=True)
class Difference:
    what: str
    before: str = ""
    after: str = ""
    lines: tuple[str, ...] = ()
    """Of a text with several lines: as a diff has them, with +, - or a blank before each."""


def differences(before: RewardVersion, after: RewardVersion) -> list[Difference]:
    """By the components' names; one whose function has changed is another one."""
    old = {spec.name: spec for spec in specs(before)}
    new = {spec.name: spec for spec in specs(after)}
    found = []
    for name, spec in new.items():
        if name not in old or old[name].function != spec.function:
            found.append(Difference(name, old[name].function if name in old else "", _words(spec)))
        else:
            found += _changed(old[name], spec)
    found += [Difference(name, _words(spec), "") for name, spec in old.items() if name not in new]
    kept = [name for name in old if name in new]
    if not found and kept != [name for name in new if name in old]:
        found.append(Difference("order", ", ".join(old), ", ".join(new)))
    for what, column in (("aggregation", "aggregation"), ("failure threshold", "failed_share")):
        if getattr(before, column) != getattr(after, column):
            found.append(Difference(what, setting(getattr(before, column)), setting(getattr(after, column))))
    return found


def _words(spec: RewardSpec) -> str:
    reward = LIBRARY.get(spec.function)
    return f"{reward.title if reward else spec.function} × {setting(spec.weight)}"


def _changed(old: RewardSpec, new: RewardSpec) -> list[Difference]:
    found = []
    if old.weight != new.weight:
        found.append(Difference(f"{new.name} weight", setting(old.weight), setting(new.weight)))
    reward = LIBRARY.get(new.function)
    defaults = reward.defaults() if reward else {}
    first, second = defaults | old.params, defaults | new.params
    for name in dict.fromkeys([*first, *second]):
        if first.get(name) != second.get(name):
            found.append(_param(f"{new.name} {name.replace('_', ' ')}", first.get(name), second.get(name)))
    return found


def _param(what: str, old: Any, new: Any) -> Difference:
    first, second = (value if isinstance(value, str) else setting(value) for value in (old, new))
    if all("\n" not in text and len(text) <= 80 for text in (first, second)):
        return Difference(what, first, second)
    lines = list(unified_diff(first.splitlines(), second.splitlines(), lineterm="", n=2))[2:]
    more = [f" … {len(lines) - MOST_LINES} more lines"] if len(lines) > MOST_LINES else []
    return Difference(what, lines=(*lines[:MOST_LINES], *more))
