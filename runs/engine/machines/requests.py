"""From a wish to a host and its end: ask an engine, look how it is, let go of what nobody needs.

Every step is a guarded UPDATE, so that two workers at once do nothing twice. The engine is spoken to outside
transactions: it may take half a minute.
"""

from __future__ import annotations

import logging
import re
import secrets
import time
from datetime import datetime, timedelta

from django.db import IntegrityError, transaction
from django.db.models import Q
from django.utils import timezone
from redis import RedisError

from controlplane.catalogue.hardware.models import Host
from controlplane.catalogue.joining import codes, credentials, host_redis
from controlplane.platform.activity.recording import record
from controlplane.platform.http.tokens import machine_code
from runs.engine import hints
from runs.engine.machines import demand
from runs.engine.machines.demand import MachineDemand
from runs.engine.machines.models import KINDS, Expectation, MachineRequest, MachineSource
from runs.engine.machines.provider import EngineError, MachinePhase, MachineProvider, MachineState
from runs.engine.models import Attempt, Lease
from runs.engine.scheduling import ending, leasing, recovery
from runs.engine.states import ON_HOST, RunStatus
from workers.contract.wire.names import EndReason

log = logging.getLogger(__name__)

ACTOR = "machines"
BUDGET_S = 60.0
"""Of one round: an engine that hangs must not keep it for longer."""
UNANSWERED = timedelta(minutes=2)
"""After so long without an answer of the engine, the process that asked has died."""
LOOK_EVERY = {MachineRequest.State.WAITING: timedelta(seconds=8), MachineRequest.State.JOINED: timedelta(minutes=1)}
HISTORY = timedelta(days=30)
State = MachineRequest.State


def reconcile(now: datetime) -> None:
    """One round."""
    if not MachineSource.objects.exists():
        return
    begun = time.monotonic()
    adopt_joined(now)
    for request in _due(now):
        if time.monotonic() - begun > BUDGET_S:
            return
        look(request, now)
    wanted = demand.read(now)
    for request in MachineRequest.objects.filter(state__in=MachineRequest.PENDING).select_related("attempt"):
        queued = request.attempt is not None and request.attempt.status == RunStatus.QUEUED
        if not queued and request.pk not in wanted.used:
            release(request, by="")
    for wish in wanted.wishes:
        if time.monotonic() - begun > BUDGET_S:
            return
        if problem := ask(wish):
            wanted.says[wish.attempt.pk] = problem
    _tell(wanted.says)
    MachineRequest.objects.exclude(state__in=MachineRequest.LIVE).filter(ended_at__lt=now - HISTORY).delete()


def ask(wish: MachineDemand) -> str:
    """Ask for a machine. Return why there is none, or ""."""
    request = _insert(wish)
    if request is None:
        return ""
    return _send(request)


def _insert(wish: MachineDemand) -> MachineRequest | None:
    """None: another worker was first, or the source has given all its machines."""
    name = f"{_slug(wish.source.name)}-{secrets.token_hex(3)}"
    try:
        with transaction.atomic():
            source = MachineSource.objects.select_for_update().get(pk=wish.source.pk)
            if not source.enabled or source.requests.filter(state__in=MachineRequest.LIVE).count() >= source.most:
                return None
            row, _ = codes.make(name, by=source.created_by, code=machine_code(name))
            return MachineRequest.objects.create(
                source=source, attempt=wish.attempt, host_name=name, code=row, offers=source.inventory()
            )
    except (IntegrityError, MachineSource.DoesNotExist):
        return None


def _send(request: MachineRequest) -> str:
    asking = MachineRequest.objects.filter(pk=request.pk, state=State.ASKING)
    asking.update(looked_at=timezone.now())
    source = request.source
    try:
        engine = provider_of(source)
        handle = engine.request(source.shape, name=request.host_name, join=machine_code(request.host_name))
    except EngineError as error:
        _fail(request, str(error))
        return f"{source.name} gives no machine: {error}"
    sentence = "The engine has it."
    if not asking.update(handle=handle, state=State.WAITING, phase=MachinePhase.QUEUED, sentence=sentence):
        # It was let go of meanwhile.
        _release_there(request, handle)
    return ""


def provider_of(source: MachineSource) -> MachineProvider:
    """Raises EngineError."""
    kind = KINDS.get(source.kind)
    if kind is None:
        raise EngineError(f"This version knows no engine {source.kind!r}.")
    return kind.make(source.control_url, source.options)


def adopt_joined(now: datetime) -> None:
    """Note whose code has been used: its host is there."""
    used = MachineRequest.objects.filter(state__in=MachineRequest.PENDING, code__used_at__isnull=False)
    for request in used.select_related("source"):
        _note_price(request)
    used.update(state=State.JOINED, joined_at=now, sentence="")


def _note_price(request: MachineRequest) -> None:
    """Where it is known, as if an admin had entered it."""
    if (price := request.source.gpu_hour) is not None:
        unpriced = Host.every.filter(name=request.host_name, gpu_hour_price=None)
        unpriced.update(gpu_hour_price=price.amount, currency=price.currency)


