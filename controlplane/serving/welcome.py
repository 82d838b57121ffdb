"""What `up` and `demo` say once the page answers."""

from __future__ import annotations

from collections.abc import Callable

from django.conf import settings

from controlplane.accounts.checks import is_loopback
from controlplane.accounts.first_admin import ensure_first_admin
from controlplane.accounts.models import User
from controlplane.accounts.onetime import make_link
from controlplane.serving.serving import Serving


def owner() -> User:
    """Who acts on behalf of the person at this terminal."""
    return ensure_first_admin()


def show_address(serving: Serving, report: Callable[[str], None]) -> None:
    url = serving.installation.control_url
    report(f"\n  {url}")
    report(f"  sign in once, within 10 minutes:  {make_link(owner(), url)}\n")
    if not is_loopback(serving.installation.bind) and not settings.PUBLIC_HOSTS:
        report(
            "The web answers under this address alone. List the names and addresses that other machines use for it in "
            "CONTROLPLANE_HOSTS (commas between) and start again."
        )
    if serving.installation.trainer_python is None:
        report("No trainer on this machine: pages work, and launches wait until `manage.py up` could install it.")
