"""Renaming of rows. Links use ids and stay valid; a run's frozen spec keeps the name that it was launched with."""

from typing import Any

from django.db import IntegrityError, transaction

from controlplane.catalogue.versioned.parameter_forms import CONTROL
from controlplane.platform.accounts.models import User
from runs.engine.models import Run
from runs.engine.timeline import add_event
from runs.engine.trash.kinds import DeletableKind


class NameRefused(Exception):
    """The name can't be used; the message, for the form's field, says why."""


def rename(kind: DeletableKind, row: Any, name: str, user: User) -> bool:
    """Rename a row. Return False if it already has that name. Raises NameRefused if the name is not valid or taken, or
    the row has been deleted."""
    name = name.strip()
    if problem := _problem(kind, row, name):
        raise NameRefused(problem)
    with transaction.atomic():
        current_row = kind.model.objects.select_for_update().filter(pk=row.pk).first()
        if current_row is None:
            raise NameRefused(f"This {kind.label} has been deleted.")
        old_name, row.name = current_row.name, name
        if old_name == name:
            return False
        try:
            with transaction.atomic():
                row.save(update_fields=["name"])
        except IntegrityError:
            raise NameRefused(_name_taken(kind, name)) from None
        if isinstance(row, Run):
            add_event(row.latest(), "renamed", user.get_username(), **{"from": old_name, "to": name})
    return True


def _problem(kind: DeletableKind, row: Any, name: str) -> str:
    if not name:
        return "Enter a name."
    if len(name) > kind.longest_name:
        return f"A name may have at most {kind.longest_name} characters; this one has {len(name)}."
    if CONTROL.search(name):
        return "A name can't contain control characters."
    namesakes = kind.model.objects.filter(name=name).exclude(pk=row.pk)
    return _name_taken(kind, name) if kind.names_are_unique and namesakes.exists() else ""


def _name_taken(kind: DeletableKind, name: str) -> str:
    return f"Another {kind.label} is already named “{name}”. Choose another name."
