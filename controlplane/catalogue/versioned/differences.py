"""Differences between a version and the previous one."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from controlplane.catalogue.versioned import line_diff
from controlplane.catalogue.versioned.kind import ItemKind
from controlplane.catalogue.versioned.models import Version
from controlplane.platform.templatetags.figures import setting


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
    settings: Callable[[Any, Any], list[Difference]] = lambda old_specs, new_specs: [],
) -> list[Difference]:
    """Return the added, removed, changed or reordered parts; a part with another function is a different one.

    `suffix` returns the text after a part's title. `settings` returns the changes other than to parameters.
    """

    def title(spec: Any) -> str:
        return after.kind.title(spec.function) + suffix(spec)

    old_specs, new_specs = ({spec.name: spec for spec in version.specs} for version in (before, after))
    changes = []
    for name, spec in new_specs.items():
        if name not in old_specs or old_specs[name].function != spec.function:
            changes.append(Difference(name, title(old_specs[name]) if name in old_specs else "", title(spec)))
        else:
            changes += settings(old_specs[name], spec) + _params(after.kind, old_specs[name], spec)
    changes += [Difference(name, title(spec), "") for name, spec in old_specs.items() if name not in new_specs]
    common_names = [name for name in old_specs if name in new_specs]
    if not changes and common_names != [name for name in new_specs if name in old_specs]:
        changes.append(Difference("order", ", ".join(old_specs), ", ".join(new_specs)))
    return changes


def setting_difference(name: str, old_value: Any, new_value: Any) -> list[Difference]:
    return [Difference(name, setting(old_value), setting(new_value))] if old_value != new_value else []


def _params(kind: ItemKind, old_spec: Any, new_spec: Any) -> list[Difference]:
    old_params, new_params = (kind.full_params(spec.function, spec.params) for spec in (old_spec, new_spec))
    return [
        _param(f"{new_spec.name} {name.replace('_', ' ')}", old_params.get(name), new_params.get(name))
        for name in dict.fromkeys([*old_params, *new_params])
        if old_params.get(name) != new_params.get(name)
    ]


def _param(name: str, old_value: Any, new_value: Any) -> Difference:
    old_text, new_text = (value if isinstance(value, str) else setting(value) for value in (old_value, new_value))
    if all("\n" not in value and len(value) <= 80 for value in (old_text, new_text)):
        return Difference(name, old_text, new_text)
    return Difference(name, lines=line_diff.between(old_text, new_text))
