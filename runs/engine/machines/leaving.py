"""Hosts that leave: a host asks to leave once no run is on it, and its credentials are then revoked."""

import logging
from datetime import datetime

from django.db import transaction
from django.db.models import Q
from django.utils import timezone
from redis import RedisError

from controlplane.catalogue.hardware.models import Host
from controlplane.catalogue.joining import credentials, host_redis
from runs.engine.machines.models import MachineRequest
from runs.engine.models import Attempt
from runs.engine.scheduling import ending, gpu_queue, leasing, limits
from runs.engine.states import ACTIVE, ON_HOST, RunStatus
from workers.contract.run.spec import Placement
from workers.contract.wire.documents import ContractError
from workers.contract.wire.joining import Leaving
from workers.contract.wire.names import EndReason

log = logging.getLogger(__name__)

ACTOR = "host"
SENTENCES = {
    Leaving.IDLE: "The machine left because it had no run for {minutes} min.",
    Leaving.STOPPED: "The machine left because its program was stopped; its runs have ended.",
}


def leave(name: str, reason: Leaving) -> str:
    """Let a host leave, or only drain it if it is being stopped. Return the reason if it has to stay, or "". The host's
    row is locked, and after taking leases, a dispatcher checks that the host is still there, so no run is sent to one
    that left."""
    with transaction.atomic():
        host = Host.every.select_for_update().filter(name=name).first()
        if host is None:
            return ""
        if reason == Leaving.STOPPING:
            Host.every.filter(pk=host.pk).update(draining=True)
            return ""
        if reason == Leaving.STOPPED:
            _end_unclaimed(host)
        is_bound = Q(host=host) | Q(host=None, run__host=host)
        if (attempt := Attempt.objects.filter(is_bound, status__in=ACTIVE).select_related("run").first()) is not None:
            return f"{attempt.run.name} is on {name} or is waiting for it."
        if reason == Leaving.IDLE and (run := _awaits(host)) is not None:
            return f"{run} is about to start on {name}."
        now = timezone.now()
        remove(host, now)
        live_requests = MachineRequest.objects.filter(host_name=name, state__in=MachineRequest.LIVE)
        for request in live_requests.select_related("source"):
            sentence = SENTENCES[reason].format(minutes=request.source.idle_minutes)
            live_requests.filter(pk=request.pk).update(state=MachineRequest.State.LEFT, sentence=sentence, ended_at=now)
    delete_redis_user(name)
    return ""


def remove(host: Host, now: datetime) -> None:
    """Revoke a host's credentials and remove the host from the Hardware page."""
    credentials.revoke(host.name, None)
    Host.every.filter(pk=host.pk).update(announced_at=None, removed_at=now)


def delete_redis_user(name: str) -> None:
    try:
        host_redis.delete(name)
    except RedisError as error:
        log.warning("the user of %s in Redis is deleted later: %s", name, error)  # by host_redis.tend


def _end_unclaimed(host: Host) -> None:
    """End a stopped host's unclaimed attempts, which have started nothing."""
    for attempt in Attempt.objects.filter(host=host, status__in=ON_HOST, claimed_at=None).select_related("run", "host"):
        detail = f"{host.name} was stopped before it received the run."
        condition = Q(claimed_at=None)
        ending.end(attempt, EndReason.HOST_PREEMPTED, actor=ACTOR, detail=detail, only_if=condition, proved_free=True)


def _awaits(host: Host) -> str | None:
    """Return the name of the run that the machine was requested for, if that run is about to start there."""
    joined_requests = MachineRequest.objects.filter(host_name=host.name, attempt__status=RunStatus.QUEUED)
    request = joined_requests.select_related("attempt__run__owner").first()
    if request is None or request.attempt is None or host.draining:
        return None
    run = request.attempt.run
    try:
        need = gpu_queue.need_of(run)
    except ContractError:
        return None
    has_room = host.announced_at is None or isinstance(leasing.allocate(need, host, {}), Placement)
    return run.name if has_room and limits.allowance(run.owner).may_start else None
