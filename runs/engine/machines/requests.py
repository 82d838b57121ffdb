"""Requests for machines, from the demand to the machine's end: sending, polling, and releasing what no run needs. Every
step is a guarded UPDATE, so concurrent workers do nothing twice. Engines are called outside transactions, since a call
may take half a minute."""

import logging
import re
import secrets
import time
from datetime import datetime, timedelta

from django.db import IntegrityError, transaction
from django.db.models import Q
from django.utils import timezone

from controlplane.catalogue.hardware.models import Host
from controlplane.catalogue.joining import codes
from controlplane.platform.activity.recording import record
from controlplane.platform.http.tokens import machine_code
from runs.engine import hints
from runs.engine.machines import demand, leaving
from runs.engine.machines.models import KINDS, Expectation, MachineRequest, MachineSource
from runs.engine.machines.provider import EngineError, MachinePhase, MachineProvider, MachineState
from runs.engine.models import Attempt, Lease
from runs.engine.scheduling import ending, leasing, recovery
from runs.engine.states import ON_HOST, RunStatus
from workers.contract.wire.names import EndReason

log = logging.getLogger(__name__)

ACTOR = "machines"
BUDGET_S = 60.0
"""Seconds after which a round stops, so that an engine that hangs doesn't block it for longer."""
RESEND_AFTER = timedelta(minutes=2)
"""Time without a response from the engine after which a request is sent again, since its sender must have died."""
POLL_EVERY = {MachineRequest.State.WAITING: timedelta(seconds=8), MachineRequest.State.JOINED: timedelta(minutes=1)}
HISTORY = timedelta(days=30)
State = MachineRequest.State


def reconcile(now: datetime) -> None:
    """Poll the machines that are due, release those that no run needs, and request new ones."""
    if not MachineSource.objects.exists():
        return
    started_at = time.monotonic()
    adopt_joined(now)
    for request in _due_requests(now):
        if time.monotonic() - started_at > BUDGET_S:
            return
        poll(request, now)
    demands = demand.read(now)
    for request in MachineRequest.objects.filter(state__in=MachineRequest.PENDING).select_related("attempt"):
        is_queued = request.attempt is not None and request.attempt.status == RunStatus.QUEUED
        if not is_queued and request.pk not in demands.used:
            release(request, by="")
    for attempt, source in demands.unmet:
        if time.monotonic() - started_at > BUDGET_S:
            return
        request_row = _insert(attempt, source)
        if request_row is not None and (problem := _send(request_row)):
            demands.expectations[attempt.pk] = problem
    _store_expectations(demands.expectations)
    MachineRequest.objects.exclude(state__in=MachineRequest.LIVE).filter(ended_at__lt=now - HISTORY).delete()


def _insert(attempt: Attempt, source: MachineSource) -> MachineRequest | None:
    """Create a request's row. Return None if another worker was first or the source allows no more machines."""
    slug = re.sub(r"[^a-z0-9]+", "-", source.name.lower()).strip("-")[:40] or "machine"
    name = f"{slug}-{secrets.token_hex(3)}"
    try:
        with transaction.atomic():
            source = MachineSource.objects.select_for_update().get(pk=source.pk)
            if not source.enabled or source.requests.filter(state__in=MachineRequest.LIVE).count() >= source.most:
                return None
            row, _ = codes.create(name, by=source.created_by, code=machine_code(name))
            return MachineRequest.objects.create(
                source=source, attempt=attempt, host_name=name, code=row, offers=source.inventory()
            )
    except (IntegrityError, MachineSource.DoesNotExist):
        return None


def _send(request: MachineRequest) -> str:
    """Request a machine from its engine. Return the reason if the engine provides none, or ""."""
    unanswered_requests = MachineRequest.objects.filter(pk=request.pk, state=State.ASKING)
    unanswered_requests.update(looked_at=timezone.now())
    source = request.source
    try:
        engine = provider_of(source)
        handle = engine.request(source.shape, name=request.host_name, join=machine_code(request.host_name))
    except EngineError as error:
        _fail(request, str(error))
        return f"{source.name} provided no machine: {error}"
    sentence = "The engine has accepted the request."
    if not unanswered_requests.update(handle=handle, state=State.WAITING, phase=MachinePhase.QUEUED, sentence=sentence):
        # It was released while the engine was being called.
        _release_at_engine(request, handle)
    return ""


def provider_of(source: MachineSource) -> MachineProvider:
    """Build the client of a source's engine. Raises EngineError for an unknown kind."""
    kind = KINDS.get(source.kind)
    if kind is None:
        raise EngineError(f"This version doesn't know the engine {source.kind!r}.")
    return kind.make(source.control_url, source.options)


def adopt_joined(now: datetime) -> None:
    """Mark as joined the machines whose join code was used, and set known prices of their unpriced hosts."""
    joined_requests = MachineRequest.objects.filter(state__in=MachineRequest.PENDING, code__used_at__isnull=False)
    for request in joined_requests.select_related("source"):
        if (price := request.source.gpu_hour) is not None:
            unpriced_hosts = Host.every.filter(name=request.host_name, gpu_hour_price=None)
            unpriced_hosts.update(gpu_hour_price=price.amount, currency=price.currency)
    joined_requests.update(state=State.JOINED, joined_at=now, sentence="")


