"""What people put on runs to find them again: tags, and whether they are put away. Each act is in the timeline."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.utils import timezone

from controlplane.accounts.models import User
from runs import hints
from runs.models import Attempt, Run, RunEvent
from runs.states import ACTIVE

LONGEST_TAG = 32
MOST_TAGS = 12
Change = Callable[[Run, Attempt], dict[str, Any]]
"""What becomes of a run's columns; nothing: it stays as it is."""


@dataclass(frozen=True)
class Done:
    """How many runs an act changed, and how many it left as they were."""

    changed: int
    left: int


def words(text: str) -> list[str]:
    """The tags in what somebody typed: parted by commas, each in small letters so that it has one spelling."""
    found = (" ".join(part.split())[:LONGEST_TAG].strip().lower() for part in re.split(r"[,;\n]", text))
    return sorted({word for word in found if word})


def tagged(tags: Iterable[str], add: Iterable[str], remove: Iterable[str] = ()) -> list[str]:
    """A run's tags after an act; what would be too many is left out."""
    kept = set(tags) - set(remove)
    new = sorted(set(add) - set(remove) - kept)[: max(0, MOST_TAGS - len(kept))]
    return sorted([*kept, *new])


def tag(run_ids: Iterable[str], user: User, add: Iterable[str], remove: Iterable[str] = ()) -> Done:
    add, remove = list(add), list(remove)

    def change(run: Run, attempt: Attempt) -> dict[str, Any]:
        tags = tagged(run.tags, add, remove)
        return {"tags": tags} if tags != run.tags else {}

    return _each(run_ids, "tagged", user, change)


def archive(run_ids: Iterable[str], user: User) -> Done:
    """Put runs away. One that is going stays in sight."""

    def change(run: Run, attempt: Attempt) -> dict[str, Any]:
        return {} if run.archived_at or attempt.status in ACTIVE else {"archived_at": timezone.now()}

    return _each(run_ids, "archived", user, change)


def unarchive(run_ids: Iterable[str], user: User) -> Done:
    def change(run: Run, attempt: Attempt) -> dict[str, Any]:
        return {"archived_at": None} if run.archived_at else {}

    return _each(run_ids, "unarchived", user, change)


def _each(run_ids: Iterable[str], kind: str, user: User, change: Change) -> Done:
    """Each run by itself: no act on several holds the rows of all of them."""
    changed = [_change(run_id, kind, user, change) for run_id in sorted(set(run_ids))]
    return Done(changed.count(True), changed.count(False))


@transaction.atomic
def _change(run_id: str, kind: str, user: User, change: Change) -> bool:
    # The attempt's row is what writers of events hold; it also keeps two people's tags apart.
    attempt = Attempt.objects.select_for_update().filter(run=run_id).order_by("-number").first()
    if attempt is None:
        return False
    run = Run.objects.only("tags", "archived_at").get(pk=run_id)
    columns = change(run, attempt)
    if not columns:
        return False
    Run.objects.filter(pk=run_id).update(**columns)
    data = {"tags": columns["tags"]} if "tags" in columns else {}
    RunEvent.objects.create(
        run_id=run_id, attempt=attempt, at=timezone.now(), kind=kind, actor=user.get_username(), data=data
    )
    transaction.on_commit(lambda: hints.changed(run_id))
    return True
