"""A run's notes: text that several people edit without overwriting each other unseen."""

from __future__ import annotations

from hashlib import sha256

from django.db import transaction
from django.utils import timezone

from controlplane.accounts.models import User
from runs import hints
from runs.models import Attempt, Run, RunEvent

LONGEST = 10_000
NOTED = "noted"


class Overtaken(Exception):
    """The notes were changed by another user in the meantime."""


def edition(text: str) -> str:
    """A short id of a text; a form sends it to say which text was edited."""
    return sha256(text.encode()).hexdigest()[:16]


@transaction.atomic
def write(run: Run, text: str, based_on: str, user: User) -> bool:
    """Save a run's notes. False: unchanged. Raises Overtaken unless the stored notes match `based_on`."""
    # Writers of events lock the attempt's row; that also serializes two users' notes.
    attempt = Attempt.objects.select_for_update().filter(run=run).latest("number")
    text = clean(text)
    stored = Run.objects.values_list("notes", flat=True).get(pk=run.pk)
    if text == stored:
        return False
    if based_on != edition(stored):
        raise Overtaken
    Run.objects.filter(pk=run.pk).update(notes=text)
    name = user.get_username()
    RunEvent.objects.create(
        run=run, attempt=attempt, at=timezone.now(), kind=NOTED, actor=name, data={"empty": not text}
    )
    transaction.on_commit(lambda: hints.changed(run.pk))
    return True


def clean(text: str) -> str:
    """The text with plain line feeds (browsers send carriage returns) and without zero bytes (PostgreSQL rejects
    them)."""
    return text.replace("\r\n", "\n").replace("\0", "").strip()[:LONGEST]


def last(run: Run) -> RunEvent | None:
    """The last change: its author and time."""
    return run.events.filter(kind=NOTED).order_by("-pk").first() if run.notes else None
