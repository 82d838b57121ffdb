"""The New run page's form: the launch's choices, shown as cards and folds.

The fields validate single values; preflight judges whether the launch makes sense.
"""

from collections.abc import Iterable
from typing import Any

from django import forms

from runs.launch.new_run.choices import LaunchChoices
from runs.launch.new_run.fields import advanced_fields, grid
from runs.launch.new_run.fields.table import FOLDED_CARDS, names_of


class LaunchForm(LaunchChoices):
    tips = True
    """True to put help behind a "?", which leaves room for the choices."""

    @property
    def main(self) -> list[forms.BoundField]:
        return self._bound(names_of("main"))

    @property
    def atropos_fields(self) -> list[forms.BoundField]:
        return self._bound(names_of("atropos"))

    @property
    def episode_limits_fold(self) -> dict[str, Any]:
        return self._fold("Limits of an episode", names_of("episode")) | {"quiet": True}

    @property
    def folds(self) -> list[dict[str, Any]]:
        """The folds of the Training card. A fold is open if it has errors or changes made by a fix."""
        return [self._fold(title, names_of(title)) for title in FOLDED_CARDS]

    @property
    def advanced(self) -> dict[str, list[str]]:
        """Group -> the names of its GRPOConfig arguments."""
        groups: dict[str, list[str]] = {}
        for group, name, _ in advanced_fields.fields(self.schema):
            groups.setdefault(group, []).append(name)
        return groups

    @property
    def advanced_folds(self) -> list[dict[str, Any]]:
        return [self._fold(group, names) | {"quiet": True} for group, names in self.advanced.items()]

    @property
    def opens_advanced(self) -> bool:
        return any(fold["open"] for fold in self.advanced_folds)

    @property
    def grid_names(self) -> list[tuple[str, str]]:
        return grid.names(self.fields)

    def _bound(self, names: Iterable[str]) -> list[forms.BoundField]:
        return [self[name] for name in names]

    def _fold(self, title: str, names: Iterable[str]) -> dict[str, Any]:
        fields = self._bound(names)
        has_errors = self.is_bound and any(field.errors for field in fields)
        has_changes = any(hasattr(field.field, "changed_from") for field in fields)  # by a fix, see fixing.mark
        return {"title": title, "fields": fields, "open": has_errors or has_changes}
