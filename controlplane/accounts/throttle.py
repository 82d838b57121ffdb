"""Slows down whoever guesses passwords: failures are counted in the database, so every web process sees them."""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone

from controlplane.accounts.models import FailedSignIn

WINDOW = timedelta(minutes=10)
PER_NAME_AND_ADDRESS = 5
PER_ADDRESS = 30
PER_NAME = 50
"""Higher than the two others: somebody far away who guesses at a name shall not easily keep its owner out."""


def must_wait(name: str, address: str) -> bool:
    """Whether a further try is refused before its password is even looked at."""
    recent = FailedSignIn.objects.filter(at__gt=timezone.now() - WINDOW)
    name = _key(name)
    return (
        recent.filter(name=name, address=address).count() >= PER_NAME_AND_ADDRESS
        or recent.filter(address=address).count() >= PER_ADDRESS
        or recent.filter(name=name).count() >= PER_NAME
    )


def note_failure(name: str, address: str) -> None:
    now = timezone.now()
    FailedSignIn.objects.filter(at__lt=now - WINDOW).delete()
    FailedSignIn.objects.create(name=_key(name), address=address, at=now)


def forget(name: str, address: str) -> None:
    """After a success: the failures before it were this person's own slips."""
    FailedSignIn.objects.filter(name=_key(name), address=address).delete()


def _key(name: str) -> str:
    return name.casefold()[:150]
