"""Tokens of hosts in tests, as joining gives them."""

from __future__ import annotations

from controlplane.catalogue.joining.models import HostCredential
from controlplane.platform.http.tokens import hashed


def host_token(name: str) -> str:
    """The same token each time, with the credentials behind it."""
    token = f"the token of {name}"
    if not HostCredential.objects.filter(token_sha256=hashed(token)).exists():
        HostCredential.objects.create(host_name=name, token_sha256=hashed(token))
    return token
