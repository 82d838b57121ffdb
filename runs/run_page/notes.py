"""A run's notes: a text that several people edit, where nobody's words go without being seen."""

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
    """Somebody has changed the notes since they were read."""


def edition(text: str) -> str:
    """Names a text; a form says with it what its own was made of."""
    return sha256(text.encode()).hexdigest()[:16]


@transaction.atomic
def write(run: Run, text: str, based_on: str, user: User) -> bool:
    """Put the notes of a run; False: they were so already. Raises Overtaken when others stand there than `based_on`."""
    # The attempt's row is what writers of events hold; it also keeps two people's notes apart.
    attempt = Attempt.objects.select_for_update().filter(run=run).latest("number")
    text = clean(text)
    here = Run.objects.values_list("notes", flat=True).get(pk=run.pk)
    if text == here:
        return False
    if based_on != edition(here):
        raise Overtaken
    Run.objects.filter(pk=run.pk).update(notes=text)
    name = user.get_username()
    RunEvent.objects.create(
        run=run, attempt=attempt, at=timezone.now(), kind=NOTED, actor=name, data={"empty": not text}
    )
    transaction.on_commit(lambda: hints.changed(run.pk))
    return True


def clean(text: str) -> str:
    """Browsers send lines with a carriage return, and PostgreSQL takes no zero byte."""
    return text.replace("\r\n", "\n").replace("\0", "").strip()[:LONGEST]


def last(run: Run) -> RunEvent | None:
    """Who wrote them, and when."""
    return run.events.filter(kind=NOTED).order_by("-pk").first() if run.notes else None
