"""Tagging and archiving of runs. Every change is recorded in the timeline."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.utils import timezone

from controlplane.platform.accounts.models import User
from runs.engine.models import Attempt, Run
from runs.engine.states import ACTIVE
from runs.engine.timeline import add_event
from workers.contract.run.jobs import SERVE

MAX_TAG_CHARS = 32
MAX_CHARS = 5_000
"""Length beyond which a list of tags is ignored."""
MAX_TAGS = 12
Change = Callable[[Run, Attempt], dict[str, Any]]
"""Function that returns a run's changed columns, or {} for no change."""


@dataclass(frozen=True)
class TagResult:
    """Numbers of runs that an action changed and left unchanged."""

    changed: int
    unchanged: int


def parse(text: str) -> list[str]:
    """Parse comma-separated tags. They become lower case, so that each has one spelling; overlong ones are omitted."""
    return [name for name in _names(text) if len(name) <= MAX_TAG_CHARS]


def too_long(text: str) -> str:
    """Describe the overlong tags, which `parse` omits, in a sentence; return "" if there are none."""
    long_tags = [f"“{name[:MAX_TAG_CHARS]}…”" for name in _names(text) if len(name) > MAX_TAG_CHARS]
    return f"{', '.join(long_tags)} not added: a tag may have at most {MAX_TAG_CHARS} characters." if long_tags else ""


def _names(text: str) -> list[str]:
    names = (" ".join(part.split()).lower() for part in re.split(r"[,;\n]", text[:MAX_CHARS]))
    return sorted({name for name in names if name})


def changed_tags(tags: Iterable[str], add: Iterable[str], remove: Iterable[str] = ()) -> list[str]:
    """Return the tags with some added and removed, without new ones beyond the limit."""
    kept_tags = set(tags) - set(remove)
    new_tags = sorted(set(add) - set(remove) - kept_tags)[: max(0, MAX_TAGS - len(kept_tags))]
    return sorted([*kept_tags, *new_tags])


def tag(run_ids: Iterable[str], user: User, add: Iterable[str], remove: Iterable[str] = ()) -> TagResult:
    add, remove = list(add), list(remove)

    def change(run: Run, attempt: Attempt) -> dict[str, Any]:
        tags = changed_tags(run.tags, add, remove)
        return {"tags": tags} if tags != run.tags else {}

    return _change_all(run_ids, "tagged", user, change)


def archive(run_ids: Iterable[str], user: User) -> TagResult:
    """Archive runs, except active ones and those whose model is being served."""

    def change(run: Run, attempt: Attempt) -> dict[str, Any]:
        must_stay = run.archived_at or attempt.status in ACTIVE or is_serving(run)
        return {} if must_stay else {"archived_at": timezone.now()}

    return _change_all(run_ids, "archived", user, change)


def is_serving(run: Run) -> bool:
    return run.jobs.filter(kind=SERVE, attempts__status__in=ACTIVE).exists()


def unarchive(run_ids: Iterable[str], user: User) -> TagResult:
    def change(run: Run, attempt: Attempt) -> dict[str, Any]:
        return {"archived_at": None} if run.archived_at else {}

    return _change_all(run_ids, "unarchived", user, change)


def _change_all(run_ids: Iterable[str], kind: str, user: User, change: Change) -> TagResult:
    """Change runs one by one, so that a bulk action never locks all of their rows."""
    outcomes = [_change(run_id, kind, user, change) for run_id in sorted(set(run_ids))]
    return TagResult(outcomes.count(True), outcomes.count(False))


@transaction.atomic
def _change(run_id: str, kind: str, user: User, change: Change) -> bool:
    # Writers of events lock the attempt's row; that also serializes two users' tags.
    attempt = Attempt.objects.select_for_update().filter(run=run_id).order_by("-number").first()
    if attempt is None:
        return False
    run = Run.objects.only("tags", "archived_at").filter(pk=run_id).first()
    columns = change(run, attempt) if run else {}
    if not columns:
        return False
    Run.objects.filter(pk=run_id).update(**columns)
    data = {"tags": columns["tags"]} if "tags" in columns else {}
    add_event(attempt, kind, user.get_username(), **data)
    return True
