"""Life cycle of warm servers: their start, their assignment to an attempt, and their end."""

from collections.abc import Collection
from datetime import datetime, timedelta

from django.db import IntegrityError, transaction
from django.db.models import Q
from django.utils import timezone

from controlplane.catalogue.hardware.models import Host
from controlplane.platform.accounts.models import User
from runs.engine.models import Attempt, Priority, Run
from runs.engine.scheduling import gpu_queue, leasing, spending
from runs.engine.states import ACTIVE, RunStatus
from runs.engine.timeline import add_event
from runs.engine.transitions import move
from runs.engine.warm.models import WarmServer
from workers.contract.run.jobs import WARM, WarmNews
from workers.contract.run.spec import Placement, RunSpec
from workers.contract.stack import warm
from workers.contract.wire.documents import to_dict
from workers.contract.wire.names import EventKind

MAY_BE_IN_USE = "Ended because processes of the run that used it may still be alive."
GPUS_NEEDED = "Ended because a queued run needs its GPUs."


def begin(attempt: Attempt, host: Host, spec: RunSpec, placement: Placement) -> Attempt:
    """Create the warm server whose id is in an attempt's placement, and return the server's own attempt. Call it in the
    transaction that starts the attempt; the caller sends the server's launch."""
    server_id = attempt.placement["warm"]["attempt_id"]  # type: ignore[index]  # just written
    run_id = server_id.rpartition("-")[0]
    server_spec, source, actor = warm.spec_of(spec, run_id), attempt.run, "dispatcher"
    run = Run.objects.create(
        id=run_id,
        name=server_spec.name,
        kind=WARM,
        spec=to_dict(server_spec),
        owner_id=source.owner_id,
        host=host,
        dataset_version_id=source.dataset_version_id,
        profile_id=source.profile_id,
        source=source,
    )
    server = gpu_queue.enqueue(run, number=1, actor=actor, kind="submitted", host=host, priority=Priority.JOB)
    full_placement = spending.with_spending(server, host, placement)
    facts = {"host": host, "placement": to_dict(full_placement), "first_seq": 1, "last_seq": 0}
    move(server, RunStatus.STARTING, reason="dispatched", actor=actor, facts=facts)
    leasing.insert_leases(server, host, full_placement)
    WarmServer.objects.create(
        attempt=server,
        key=warm.key(spec),
        graphs=int(server_spec.job["graphs"]),
        vllm=host.vllm,
        minutes=spec.hardware.server.keep_warm_minutes if spec.hardware.server else 0,
        used_by=attempt,
    )
    return server


def attach(attempt: Attempt, server_id: str) -> None:
    """Assign an idle server to an attempt, in the transaction that starts the attempt. Raises IntegrityError if the
    server is in use or is ending."""
    idle_servers = WarmServer.objects.filter(pk=server_id, used_by=None, leaving="")
    servers = idle_servers.filter(attempt__status__in=(RunStatus.STARTING, RunStatus.RUNNING), attempt__stop_mode="")
    if not servers.update(used_by=attempt, idle_since=None):
        raise IntegrityError(f"{server_id} is no longer idle.")


def detach(attempt: Attempt, *, proved: bool) -> None:
    """Make the server of an ended attempt idle. Unless it is `proved` that no process of the attempt is left, the
    server ends, since such a process might still send adapters."""
    ending_columns = {} if proved else {"leaving": MAY_BE_IN_USE}
    WarmServer.objects.filter(used_by=attempt).update(used_by=None, idle_since=timezone.now(), **ending_columns)


def end_idle(now: datetime) -> None:
    """End the servers whose idle time is over."""
    for server in WarmServer.objects.filter(_is_active(), used_by=None, leaving="", idle_since__isnull=False):
        if server.idle_since is not None and server.idle_since + timedelta(minutes=server.minutes) <= now:
            minutes = "1 minute" if server.minutes == 1 else f"{server.minutes} minutes"
            still_idle = WarmServer.objects.filter(pk=server.pk, used_by=None, idle_since=server.idle_since)
            still_idle.update(leaving=f"Ended after {minutes} without a run.")


def end_for_queued_run(attempt_ids: Collection[str]) -> None:
    """End idle servers whose GPUs a queued run needs."""
    if attempt_ids:
        WarmServer.objects.filter(pk__in=attempt_ids, used_by=None, leaving="").update(leaving=GPUS_NEEDED)


def end(server: WarmServer, user: User) -> bool:
    """End a server at a user's request, once no run uses it. Return False if it is already ending."""
    with transaction.atomic():
        text = f"Ended by {user.get_username()}."
        if not WarmServer.objects.filter(_is_active(), pk=server.pk, leaving="").update(leaving=text):
            return False
        data = {"text": "The server will end as soon as no run uses it.", "level": "info"}
        add_event(server.attempt, EventKind.NOTE, user.get_username(), **data)
    return True


def news(attempt_id: str) -> WarmNews | None:
    """Collect news for the supervisor of a warm server; return None if the attempt isn't a warm server."""
    server = WarmServer.objects.filter(pk=attempt_id).first()
    if server is None:
        return None
    return WarmNews(user=server.used_by_id or "", leave="" if server.used_by_id else server.leaving)


def _is_active() -> Q:
    return Q(attempt__status__in=ACTIVE)
