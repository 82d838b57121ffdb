"""What `up` and `demo` say once the page answers."""

from __future__ import annotations

from collections.abc import Callable

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
    if serving.installation.trainer_python is None:
        report("No trainer on this machine: pages work, and launches wait until `manage.py up` could install it.")
