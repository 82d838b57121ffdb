"""The first person of an installation: an admin who comes in by a one-time link; there is no default password."""

from __future__ import annotations

from controlplane.accounts.models import Role, User


def ensure_first_admin() -> User:
    """The admin to make a sign-in link for; made when there is no user at all."""
    admin = User.objects.filter(role=Role.ADMIN, is_active=True).order_by("pk").first()
    if admin is None:
        admin, made = User.objects.get_or_create(username="admin", defaults={"role": Role.ADMIN})
        if made:
            admin.set_unusable_password()
        # Somebody at this machine's terminal owns the installation: an `admin` without rights gets them back.
        admin.role, admin.is_active = Role.ADMIN, True
        admin.save(update_fields=["password", "role", "is_active"])
    return admin
