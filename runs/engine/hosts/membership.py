"""A host's membership as pages describe it: when it joined, its version, its clock, and problems with them."""

from collections.abc import Iterable, Iterator
from datetime import timedelta

from django.utils import timezone
from django.utils.html import format_html

from controlplane.catalogue.hardware.models import Host
from controlplane.catalogue.joining.models import HostCredential
from controlplane.platform.templatetags.figures import ago, clock, duration
from workers.contract.wire.joining import TOLERATED_SKEW_S, VERSION

COPIED_FOR = timedelta(minutes=10)
"""Time for which pages warn that another machine used a host's token."""


def credentials_of(hosts: Iterable[Host]) -> dict[str, HostCredential]:
    """Map host names to each host's newest credentials, revoked or not."""
    rows = HostCredential.objects.filter(host_name__in=[host.name for host in hosts])
    return {row.host_name: row for row in rows.select_related("created_by", "revoked_by").order_by("pk")}


def troubles(credential: HostCredential | None) -> Iterator[tuple[str, str]]:
    """Yield the problems that the host's card shows at its top, as (grade, label)."""
    if credential is None:
        return
    if credential.revoked_at:
        yield "bad", "revoked"
        return
    if credential.refusal:
        yield "bad", "version refused"
    if was_copied(credential):
        yield "bad", "two machines"
    if skew := _skew(credential):
        yield "warn", f"clock {skew.removesuffix(' of')}"


def was_copied(credential: HostCredential) -> bool:
    """Return whether another machine used this token within COPIED_FOR."""
    return credential.copied_at is not None and timezone.now() - credential.copied_at < COPIED_FOR


def out_of_service(credential: HostCredential | None) -> str:
    """Explain why a host that may be running gets no launches; return "" if it gets them."""
    if credential is None:
        return ""
    if credential.revoked_at:
        by_user = f" by {credential.revoked_by.username}" if credential.revoked_by else ""
        sentence = "Its credentials were revoked {} ({} ago){}. It gets no runs until it joins again."
        return format_html(sentence, clock(credential.revoked_at), ago(credential.revoked_at), by_user)
    return f"{credential.refusal} No launches go there; its current runs continue." if credential.refusal else ""


def facts(credential: HostCredential | None) -> Iterator[tuple[str, str]]:
    if credential is None:
        return
    if credential.embedded:
        yield "Joined", "started with the control plane"
    else:
        code_owner = f" with a code from {credential.created_by.username}" if credential.created_by else ""
        yield "Joined", format_html("{} ago{}", ago(credential.created_at), code_owner)
    if credential.version:
        is_same = credential.version == VERSION
        yield "Product", credential.version if is_same else f"{credential.version}; this control plane is {VERSION}"
    if was_copied(credential):
        sentence = "Another machine used it {} ago and was refused. Revoke this host, and join each machine separately."
        yield "Token", format_html(sentence, ago(credential.copied_at))
    if skew := _skew(credential):
        yield "Clock", f"{skew} the control plane's clock. No decision depends on a host's clock."


def _skew(credential: HostCredential) -> str:
    skew = credential.clock_skew_s or 0.0
    return f"{duration(abs(skew))} {'ahead of' if skew > 0 else 'behind'}" if abs(skew) > TOLERATED_SKEW_S else ""
