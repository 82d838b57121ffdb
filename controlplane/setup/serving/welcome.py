"""The first admin, and the messages that `up` and `demo` print once the web responds."""

from collections.abc import Callable

from django.conf import settings

from controlplane.platform.accounts.models import Role, User
from controlplane.platform.accounts.onetime import make_link
from controlplane.setup.serving.serving import RunningServices
from workers.contract.wire.joining import is_loopback


def owner() -> User:
    """Return the admin account of the user at this terminal, which is created if there is no active admin.

    It has no password at first: the first sign-in uses a one-time link.
    """
    admin = User.objects.filter(role=Role.ADMIN, is_active=True).order_by("pk").first()
    if admin is None:
        admin, is_new = User.objects.get_or_create(username="admin", defaults={"role": Role.ADMIN})
        if is_new:
            admin.set_unusable_password()
        # The user at this machine's terminal owns the installation, so a demoted or disabled `admin` is restored.
        admin.role, admin.is_active = Role.ADMIN, True
        admin.save(update_fields=["password", "role", "is_active"])
    return admin


def show_address(serving: RunningServices, report: Callable[[str], None], *, to: str = "") -> None:
    """Print the web's address, and a sign-in link to the page `to` while the admin has no password."""
    url = serving.installation.control_url
    report(f"\n  {url}")
    admin = owner()
    if not admin.has_usable_password():  # a service's output is a log that others may read
        report(f"  sign in once, within 10 minutes:  {make_link(admin, url, to=to)}\n")
    if not is_loopback(serving.installation.bind) and not settings.PUBLIC_HOSTS:
        report(
            "The web only accepts requests for this address. List the names and addresses that other machines use for "
            "it in CONTROLPLANE_HOSTS (separated by commas) and restart."
        )
