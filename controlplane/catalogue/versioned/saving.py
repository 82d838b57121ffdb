"""Storage of a composition as a version of a new item, a changed item or a clone; archiving of items.

Only admins save code; operators may use code that an admin has saved, unchanged.
"""

import json
from collections.abc import Iterable
from typing import Any, ClassVar, Self, TypeVar

from django.db import transaction

from controlplane.catalogue.versioned.kind import ItemKind
from controlplane.catalogue.versioned.models import Item, Version
from controlplane.catalogue.versioned.queries import existing_versions, with_free_name
from controlplane.platform import deletable
from controlplane.platform.accounts.models import User

VersionT = TypeVar("VersionT", bound=Version)


class Composition:
    """Content of a version."""

    kind: ClassVar[ItemKind]

    @classmethod
    def of(cls, version: Any) -> Self:
        raise NotImplementedError

    def columns(self) -> dict[str, Any]:
        """Return the columns of a version that stores this content."""
        raise NotImplementedError

    def same_as(self, composition: "Composition") -> bool:
        """Return whether both are the same to runs, for which missing fields and parameters have their defaults."""
        return self._full() == composition._full()

    def _full(self) -> dict[str, Any]:
        columns, parts = self.columns(), self.kind.parts
        return columns | {parts: [self.kind.full(part) for part in columns[parts]]}


def make(model: type[VersionT], name: str, content: Composition, **columns: Any) -> VersionT:
    """Create an item with its first version, and return the version. `columns` are the item's owner and description,
    and the version's note. Raises IntegrityError if the name is taken."""
    note, owner = columns.pop("note", ""), columns.get("owner")
    with transaction.atomic():
        item = model.items()._default_manager.create(name=name, **columns)
        return _add(model, item, 1, content, owner, note)


def save(
    model: type[VersionT], item: Item, content: Composition, *, by: Any = None, note: str = ""
) -> tuple[VersionT, bool]:
    """Save content as a new version unless the newest one has it. Return the version and whether this call created
    it."""
    with transaction.atomic():
        # Locked, so that the second of two concurrent saves sees the first one's version.
        model.items()._default_manager.select_for_update().get(pk=item.pk)
        newest = model._default_manager.filter(**{model.kind.item: item}).order_by("-number")[0]
        if content.same_as(content.of(newest)):
            return newest, False
        return _add(model, item, newest.number + 1, content, by, note), True


def clone(version: VersionT, content: Composition, owner: Any) -> VersionT:
    """Create an item with a version's content under the next unused name, and return its version."""
    item, note = version.item, f"Cloned from {version}."

    def save(name: str) -> VersionT:
        return make(type(version), name, content, owner=owner, description=item.description, note=note)

    return with_free_name(version.items(), f"{item.name[:75]} copy", save)


def set_archived(item: Item, archived: bool) -> bool:
    """Archive or unarchive an item, and return whether anything changed. An archived item isn't offered for new runs;
    runs that used it are unaffected."""
    return deletable.set_archived(item, archived, act="Archived" if archived else "Unarchived")


def code_refused(model: type[Version]) -> str:
    return f"Only an admin can add or change code. You can reuse code from a saved {model.kind.name} unchanged."


def may_use_part(model: type[Version], user: User, spec: Any) -> bool:
    """Return whether a user may save and try a part (both run its code); its name and weight don't matter."""
    entry = model.kind.library.get(spec.function)
    return user.may_administer or entry is None or not entry.admin_only or is_saved(model, spec)


def is_saved(model: type[Version], spec: Any) -> bool:
    """Return whether any version has this function with the same parameters, so that an admin has saved it."""
    lists: Iterable[Any] = existing_versions(model).values_list(model.kind.parts, flat=True).iterator(chunk_size=200)
    parts = (part for parts in lists if isinstance(parts, list) for part in parts if isinstance(part, dict))
    same_function = (part for part in parts if part.get("function") == spec.function)

    def content(params: dict[str, Any]) -> str:
        return json.dumps(model.kind.full_params(spec.function, params), sort_keys=True)

    return content(spec.params) in (content(part.get("params") or {}) for part in same_function)


def _add(model: type[VersionT], item: Item, number: int, content: Composition, by: Any, note: str) -> VersionT:
    columns = {model.kind.item: item, **content.columns()}
    return model._default_manager.create(number=number, note=note[:200], created_by=by, **columns)
