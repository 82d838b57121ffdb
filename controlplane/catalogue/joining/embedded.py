"""The credentials of the host that `up` runs beside the control plane, which needs no code to join."""

from __future__ import annotations

from django.db import transaction

from controlplane.catalogue.joining import credentials
from controlplane.catalogue.joining.credentials import HostNameTaken
from controlplane.catalogue.joining.models import HostCredential


def token_for(name: str, present: str) -> str | None:
    """A new token for the host of `up`; None: the one that it has fits. Raises NameTaken."""
    if credentials.fits(name, present.strip()):
        return None
    with transaction.atomic():
        before = credentials.active(name)
        if before is not None and not before.embedded:
            raise HostNameTaken(
                f"Another machine has joined as {name}. Set GRPO_HOST_NAME to another name for this one; to replace "
                "that machine, start under the other name and revoke it on the Hardware page."
            )
        # Not revoked: that would end what the host runs, and it is the same machine.
        HostCredential.objects.filter(host_name=name, revoked_at=None).delete()
        return credentials.issue(name, embedded=True).token
