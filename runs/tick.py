"""The tick: what should have happened and didn't. Every step is guarded, so two ticks at once do no double work."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet

from controlplane.hardware import host_commands
from controlplane.http import outage
from controlplane.http.tokens import attempt_token
from runs import queries
from runs.completions import group_retention, text_retention
from runs.host_api.reaping import MAX_LAUNCHES, has_rebooted
from runs.metrics import folding
from runs.models import Attempt, Lease, RunEvent
from runs.scheduling import ending, launching, leasing
from runs.states import ON_HOST, EndReason, RunStatus
from workers.contract import Task

log = logging.getLogger(__name__)

ACTOR = "tick"
AHEAD = timedelta(seconds=5)
"""A stamp further in the future than this was made before the clock was set back."""
LOST_FOR = timedelta(days=7)
"""How long a host that was given up is asked for what its attempts left, once it is back."""


def tick(now: datetime, *, started_at: datetime | None = None) -> None:
    """One round. `started_at` is when this control plane began to listen (tests say another)."""
    since = started_at or queries.STARTED_AT
    steps: tuple[Callable[[], object], ...] = (
        lambda: resend_launches(now),
        lambda: end_rebooted(now, since),
        lambda: release_rebooted(now),
        lambda: reap_silent(now, since),
        lambda: reap_lost(now),
        launching.dispatch_ready,
        folding.fold_all,
        lambda: judge(now),
        text_retention.thin_all,
        group_retention.forget_all,
    )
    for step in steps:
        try:
            step()
        except Exception as error:  # a loop's border: one sick run must not keep the others from being looked after
            log.exception("a step of the tick failed")
            if outage.is_away(error):
                return  # each further step would only wait for it as well


def judge(now: datetime) -> None:
    from runs.health import tick as health  # numpy comes with it, which the web does without

    health.tick(now)


def resend_launches(now: datetime) -> None:
    """STARTING without a claim: send again when the last message has had its time, end after the third."""
    patience = timedelta(seconds=settings.LAUNCH_AGAIN_S)
    due = _with_host().filter(status=RunStatus.STARTING, claimed_at=None)
    for attempt in due.filter(_older("launch_sent_at", patience, now)):
        unclaimed = Q(claimed_at=None, launches_sent=attempt.launches_sent)
        if attempt.stop_mode:
            # A claim that comes after all is refused.
            ending.end(attempt, EndReason.CANCELLED, actor=ACTOR, only_if=unclaimed, proved_free=True)
        elif attempt.launches_sent >= MAX_LAUNCHES and not _seen_to_wait(attempt.launch_sent_at, patience, now):
            Attempt.objects.filter(unclaimed, pk=attempt.pk, status=RunStatus.STARTING).update(launch_sent_at=now)
        elif attempt.launches_sent >= MAX_LAUNCHES:
            detail = f"{attempt.launches_sent} launch messages brought no supervisor's claim."
            ending.end(
                attempt, EndReason.LAUNCH_FAILED, actor=ACTOR, detail=detail, only_if=unclaimed, proved_free=True
            )
        elif attempt.host is not None and not _stale(attempt, now):
            # While the host is out of reach a message would only wait: the tries are kept for when it is back.
            launching.send_launch(attempt, now)


def end_rebooted(now: datetime, started_at: datetime) -> None:
    """A host that is back with another boot id: nothing of its attempts can be alive, their memory is free. Only after
    silence: a machine that was cloned, with the host's name and token, announces another one while they train."""
    if not _listened(now, started_at):
        return
    heard_since = Q(host__announced_at__gt=F("last_seen_at")) | Q(last_seen_at__gt=now + AHEAD)
    for attempt in _on_host().filter(heard_since).filter(_silent(now)):
        if not has_rebooted(attempt):
            continue
        detail = "The host has booted anew."
        if ending.end(attempt, EndReason.HOST_LOST, actor=ACTOR, detail=detail, proved_free=True):
            # What the supervisor could not send any more still lies in its outbox.
            _send_reap(attempt, now)


def release_rebooted(now: datetime) -> None:
    """What is in quarantine on a host that has booted anew since: nothing is left in its memory. Unless somebody was
    heard who lives in the earlier boot: then it is another machine that announces itself by the host's name."""
    for lease in Lease.objects.filter(state=Lease.QUARANTINED).select_related("attempt__host"):
        earlier = Attempt.objects.filter(host_id=lease.host_id, boot_id=lease.attempt.boot_id)
        if has_rebooted(lease.attempt) and not earlier.exclude(_silent(now)).exists():
            leasing.release(lease, by=ACTOR)