def look(request: MachineRequest, now: datetime) -> None:
    """Ask the engine how a machine is, and draw the consequences."""
    if request.state == State.ASKING:
        _send(request)  # under the same name, with the same code: there is never a second machine
        return
    MachineRequest.objects.filter(pk=request.pk).update(looked_at=now)
    try:
        state = provider_of(request.source).state(request.handle)
    except EngineError as error:
        sentence = f"It is not known how it is: {error}"
        MachineRequest.objects.filter(pk=request.pk, state__in=MachineRequest.LIVE).update(sentence=sentence)
        if request.state == State.WAITING and request.code_id is not None:
            codes.prolong(request.code_id)  # the job may begin all the same
        return
    if state.phase not in (MachinePhase.ENDED, MachinePhase.LOST):
        told = {"phase": state.phase, "sentence": state.sentence}
        MachineRequest.objects.filter(pk=request.pk, state=request.state).update(**told)
        if request.state == State.WAITING and request.code_id is not None:
            codes.prolong(request.code_id)
    elif request.state == State.WAITING and (request.code_id is None or codes.withdraw(request.code_id)):
        _fail(request, state.sentence)
    else:
        _machine_ended(request, state, now)


def release(request: MachineRequest, *, by: str) -> str:
    """Let go of a machine: take back the request, or have the host save its runs and leave. Return what is wrong, or
    "". `by`: a user's name."""
    now = timezone.now()
    rows = MachineRequest.objects.filter(pk=request.pk)
    if request.code_id is None or codes.withdraw(request.code_id):
        why = f"Released by {by}." if by else "Nobody needed it any more."
        ended = {"state": State.RELEASED, "ended_at": now, "released_at": now, "released_by": by, "sentence": why}
        if not rows.filter(state__in=MachineRequest.PENDING).update(**ended):
            return f"{request.host_name} is {rows.get().get_state_display()}."
    else:
        adopt_joined(now)
        if not rows.filter(state=State.JOINED).update(released_at=now, released_by=by):
            return f"{request.host_name} is {rows.get().get_state_display()}."
        # No more runs go there.
        Host.every.filter(name=request.host_name).update(draining=True)
    record(request.source, f"Released the machine {request.host_name}")
    return _release_there(request, request.handle) if request.handle else ""


def _release_there(request: MachineRequest, handle: str) -> str:
    try:
        provider_of(request.source).release(handle)
    except EngineError as error:
        log.warning("%s was not released: %s", request.host_name, error)
        sentence = f"It was to be released, but {error}"
        MachineRequest.objects.filter(pk=request.pk).update(sentence=sentence)
        return str(error)
    return ""


def _fail(request: MachineRequest, sentence: str) -> None:
    if request.code_id is not None:
        codes.withdraw(request.code_id)
    pending = MachineRequest.objects.filter(pk=request.pk, state__in=MachineRequest.PENDING)
    pending.update(state=State.FAILED, sentence=sentence, ended_at=timezone.now(), phase=MachinePhase.ENDED)


def _machine_ended(request: MachineRequest, state: MachineState, now: datetime) -> None:
    """It had joined, and the engine says that it is no more.

    That is proof as a reboot is: nothing that ran there runs on. An engine that has lost a machine proves nothing, and
    says nothing of a host that still announces itself.
    """
    host = Host.every.filter(name=request.host_name).first()
    proved = state.phase == MachinePhase.ENDED
    if host is not None and not proved and host.is_fresh(now):
        return
    with transaction.atomic():
        live = MachineRequest.objects.filter(pk=request.pk, state__in=MachineRequest.LIVE)
        if not live.update(state=State.LOST, phase=state.phase, sentence=state.sentence, ended_at=now):
            return
        if host is not None:
            _end_host(host, state, proved=proved, now=now)
    _end_user(request.host_name)


def _end_host(host: Host, state: MachineState, *, proved: bool, now: datetime) -> None:
    credentials.revoke(host.name, None)
    Host.every.filter(pk=host.pk).update(announced_at=None, removed_at=now)
    reason = EndReason.HOST_PREEMPTED if state.taken_back else EndReason.HOST_LOST
    for attempt in Attempt.objects.filter(host=host, status__in=ON_HOST).select_related("run", "host"):
        unclaimed = attempt.claimed_at is None
        only_if = Q(status__in=ON_HOST, claimed_at__isnull=unclaimed)
        ending.end(
            attempt, reason, actor=ACTOR, detail=state.sentence, only_if=only_if, proved_free=proved or unclaimed
        )
    if proved:
        left = list(Lease.objects.filter(host=host, state=Lease.QUARANTINED))
        recovery.plan_all([lease.attempt_id for lease in left if leasing.release(lease, by=ACTOR)])


def _end_user(name: str) -> None:
    try:
        host_redis.end(name)
    except RedisError as error:
        log.warning("the user of %s in Redis is deleted later: %s", name, error)  # by host_redis.tend


def _due(now: datetime) -> list[MachineRequest]:
    """Those to look at, the longest unseen first."""
    due = Q(state=State.ASKING, created_at__lt=now - UNANSWERED) & _before("looked_at", now - UNANSWERED)
    for state, every in LOOK_EVERY.items():
        due |= Q(state=state) & _before("looked_at", now - every)
    rows = MachineRequest.objects.filter(due).select_related("source", "attempt")
    return sorted(rows, key=lambda row: row.looked_at or row.created_at)


def _before(name: str, moment: datetime) -> Q:
    return Q(**{name: None}) | Q(**{f"{name}__lte": moment})


def _tell(says: dict[str, str]) -> None:
    """Store what queued attempts may expect, and tell open pages what has changed."""
    before = {row.pk: (row.text, row.attempt.run_id) for row in Expectation.objects.select_related("attempt")}
    gone = before.keys() - says.keys()
    Expectation.objects.filter(pk__in=gone).delete()
    changed = {before[attempt_id][1] for attempt_id in gone}
    for attempt_id, text in says.items():
        if attempt_id not in before or before[attempt_id][0] != text:
            row, _ = Expectation.objects.update_or_create(attempt_id=attempt_id, defaults={"text": text})
            changed.add(row.attempt.run_id)
    for run_id in changed:
        hints.changed(run_id)


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40] or "machine"