def poll(request: MachineRequest, now: datetime) -> None:
    """Send an unanswered request again, or read a machine's state from its engine and act on it."""
    if request.state == State.ASKING:
        _send(request)  # with the same name and code, so that there is never a second machine
        return
    MachineRequest.objects.filter(pk=request.pk).update(looked_at=now)
    try:
        machine_state = provider_of(request.source).state(request.handle)
    except EngineError as error:
        sentence = f"Its state is unknown: {error}"
        MachineRequest.objects.filter(pk=request.pk, state__in=MachineRequest.LIVE).update(sentence=sentence)
        if request.state == State.WAITING and request.code_id is not None:
            codes.extend(request.code_id)  # the machine may start nevertheless
        return
    if machine_state.phase not in (MachinePhase.ENDED, MachinePhase.LOST):
        unchanged_requests = MachineRequest.objects.filter(pk=request.pk, state=request.state)
        unchanged_requests.update(phase=machine_state.phase, sentence=machine_state.sentence)
        if request.state == State.WAITING and request.code_id is not None:
            codes.extend(request.code_id)
    elif request.state == State.WAITING and (request.code_id is None or codes.revoke(request.code_id)):
        _fail(request, machine_state.sentence)
    else:
        _handle_machine_end(request, machine_state, now)


def release(request: MachineRequest, *, by: str) -> str:
    """Release a machine: withdraw the request, or have the host save its runs and leave. Return a problem, or "". `by`
    is a user's name, or "" if no run needs the machine."""
    now = timezone.now()
    rows = MachineRequest.objects.filter(pk=request.pk)
    if request.code_id is None or codes.revoke(request.code_id):
        text = f"Released by {by}." if by else "Released because no run needed it."
        columns = {"state": State.RELEASED, "ended_at": now, "released_at": now, "released_by": by, "sentence": text}
        if not rows.filter(state__in=MachineRequest.PENDING).update(**columns):
            return f"{request.host_name} is {rows.get().get_state_display()}."
    else:
        adopt_joined(now)
        if not rows.filter(state=State.JOINED).update(released_at=now, released_by=by):
            return f"{request.host_name} is {rows.get().get_state_display()}."
        Host.every.filter(name=request.host_name).update(draining=True)
    record(request.source, f"Released the machine {request.host_name}")
    return _release_at_engine(request, request.handle) if request.handle else ""


def _release_at_engine(request: MachineRequest, handle: str) -> str:
    try:
        provider_of(request.source).release(handle)
    except EngineError as error:
        log.warning("%s was not released: %s", request.host_name, error)
        sentence = f"The machine could not be released: {error}"
        MachineRequest.objects.filter(pk=request.pk).update(sentence=sentence)
        return str(error)
    return ""


def _fail(request: MachineRequest, sentence: str) -> None:
    if request.code_id is not None:
        codes.revoke(request.code_id)
    pending_requests = MachineRequest.objects.filter(pk=request.pk, state__in=MachineRequest.PENDING)
    pending_requests.update(state=State.FAILED, sentence=sentence, ended_at=timezone.now(), phase=MachinePhase.ENDED)


def _handle_machine_end(request: MachineRequest, state: MachineState, now: datetime) -> None:
    """Handle the end of a joined machine, as reported by its engine. Like a reboot, the end proves that no process is
    left there. If the engine has merely lost track of the machine, this proves nothing, and the report is ignored while
    the host still announces itself."""
    host = Host.every.filter(name=request.host_name).first()
    is_proved = state.phase == MachinePhase.ENDED
    if host is not None and not is_proved and host.is_fresh(now):
        return
    with transaction.atomic():
        live_requests = MachineRequest.objects.filter(pk=request.pk, state__in=MachineRequest.LIVE)
        if not live_requests.update(state=State.LOST, phase=state.phase, sentence=state.sentence, ended_at=now):
            return
        if host is not None:
            _end_host(host, state, proved=is_proved, now=now)
    leaving.delete_redis_user(request.host_name)


def _end_host(host: Host, state: MachineState, *, proved: bool, now: datetime) -> None:
    leaving.remove(host, now)
    reason = EndReason.HOST_PREEMPTED if state.taken_back else EndReason.HOST_LOST
    for attempt in Attempt.objects.filter(host=host, status__in=ON_HOST).select_related("run", "host"):
        ending.give_up(attempt, ACTOR, detail=state.sentence, reason=reason, proved=proved)
    if proved:
        quarantined_leases = list(Lease.objects.filter(host=host, state=Lease.QUARANTINED))
        recovery.plan_all([lease.attempt_id for lease in quarantined_leases if leasing.release(lease, by=ACTOR)])


def _due_requests(now: datetime) -> list[MachineRequest]:
    is_due = Q(state=State.ASKING, created_at__lt=now - RESEND_AFTER) & _unpolled_since(now - RESEND_AFTER)
    for state, interval in POLL_EVERY.items():
        is_due |= Q(state=state) & _unpolled_since(now - interval)
    rows = MachineRequest.objects.filter(is_due).select_related("source", "attempt")
    return sorted(rows, key=lambda row: row.looked_at or row.created_at)


def _unpolled_since(moment: datetime) -> Q:
    return Q(looked_at=None) | Q(looked_at__lte=moment)


def _store_expectations(texts: dict[str, str]) -> None:
    """Store what each queued attempt can expect from the sources, and notify open pages of the changes."""
    stored_texts = {row.pk: (row.text, row.attempt.run_id) for row in Expectation.objects.select_related("attempt")}
    outdated_ids = stored_texts.keys() - texts.keys()
    Expectation.objects.filter(pk__in=outdated_ids).delete()
    changed_run_ids = {stored_texts[attempt_id][1] for attempt_id in outdated_ids}
    for attempt_id, text in texts.items():
        if attempt_id not in stored_texts or stored_texts[attempt_id][0] != text:
            row, _ = Expectation.objects.update_or_create(attempt_id=attempt_id, defaults={"text": text})
            changed_run_ids.add(row.attempt.run_id)
    for run_id in changed_run_ids:
        hints.changed(run_id)
