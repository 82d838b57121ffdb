"""Several runs of one launch: seeds, a small grid of settings, and the variations that they make."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

from django import forms

from runs.insight.comparing.comparison import MAX_RUNS
from runs.launch.new_run.fields.table import names_of

SEVERAL_FIELDS = names_of("Several runs: seeds and a grid")
MAX_GROUP_RUNS = MAX_RUNS
"""Maximum number of runs in a group: as many as a comparison shows."""
NOT_IN_A_GRID = frozenset({*SEVERAL_FIELDS, "key", "cloned_from", "name", "host", "priority", "sources"})

Axes = Sequence[tuple[str, list[str]]]


@dataclass(frozen=True)
class Variation:
    values: dict[str, str]
    """Field -> value, as the form sends it."""

    @property
    def label(self) -> str:
        return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in self.values.items())


def variations(axes: Axes) -> list[Variation]:
    names = [name for name, _ in axes]
    return [Variation(dict(zip(names, values, strict=True))) for values in product(*(values for _, values in axes))]


def names(fields: Mapping[str, forms.Field]) -> list[tuple[str, str]]:
    """List the name and label of each setting that a grid can vary: numbers and named choices."""
    return sorted(
        (name, str(field.label))
        for name, field in fields.items()
        if isinstance(field, (forms.IntegerField, forms.ChoiceField))
        and not isinstance(field, forms.ModelChoiceField)
        and name not in NOT_IN_A_GRID
    )


def read(values: Mapping[str, Any], fields: Mapping[str, forms.Field]) -> tuple[Axes, list[str]]:
    """Read the axes, and describe each problem: a line of the grid that can't be read, or too many runs."""
    seeds, first_seed = int(values.get("seeds") or 1), int(values.get("seed") or 0)
    axes: list[tuple[str, list[str]]] = []
    problems: list[str] = []
    for line in filter(None, map(str.strip, str(values.get("grid") or "").splitlines())):
        name, setting_values = _setting(line)
        if name in dict(axes):
            problems.append(f"“{name}” is listed twice.")
        elif name == "seed" and seeds > 1 and _can_vary(setting_values):
            problems.append("Enter seeds here or under Number of seeds, not both.")
        else:
            problems += _line_problems(line, name, setting_values, fields)
        axes.append((name, setting_values))
    if seeds > 1:
        axes.append(("seed", [str(first_seed + n) for n in range(seeds)]))
    runs = prod(max(1, len(setting_values)) for _, setting_values in axes)
    if runs > MAX_GROUP_RUNS:
        problems.append(f"This makes {runs} runs; the limit is {MAX_GROUP_RUNS}.")
    return axes, problems


def _setting(line: str) -> tuple[str, list[str]]:
    """Parse `Learning rate: 1e-6, 5e-6` into ("learning_rate", ["1e-6", "5e-6"])."""
    name, _, values = line.replace("=", ":", 1).partition(":")
    setting_values = [value.strip() for value in values.split(",") if value.strip()]
    return name.strip().lower().replace(" ", "_"), setting_values


def _can_vary(setting_values: list[str]) -> bool:
    return len(setting_values) > 1 and len(set(setting_values)) == len(setting_values)


def _line_problems(line: str, name: str, setting_values: list[str], fields: Mapping[str, forms.Field]) -> Iterator[str]:
    if not setting_values and name not in fields:
        yield f"“{line}” has no values. Enter a setting and its values, such as learning_rate: 1e-6, 5e-6"
    elif name not in fields or name in NOT_IN_A_GRID:
        yield f"A grid can’t vary “{name}”. Enter the name of a setting, such as learning_rate or num_generations."
    elif not _can_vary(setting_values):
        yield f"Enter two or more different values for “{name}”, separated by commas."
    else:
        for value in setting_values:
            try:
                fields[name].clean(value)
            except forms.ValidationError as error:
                yield f"“{value}” for {name}: {' '.join(error.messages)}"
