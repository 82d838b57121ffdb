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
MOST = MAX_RUNS
"""Runs of a group: as many as a comparison shows."""
NOT_IN_A_GRID = frozenset({*SEVERAL_FIELDS, "key", "cloned_from", "name", "host", "priority"})

Axes = Sequence[tuple[str, list[str]]]
"""Fields, each with its values."""


@dataclass(frozen=True)
class Variation:
    """One run of a group."""

    values: dict[str, str]
    """Field -> value, as it is sent."""

    @property
    def label(self) -> str:
        return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in self.values.items())


def variations(axes: Axes) -> list[Variation]:
    names = [name for name, _ in axes]
    return [Variation(dict(zip(names, values, strict=True))) for values in product(*(values for _, values in axes))]


def names(fields: Mapping[str, forms.Field]) -> list[tuple[str, str]]:
    """List the name and the label of each setting whose values can be written down: numbers and named choices."""
    return sorted(
        (name, str(field.label))
        for name, field in fields.items()
        if isinstance(field, (forms.IntegerField, forms.ChoiceField))
        and not isinstance(field, forms.ModelChoiceField)
        and name not in NOT_IN_A_GRID
    )


def read(values: Mapping[str, Any], fields: Mapping[str, forms.Field]) -> tuple[Axes, list[str]]:
    """Read the axes, and a sentence for each line of the grid that can't be read and for too many runs."""
    seeds, first = int(values.get("seeds") or 1), int(values.get("seed") or 0)
    axes: list[tuple[str, list[str]]] = []
    problems: list[str] = []
    for line in filter(None, map(str.strip, str(values.get("grid") or "").splitlines())):
        name, texts = _setting(line)
        if name in dict(axes):
            problems.append(f"“{name}” is there twice.")
        elif name == "seed" and seeds > 1 and _can_vary(texts):
            problems.append("Give seeds here or by their number, not both.")
        else:
            problems += _line_problems(line, name, texts, fields)
        axes.append((name, texts))
    if seeds > 1:
        axes.append(("seed", [str(first + n) for n in range(seeds)]))
    runs = prod(max(1, len(texts)) for _, texts in axes)
    if runs > MOST:
        problems.append(f"These are {runs} runs; a group has at most {MOST}.")
    return axes, problems


def _setting(line: str) -> tuple[str, list[str]]:
    """Parse `Learning rate: 1e-6, 5e-6` into ("learning_rate", ["1e-6", "5e-6"])."""
    name, _, values = line.replace("=", ":", 1).partition(":")
    texts = [value.strip() for value in values.split(",") if value.strip()]
    return name.strip().lower().replace(" ", "_"), texts


def _can_vary(texts: list[str]) -> bool:
    return len(texts) > 1 and len(set(texts)) == len(texts)


def _line_problems(line: str, name: str, texts: list[str], fields: Mapping[str, forms.Field]) -> Iterator[str]:
    if not texts and name not in fields:
        yield f"“{line}”: write a setting and its values, such as learning_rate: 1e-6, 5e-6"
    elif name not in fields or name in NOT_IN_A_GRID:
        yield f"There is no setting “{name}”. Use its name, such as learning_rate or num_generations."
    elif not _can_vary(texts):
        yield f"Give “{name}” two different values or more, with commas between them."
    else:
        for value in texts:
            try:
                fields[name].clean(value)
            except forms.ValidationError as error:
                yield f"“{value}” for {name}: {' '.join(error.messages)}"