def reap_silent(now: datetime, started_at: datetime) -> None:
    """Silence since the control plane listens: ask the host to look. Only what the reaper finds ends an attempt."""
    if not _listened(now, started_at):
        return
    for attempt in _on_host().filter(_silent(now), last_seen_at__isnull=False).filter(_asked_long_ago(now)):
        if not _stale(attempt, now):
            _send_reap(attempt, now)


def reap_lost(now: datetime) -> None:
    """Attempts that ended as `host_lost` without a reaper's word: once their host is back, what they left is looked
    for, until a report has come. Their last lines, and the proof that their resources are free, are still there."""
    told = RunEvent.objects.filter(attempt=OuterRef("pk"), kind="reaped", at__gte=OuterRef("ended_at"))
    lost = _with_host().filter(reason=EndReason.HOST_LOST, claimed_at__isnull=False, ended_at__gte=now - LOST_FOR)
    for attempt in lost.filter(_silent(now)).filter(_asked_long_ago(now)).exclude(Exists(told)):
        if not _stale(attempt, now):
            _send_reap(attempt, now)


def give_up(attempt: Attempt, by: str) -> bool:
    """A person says that the host is lost. Its resources are not proved free, so they go into quarantine."""
    unclaimed = attempt.claimed_at is None
    return ending.end(
        attempt,
        EndReason.HOST_LOST,
        actor=by,
        detail=f"Given up by {by}.",
        only_if=Q(status__in=ON_HOST, claimed_at__isnull=unclaimed),
        proved_free=unclaimed,
    )


def _send_reap(attempt: Attempt, now: datetime) -> None:
    if attempt.host is None:
        return
    with transaction.atomic():
        mine = Attempt.objects.filter(pk=attempt.pk, reap_sent_at=attempt.reap_sent_at)
        if not mine.update(reap_sent_at=now):
            return
        if attempt.reap_sent_at is None or attempt.reap_sent_at < (attempt.last_seen_at or now):
            # Once for each silence, not for each message.
            RunEvent.objects.create(
                run_id=attempt.run_id, attempt=attempt, at=now, kind="reap_sent", actor=ACTOR, data={}
            )
    arguments = [attempt.run_id, attempt.number, attempt_token(attempt.pk), attempt.placement]
    try:
        host_commands.send(attempt.host.name, Task.REAP_RUN, arguments)
    except host_commands.BrokerDown as error:
        log.warning("no reap of %s: %s", attempt.pk, error)


def _with_host() -> QuerySet[Attempt]:
    return Attempt.objects.select_related("run", "host")


def _on_host() -> QuerySet[Attempt]:
    """Attempts with a supervisor, or that had one."""
    return _with_host().filter(status__in=ON_HOST, claimed_at__isnull=False)


def _stale(attempt: Attempt, now: datetime) -> bool:
    return attempt.host is None or not attempt.host.is_fresh(now)


def _listened(now: datetime, started_at: datetime) -> bool:
    """For long enough that silence since is the host's, not ours."""
    return not now - timedelta(seconds=settings.SILENT_AFTER_S) < started_at <= now


def _silent(now: datetime) -> Q:
    return _older("last_seen_at", timedelta(seconds=settings.SILENT_AFTER_S), now)


def _asked_long_ago(now: datetime) -> Q:
    return _older("reap_sent_at", timedelta(seconds=settings.REAP_EVERY_S), now)


def _older(stamp: str, than: timedelta, now: datetime) -> Q:
    """Unset, old, or of the future: then the clock was set back since, and the worst that comes of taking it for old
    is one message too many. Every stamp is the control plane's own, so no host's clock counts here."""
    return Q(**{stamp: None}) | Q(**{f"{stamp}__lte": now - than}) | Q(**{f"{stamp}__gt": now + AHEAD})


def _seen_to_wait(since: datetime | None, patience: timedelta, now: datetime) -> bool:
    """The wait is over, and this tick was there to see it. A stamp of the future or of long ago is that of a clock that
    was set, or of a control plane that was away itself: whoever claimed meanwhile found nobody, and is given time."""
    return since is not None and patience <= now - since <= 2 * patience + timedelta(seconds=4 * settings.TICK_S)
