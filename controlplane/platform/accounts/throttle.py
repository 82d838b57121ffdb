"""Throttling of password guesses: failures are counted in the database, so all web processes see them."""

from datetime import timedelta

from django.utils import timezone

from controlplane.platform.accounts.models import FailedSignIn

WINDOW = timedelta(minutes=10)
PER_NAME_AND_ADDRESS = 5
PER_ADDRESS = 30
PER_NAME = 50
"""Higher than the other limits: a distant attacker should not easily lock out a name's owner."""


def begin_try(name: str, address: str) -> FailedSignIn | None:
    """Begin a try, before a password is checked. None: it must not be checked.

    The try counts as a failure at once, so that many at the same time can't exceed the limit. Delete it after a
    success.
    """
    now = timezone.now()
    name, address = _key(name), address[:64]
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
    """Delete failures after a success: they were the user's own mistakes."""
    FailedSignIn.objects.filter(name=_key(name), address=address[:64]).delete()


def _key(name: str) -> str:
    return name.casefold()[:150]
