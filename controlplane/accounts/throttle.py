"""Throttling of password guesses: failures are counted in the database, so all web processes see them."""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone

from controlplane.accounts.models import FailedSignIn

WINDOW = timedelta(minutes=10)
PER_NAME_AND_ADDRESS = 5
PER_ADDRESS = 30
PER_NAME = 50
"""Higher than the other limits: a distant attacker should not easily lock out a name's owner."""


def must_wait(name: str, address: str) -> bool:
    """Whether the next try is refused without checking its password."""
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
    """Forget failures after a success: they were the user's own mistakes."""
    FailedSignIn.objects.filter(name=_key(name), address=address).delete()


def _key(name: str) -> str:
    return name.casefold()[:150]
