"""The tick, which catches up on everything that should have happened but didn't. Every step is guarded, so that
concurrent ticks do nothing twice."""

import logging
from collections.abc import Callable
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet

from controlplane.catalogue.hardware import host_commands
from controlplane.catalogue.joining.credentials import revoked_since_dispatch
from controlplane.platform.http import outage
from controlplane.platform.http.tokens import attempt_token
from runs.engine import queries
from runs.engine.jobs import archives
from runs.engine.models import Attempt, Lease
from runs.engine.records import RunEvent
from runs.engine.scheduling import dispatching, ending, launching, leasing, recovery
from runs.engine.states import ON_HOST, RunStatus
from runs.engine.warm import lifecycle
from runs.insight.completions import group_retention, text_retention
from runs.insight.metrics import folding
from runs.intake.host_api.reaping import MAX_LAUNCHES, has_rebooted
from workers.contract.wire.names import EndReason, Task

log = logging.getLogger(__name__)

ACTOR = "tick"
MAX_AHEAD = timedelta(seconds=5)
"""Maximum lead of a plausible timestamp. One further in the future was written before the clock was set back."""
REAP_LOST_FOR = timedelta(days=7)
"""Time for which a lost host is asked to reap the remains of its attempts."""


def tick(now: datetime, *, started_at: datetime | None = None) -> None:
    """Run one tick. `started_at` is the time when this control plane began to listen, which only tests set."""
    since = started_at or queries.STARTED_AT
    steps: tuple[Callable[[], object], ...] = (
        lambda: resend_launches(now),
        lambda: end_rebooted(now, since),
        lambda: release_rebooted(now),
        lambda: reap_silent(now, since),
        lambda: reap_lost(now),
        lambda: recovery.resume_due(now),
        lambda: lifecycle.end_idle(now),
        launching.move_resumes,
        dispatching.dispatch_ready,
        folding.fold_all,
        lambda: judge(now),
        text_retention.thin_all,
        group_retention.forget_all,
        lambda: archives.tidy(now),
    )
    for step in steps:
        try:
            step()
        except Exception as error:  # loop boundary: one broken run must not block the others
            log.exception("a step of the tick failed")
            if outage.is_away(error):
                return  # no database: the other steps would fail as well


def judge(now: datetime) -> None:
    from runs.insight.health import tick as health  # imports numpy, which the web process does without

    health.tick(now)


def resend_launches(now: datetime) -> None:
    """Resend launches of STARTING attempts that nobody claimed in time; end those without launches left."""
    patience = timedelta(seconds=settings.LAUNCH_AGAIN_S)
    due_attempts = _attempts_with_host().filter(status=RunStatus.STARTING, claimed_at=None)
    for attempt in due_attempts.filter(_is_older("launch_sent_at", patience, now)):
        is_unclaimed = Q(claimed_at=None, launches_sent=attempt.launches_sent)
        if attempt.stop_mode:
            # A later claim is refused.
            ending.end(attempt, EndReason.CANCELLED, actor=ACTOR, only_if=is_unclaimed, proved_free=True)
        elif attempt.launches_sent >= MAX_LAUNCHES and not _wait_has_ended(attempt.launch_sent_at, patience, now):
            Attempt.objects.filter(is_unclaimed, pk=attempt.pk, status=RunStatus.STARTING).update(launch_sent_at=now)
        elif attempt.launches_sent >= MAX_LAUNCHES:
            detail = f"The host didn't respond to {attempt.launches_sent} launch messages."
            ending.end(
                attempt, EndReason.LAUNCH_FAILED, actor=ACTOR, detail=detail, only_if=is_unclaimed, proved_free=True
            )
        elif attempt.host is not None and not _is_unreachable(attempt, now):
            # Messages to an unreachable host would only wait, so the launches are saved for its return.
            dispatching.send_launch(attempt, now)


def end_rebooted(now: datetime, started_at: datetime) -> None:
    """End the attempts of hosts that came back with another boot id: their processes are dead and their memory is free.
    Only silent attempts end, since a cloned machine with the same name and token may announce itself while they
    train."""
    if not _was_listening(now, started_at):
        return
    heard_since = Q(host__announced_at__gt=F("last_seen_at")) | Q(last_seen_at__gt=now + MAX_AHEAD)
    for attempt in _claimed_attempts().filter(heard_since).filter(_is_silent(now)):
        if not has_rebooted(attempt):
            continue
        detail = "The host has rebooted."
        if ending.end(attempt, EndReason.HOST_LOST, actor=ACTOR, detail=detail, proved_free=True):
            # The outbox still has the lines that the supervisor could not send.
            _send_reap(attempt, now)


