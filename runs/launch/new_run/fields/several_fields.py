"""The fields that make several runs of one form: seeds, a small grid of settings, and how many run at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

from django import forms

from runs.insight.comparing.comparison import MAX_RUNS

SEVERAL_FIELDS = ("seeds", "at_once", "grid")
MOST = MAX_RUNS
"""Runs of a group: as many as a comparison shows."""
NOT_IN_A_GRID = frozenset({*SEVERAL_FIELDS, "key", "cloned_from", "name", "host", "priority"})


EXAMPLE = "learning_rate: 1e-6, 5e-6\nnum_generations: 4, 8"


class SeveralFields(forms.Form):
    axes: Sequence[tuple[str, list[str]]] = ()
    """Each field that the runs of a valid form differ by, and its values; empty for a single run."""
    seeds = forms.IntegerField(
        label="Number of seeds",
        required=False,
        min_value=1,
        max_value=MOST,
        help_text="How many runs each setting gets: with this form's seed, the next one, and so on.",
    )
    grid = forms.CharField(
        label="Grid",
        required=False,
        max_length=2000,
        help_text=f"A setting and its values on each line. Every combination is launched, at most {MOST} runs.",
        widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false", "placeholder": EXAMPLE}),
    )
    at_once = forms.IntegerField(
        label="Runs at a time",
        required=False,
        min_value=1,
        max_value=MOST,
        help_text="The others wait. Leave empty for no bound.",
    )

    @property
    def grid_names(self) -> list[tuple[str, str]]:
        """The name and the label of each setting whose values can be written down: numbers and named choices."""
        return sorted(
            (name, str(field.label))
            for name, field in self.fields.items()
            if isinstance(field, (forms.IntegerField, forms.ChoiceField))
            and not isinstance(field, forms.ModelChoiceField)
            and name not in NOT_IN_A_GRID
        )

    @property
    def variations(self) -> list[Variation]:
        """What the runs of a valid form differ by; [] for a single run."""
        names = [name for name, _ in self.axes]
        every = product(*(given for _, given in self.axes)) if self.axes and self.is_valid() else ()
        return [Variation(dict(zip(names, each, strict=True))) for each in every]

    def check_several(self, values: Mapping[str, Any]) -> None:
        """Read the axes. Add an error for each line of the grid that can't be read, and for too many runs."""
        seeds, first = int(values.get("seeds") or 1), int(values.get("seed") or 0)
        axes: list[tuple[str, list[str]]] = []
        for line in _lines(values.get("grid")):
            name, given = _setting(line)
            if not given and name not in self.fields:
                self.add_error("grid", f"“{line}”: write a setting and its values, such as {EXAMPLE.splitlines()[0]}")
            elif name not in self.fields or name in NOT_IN_A_GRID:
                self.add_error(
                    "grid", f"There is no setting “{name}”. Use its name, such as learning_rate or num_generations."
                )
            elif name in dict(axes):
                self.add_error("grid", f"“{name}” is there twice.")
            elif len(given) < 2 or len(set(given)) < len(given):
                self.add_error("grid", f"Give “{name}” two different values or more, with commas between them.")
            elif name == "seed" and seeds > 1:
                self.add_error("grid", "Give seeds here or by their number, not both.")
            else:
                self._check_values(name, given)
            axes.append((name, given))
        if seeds > 1:
            axes.append(("seed", [str(first + n) for n in range(seeds)]))
        self.axes = axes
        runs = prod(max(1, len(given)) for _, given in axes)
        if runs > MOST:
            self.add_error("grid", f"These are {runs} runs; a group has at most {MOST}.")

    def _check_values(self, name: str, given: list[str]) -> None:
        for value in given:
            try:
                self.fields[name].clean(value)
            except forms.ValidationError as error:
                self.add_error("grid", f"“{value}” for {name}: {' '.join(error.messages)}")


@dataclass(frozen=True)
class Variation:
    """One run of a group."""

    values: dict[str, str]
    """Form field -> what is sent."""

    @property
    def words(self) -> str:
        return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in self.values.items())


def _lines(grid: Any) -> list[str]:
    return [line.strip() for line in str(grid or "").splitlines() if line.strip()]


def _setting(line: str) -> tuple[str, list[str]]:
    """`Learning rate: 1e-6, 5e-6` -> ("learning_rate", ["1e-6", "5e-6"])"""
    name, _, values = line.replace("=", ":", 1).partition(":")
    given = [value.strip() for value in values.split(",") if value.strip()]
    return name.strip().lower().replace(" ", "_"), given
