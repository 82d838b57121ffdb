"""Account management by admins: roles, disabling and enabling, limits. At least one admin always remains."""

from django.db import transaction
from django.shortcuts import get_object_or_404

from controlplane.platform.accounts import api_tokens
from controlplane.platform.accounts.models import Role, User, limits_raised, sign_in_changed


class NotAllowed(Exception):
    """Refusal of a change that would lock people out; the message says why."""


def set_role(user_id: int, role: str) -> User:
    """Set a user's role and return the user. Raises NotAllowed for the last admin."""
    with transaction.atomic():
        user = get_object_or_404(User, pk=user_id)
        if role != Role.ADMIN and _is_last_admin(user):
            raise NotAllowed("The last admin must keep this role; otherwise nobody could manage users.")
        user.role = role
        user.save(update_fields=["role"])
    return user


def set_active(user_id: int, by: User, *, active: bool) -> User:
    """Disable or enable an account, and return its user. Disabling an account blocks the user's next requests and
    revokes their API tokens permanently. Raises NotAllowed if it is the actor's own account or that of the last
    admin."""
    with transaction.atomic():
        user = get_object_or_404(User, pk=user_id)
        if not active and user.pk == by.pk:
            raise NotAllowed("You can't disable yourself; another admin can.")
        if not active and _is_last_admin(user):
            raise NotAllowed("The last admin can't be disabled.")
        user.is_active = active
        user.save(update_fields=["is_active"])
        user.sign_in_links.all().delete()
        if not active:
            api_tokens.revoke(user.api_tokens.all(), by)
    sign_in_changed.send(User, user_id=user.pk)
    return user


def save_limits(user: User) -> None:
    """Save the user's limits on active and queued runs, and announce the change so that queued runs can start."""
    with transaction.atomic():
        user.save(update_fields=["max_running", "max_queued"])
        transaction.on_commit(lambda: limits_raised.send(User), robust=True)


def _is_last_admin(user: User) -> bool:
    # Locked in a fixed order: two admins who demote each other at once must not both succeed.
    admins = User.objects.select_for_update().filter(role=Role.ADMIN, is_active=True).order_by("pk")
    return user.role == Role.ADMIN and all(admin.pk == user.pk for admin in admins)
