"""Throttling of password guesses: failures are counted in the database, so all web processes see them."""

from datetime import timedelta

from django.utils import timezone

from controlplane.platform.accounts.models import FailedSignIn

WINDOW = timedelta(minutes=10)
PER_NAME_AND_ADDRESS = 5
PER_ADDRESS = 30
PER_NAME = 50
"""Failures per name from all addresses. The limit is higher, so that a remote attacker can't easily lock a user out."""


def begin_try(name: str, address: str) -> FailedSignIn | None:
    """Record an attempt before the password is checked, and return it; None if the password must not be checked.

    The attempt counts as a failure at once, so that concurrent attempts can't exceed the limit. Delete it after a
    success.
    """
    now = timezone.now()
    name, address = _normalized(name), address[:64]
    FailedSignIn.objects.filter(at__lt=now - WINDOW).delete()
    attempt = FailedSignIn.objects.create(name=name, address=address, at=now)
    recent = FailedSignIn.objects.filter(at__gt=now - WINDOW)
    allowed = (
        recent.filter(name=name, address=address).count() <= PER_NAME_AND_ADDRESS
        and recent.filter(address=address).count() <= PER_ADDRESS
        and recent.filter(name=name).count() <= PER_NAME
    )
    if allowed:
        return attempt
    attempt.delete()  # nothing was checked, so the wait must not get longer
    return None


def forget(name: str, address: str) -> None:
    """Delete the failures of this name and address after a success: they were the user's own mistakes."""
    FailedSignIn.objects.filter(name=_normalized(name), address=address[:64]).delete()


def _normalized(name: str) -> str:
    return name.casefold()[:150]
