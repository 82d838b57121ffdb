"""Throttling of guesses of passwords and join codes, counted in the database, so that all web processes see them."""

from datetime import timedelta

from django.utils import timezone

from controlplane.platform.accounts.models import FailedSignIn

WINDOW = timedelta(minutes=10)
PER_NAME_AND_ADDRESS = 5
PER_ADDRESS = 30
PER_NAME = 50
"""Maximum failures per name from all addresses: higher, so that a remote attacker can't easily lock a user out."""


def begin_try(name: str, address: str) -> FailedSignIn | None:
    """Record an attempt before the password is checked, and return it, or None if the password must not be checked.

    The attempt counts as a failure at once, so that concurrent attempts can't exceed the limit. Delete it after a
    success.
    """
    now = timezone.now()
    name = _normalized(name)
    FailedSignIn.objects.filter(at__lt=now - WINDOW).delete()
    attempt = FailedSignIn.objects.create(name=name, address=address, at=now)
    recent_failures = FailedSignIn.objects.filter(at__gt=now - WINDOW)
    is_allowed = (
        recent_failures.filter(name=name, address=address).count() <= PER_NAME_AND_ADDRESS
        and recent_failures.filter(address=address).count() <= PER_ADDRESS
        and recent_failures.filter(name=name).count() <= PER_NAME
    )
    if is_allowed:
        return attempt
    attempt.delete()  # nothing was checked, so the wait must not get longer
    return None


def forget(name: str, address: str) -> None:
    """Delete the failures of this name and address after a success, since they were the user's own mistakes."""
    FailedSignIn.objects.filter(name=_normalized(name), address=address).delete()


def _normalized(name: str) -> str:
    return name.casefold()[:150]
