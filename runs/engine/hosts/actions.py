"""Actions on a host: draining it, releasing quarantined resources, marking it as lost, revoking and removing it."""

from collections.abc import Iterable

from django.db import transaction
from django.db.models import Q
from django.utils import timezone
from redis import RedisError

from controlplane.catalogue.hardware.models import Host
from controlplane.catalogue.joining import credentials, host_redis
from controlplane.platform.accounts.models import User
from controlplane.platform.activity.recording import record
from runs.engine.hosts.view import is_fresh
from runs.engine.models import Attempt, Lease
from runs.engine.scheduling import dispatching, ending, leasing, recovery
from runs.engine.sentences import resource_words
from runs.engine.states import ACTIVE, ON_HOST, RunStatus


def drain(host: Host, *, draining: bool) -> None:
    """Stop a host from accepting new runs, or let it accept them again and dispatch the queue."""
    host.draining = draining
    host.save(update_fields=["draining"])
    if not draining:
        dispatching.dispatch_ready()


def allow_unsandboxed(host: Host, user: User, *, allowed: bool) -> None:
    """Allow or forbid rewards to run code on a host that has no working sandbox. If allowed, dispatch the queue."""
    host.unsandboxed_allowed, host.unsandboxed_by = allowed, user
    host.save(update_fields=["unsandboxed_allowed", "unsandboxed_by"])
    if allowed:
        dispatching.dispatch_ready()


def release(leases: Iterable[Lease], user: User) -> list[str]:
    """Release quarantined leases at an operator's request, and start the runs that are waiting for them. Return the
    names of the released resources."""
    with transaction.atomic():
        released = [lease for lease in leases if leasing.release(lease, by=user.get_username())]
        if released:
            recovery.plan_all(lease.attempt_id for lease in released)
            record(released[0].host, f"Released {resource_words(lease.resource for lease in released)} from quarantine")
            transaction.on_commit(dispatching.dispatch_ready, robust=True)
    return [lease.resource for lease in released]


def on_host(host: Host) -> list[Attempt]:
    """List the attempts on a host, which `give_up` would end."""
    attempts = Attempt.objects.filter(host=host, status__in=ON_HOST).select_related("run", "run__owner", "host")
    return list(attempts.order_by("dispatched_at", "pk"))


def give_up(host: Host, user: User, *, free: bool) -> tuple[int, int]:
    """Mark an unreachable host as lost: end its attempts, whose resources go into quarantine, because processes may
    still be alive when the host comes back. With `free`, release all that is in quarantine there. Return the numbers of
    ended attempts and of released resources."""
    if is_fresh(host):
        return 0, 0
    record(host, "Marked as lost")
    ended_count = sum(ending.give_up(attempt, user.get_username()) for attempt in on_host(host))
    quarantined_leases = Lease.objects.filter(host=host, state=Lease.QUARANTINED)
    return ended_count, len(release(quarantined_leases, user)) if free else 0


def revoke(host: Host, user: User) -> tuple[int, str]:
    """Revoke a host's credentials and end its attempts, whose reports are refused from now on. Their resources go into
    quarantine. Return the number of ended attempts, and a remaining problem or ""."""
    with transaction.atomic():
        if not credentials.revoke(host.name, user):
            return 0, f"{host.name} has no credentials."
        record(host, "Revoked its credentials")
        Host.every.filter(pk=host.pk).update(announced_at=None)
        detail = f"The host's credentials were revoked by {user.get_username()}."
        ended_count = sum(ending.give_up(attempt, user.get_username(), detail=detail) for attempt in on_host(host))
    try:
        host_redis.delete(host.name)
    except RedisError:
        return ended_count, "Redis is unreachable. The host's Redis user will be deleted once Redis is back."
    return ended_count, ""


def remove(host: Host) -> str:
    """Hide a host until it announces itself again. Return the reason if that is not possible, or ""."""
    with transaction.atomic():
        row = Host.every.select_for_update().get(pk=host.pk)
        if is_fresh(row):
            return f"{host.name} is reachable and would reappear at its next check-in. Stop its worker first."
        if Lease.objects.filter(host=row).exclude(state=Lease.RELEASED).exists():
            return f"{host.name} still holds leases. Mark it as lost, or release its quarantined resources first."
        attempts = Attempt.objects.filter(Q(host=row) | Q(host=None, run__host=row), status__in=ACTIVE)
        blocker = attempts.select_related("run").first()
        if blocker is not None:
            verb = "is waiting for" if blocker.status == RunStatus.QUEUED else "is on"
            return f"{blocker.run.name} {verb} {host.name}. Stop that run first."
        if Host.every.filter(pk=row.pk, removed_at=None).update(removed_at=timezone.now()):
            record(row, "Removed it")
    return ""