def release_rebooted(now: datetime) -> None:
    """Release the quarantined resources of hosts that have rebooted since, because their memory is clear. They are kept
    if a supervisor of the earlier boot was recently heard, since another machine then uses the host's name."""
    released_ids = []
    for lease in Lease.objects.filter(state=Lease.QUARANTINED).select_related("attempt__host"):
        earlier_attempts = Attempt.objects.filter(host_id=lease.host_id, boot_id=lease.attempt.boot_id)
        if has_rebooted(lease.attempt) and not earlier_attempts.exclude(_is_silent(now)).exists():
            leasing.release(lease, by=ACTOR)
            released_ids.append(lease.attempt_id)
    recovery.plan_all(released_ids)


def reap_silent(now: datetime, started_at: datetime) -> None:
    """Ask hosts to check attempts that have long been silent. Only the reaper's report ends an attempt."""
    if not _was_listening(now, started_at):
        return
    for attempt in _claimed_attempts().filter(_is_silent(now), last_seen_at__isnull=False).filter(_reap_is_due(now)):
        if not _is_unreachable(attempt, now):
            _send_reap(attempt, now)


def reap_lost(now: datetime) -> None:
    """Ask hosts that are back to reap the remains of attempts that ended as `host_lost`, until they have reported. The
    hosts still have the attempts' last lines and the proof that the resources are free. Hosts that were revoked are not
    asked, because that ended the tokens of their earlier attempts."""
    reports = RunEvent.objects.filter(attempt=OuterRef("pk"), kind="reaped", at__gte=OuterRef("ended_at"))
    lost_attempts = _attempts_with_host().filter(
        reason=EndReason.HOST_LOST, claimed_at__isnull=False, ended_at__gte=now - REAP_LOST_FOR
    )
    lost_attempts = lost_attempts.exclude(Exists(reports) | revoked_since_dispatch())
    for attempt in lost_attempts.filter(_is_silent(now)).filter(_reap_is_due(now)):
        if not _is_unreachable(attempt, now):
            _send_reap(attempt, now)


def _send_reap(attempt: Attempt, now: datetime) -> None:
    if attempt.host is None:
        return
    with transaction.atomic():
        unchanged_attempt = Attempt.objects.filter(pk=attempt.pk, reap_sent_at=attempt.reap_sent_at)
        if not unchanged_attempt.update(reap_sent_at=now):
            return
        if attempt.reap_sent_at is None or attempt.reap_sent_at < (attempt.last_seen_at or now):
            # Record one event per silence, not one per message.
            RunEvent.objects.create(
                run_id=attempt.run_id, attempt=attempt, at=now, kind="reap_sent", actor=ACTOR, data={}
            )
    arguments = [attempt.run_id, attempt.number, attempt_token(attempt.pk), attempt.placement]
    try:
        host_commands.send(attempt.host.name, Task.REAP_RUN, arguments)
    except host_commands.BrokerDown as error:
        log.warning("the reap of %s was not sent: %s", attempt.pk, error)


def _attempts_with_host() -> QuerySet[Attempt]:
    return Attempt.objects.select_related("run", "host")


def _claimed_attempts() -> QuerySet[Attempt]:
    return _attempts_with_host().filter(status__in=ON_HOST, claimed_at__isnull=False)


def _is_unreachable(attempt: Attempt, now: datetime) -> bool:
    return attempt.host is None or not attempt.host.is_fresh(now)


def _was_listening(now: datetime, started_at: datetime) -> bool:
    """Return whether the control plane has been up long enough for a silence to be the host's fault."""
    return not now - timedelta(seconds=settings.SILENT_AFTER_S) < started_at <= now


def _is_silent(now: datetime) -> Q:
    return _is_older("last_seen_at", timedelta(seconds=settings.SILENT_AFTER_S), now)


def _reap_is_due(now: datetime) -> Q:
    return _is_older("reap_sent_at", timedelta(seconds=settings.REAP_EVERY_S), now)


def _is_older(stamp: str, than: timedelta, now: datetime) -> Q:
    """Build the condition that a timestamp is unset, older than `than`, or in the future. A timestamp in the future
    means that the clock was set back; treating it as old costs at most one extra message. All timestamps are the
    control plane's own, so hosts' clocks don't matter."""
    return Q(**{stamp: None}) | Q(**{f"{stamp}__lte": now - than}) | Q(**{f"{stamp}__gt": now + MAX_AHEAD})


def _wait_has_ended(since: datetime | None, patience: timedelta, now: datetime) -> bool:
    """Return whether the wait since `since` has ended, but so recently that ticks have run all along. A timestamp far
    in the past or in the future means that the clock was set or that the control plane was down. Hosts may have tried
    to claim during that time, so they get more time."""
    return since is not None and patience <= now - since <= 2 * patience + timedelta(seconds=4 * settings.TICK_S)
