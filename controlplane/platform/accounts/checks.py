"""Conditions for the web to listen beyond this machine."""

from __future__ import annotations

import ipaddress

from controlplane.platform.accounts.models import Role, User


def may_bind(host: str) -> str | None:
    """Why the web may not listen on `host`, with the remedy; None if it may."""
    if is_loopback(host) or any(u.has_usable_password() for u in User.objects.filter(role=Role.ADMIN, is_active=True)):
        return None
    return (
        f"Refusing to listen on {host}: no admin has a password yet, so whoever reads the sign-in link on the "
        "terminal is the only guard. Start on 127.0.0.1, sign in, set a password under the user menu, "
        "then start again with this address."
    )


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False  # a name or an empty string (all interfaces): not known to stay on this machine
