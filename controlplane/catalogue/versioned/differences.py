"""Differences between a version and the previous one."""

from collections.abc import Callable
from dataclasses import dataclass
from difflib import unified_diff
from typing import Any

from controlplane.catalogue.versioned.kind import ItemKind
from controlplane.catalogue.versioned.models import Version
from controlplane.platform.templatetags.figures import setting

MAX_LINES = 200
"""Maximum number of diff lines shown for one parameter."""


@dataclass(frozen=True)
class Difference:
    name: str
    before: str = ""
    after: str = ""
    lines: tuple[str, ...] = ()
    """Diff lines of a multi-line parameter, each starting with +, - or a space."""


def part_differences(
    before: Version,
    after: Version,
    *,
    suffix: Callable[[Any], str] = lambda spec: "",
    settings: Callable[[Any, Any], list[Difference]] = lambda old, new: [],
) -> list[Difference]:
    """Return the differences between parts of the same name; a part with another function is a different one.

    `suffix`: returns the text after a part's title. `settings`: returns changes other than to parameters.
    """

    def title(spec: Any) -> str:
        return after.kind.title(spec.function) + suffix(spec)

    old, new = ({spec.name: spec for spec in version.specs} for version in (before, after))
    changes = []
    for name, spec in new.items():
        if name not in old or old[name].function != spec.function:
            changes.append(Difference(name, title(old[name]) if name in old else "", title(spec)))
        else:
            changes += settings(old[name], spec) + _params(after.kind, old[name], spec)
    changes += [Difference(name, title(spec), "") for name, spec in old.items() if name not in new]
    common = [name for name in old if name in new]
    if not changes and common != [name for name in new if name in old]:
        changes.append(Difference("order", ", ".join(old), ", ".join(new)))
    return changes


def setting_difference(name: str, old: Any, new: Any) -> list[Difference]:
    return [Difference(name, setting(old), setting(new))] if old != new else []


def _params(kind: ItemKind, old: Any, new: Any) -> list[Difference]:
    first, second = (kind.full_params(spec.function, spec.params) for spec in (old, new))
    return [
        _param(f"{new.name} {name.replace('_', ' ')}", first.get(name), second.get(name))
        for name in dict.fromkeys([*first, *second])
        if first.get(name) != second.get(name)
    ]


def _param(name: str, old: Any, new: Any) -> Difference:
    first, second = (value if isinstance(value, str) else setting(value) for value in (old, new))
    if all("\n" not in value and len(value) <= 80 for value in (first, second)):
        return Difference(name, first, second)
    lines = list(unified_diff(first.splitlines(), second.splitlines(), lineterm="", n=2))[2:]
    if len(lines) > MAX_LINES:
        lines = [*lines[:MAX_LINES], f" … {len(lines) - MAX_LINES} more lines"]
    return Difference(name, lines=tuple(lines))
