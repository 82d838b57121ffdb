"""From an event to those who want to hear of it: rows first, messages later, each tried until it is sent or given up.

`notify` runs in the transaction of what happened, so an alert is neither lost nor told of something that didn't happen.
`deliver` may run in several workers at once: a row belongs to whose UPDATE found it due.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

from django.db.models import F, QuerySet
from django.utils import timezone

from runs.alerts import post, words
from runs.alerts.models import AlertDelivery, AlertTarget, State
from runs.alerts.post import NotSent
from runs.models import RunEvent

log = logging.getLogger(__name__)

AGAIN_S = (10, 30, 120, 600, 1800, 3600, 3600, 3600)
"""Between a message's tries; after the last it is given up, about four hours after its event."""
CLAIM_S = 60
"""A claim's life: far above a try's deadline. A worker that dies within a try has another one try again."""
KEPT = 10_000
"""Messages that were sent or given up, the newest of them: older ones go. What they told of stays in the timelines."""
FORGOTTEN_AT_ONCE = 1000
AT_ONCE = 8
"""Targets that are sent to at the same time, so that one which doesn't answer holds no other up."""
TRAIN = "train"


def notify(event: RunEvent) -> None:
    """Queue an event for every target that wants it. Only inserts rows; call it within the event's transaction."""
    wish = words.wish_of(event)
    if wish is None:
        return
    wanting = [target for target in AlertTarget.objects.filter(enabled=True) if wish in target.wants]
    if not wanting or event.run.kind != TRAIN:
        return
    now = timezone.now()
    rows = [AlertDelivery(target=target, event=event, due_at=now) for target in wanting]
    AlertDelivery.objects.bulk_create(rows, ignore_conflicts=True)


def queue_test(target: AlertTarget) -> AlertDelivery:
    return AlertDelivery.objects.create(target=target, due_at=timezone.now())


def try_again(delivery: AlertDelivery) -> bool:
    """A person's word on one that was given up; False: it is not, any more."""
    failed = AlertDelivery.objects.filter(pk=delivery.pk, state=State.FAILED)
    return bool(failed.update(state=State.WAITING, tries=0, due_at=timezone.now(), error=""))


def drop(target: AlertTarget) -> None:
    """What waits for a target that was switched off."""
    target.deliveries.filter(state=State.WAITING, claim="").update(
        state=State.FAILED, error="The target is turned off."
    )


def deliver(now: datetime | None = None) -> None:
    """Send all that is due: one message a target, however many events."""
    now = now or timezone.now()
    due = _due(now).order_by("target").values_list("target", flat=True).distinct()
    batches = [batch for target_id in due if (batch := _claim(target_id, now))]
    if not batches:
        return
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="alert") as threads:
        # The threads only send: rows are read and written here.
        for batch, problem in zip(batches, threads.map(lambda batch: _send(batch, now), batches), strict=True):
            _settle(batch, problem)


def forget(kept: int = KEPT) -> int:
    """Delete the oldest of what is settled beyond so many, a part of them at a time; answers how many."""
    settled = AlertDelivery.objects.exclude(state=State.WAITING).order_by("-pk").values_list("pk", flat=True)
    edge = settled[kept : kept + 1].first()
    if edge is None:
        return 0
    oldest = list(settled.reverse().filter(pk__lte=edge)[:FORGOTTEN_AT_ONCE])
    return AlertDelivery.objects.filter(pk__in=oldest).exclude(state=State.WAITING).delete()[0]


def _due(now: datetime) -> QuerySet[AlertDelivery]:
    return AlertDelivery.objects.filter(state=State.WAITING, due_at__lte=now)


def _claim(target_id: int, now: datetime) -> list[AlertDelivery]:
    """The rows that are ours to send now, oldest first."""
    claim = uuid.uuid4().hex
    until = now + timedelta(seconds=CLAIM_S)
    _due(now).filter(target=target_id).update(claim=claim, due_at=until, tries=F("tries") + 1)
    ours = AlertDelivery.objects.filter(claim=claim).select_related("target", "event__run")
    return list(ours.order_by("pk"))


def _send(batch: Sequence[AlertDelivery], now: datetime) -> NotSent | None:
    target = batch[0].target
    try:
        post.send(target, [words.line(delivery, target.links_to, now) for delivery in batch])
    except NotSent as problem:
        return problem
    except Exception:  # a thread's border: what nobody foresaw must neither hold up the others nor stay unseen
        log.exception("an alert to %s failed", target)
        return NotSent("Internal error; see the control worker's log.")
    return None


def _settle(batch: Sequence[AlertDelivery], problem: NotSent | None) -> None:
    now = timezone.now()
    for tries in {delivery.tries for delivery in batch}:
        ids = [delivery.pk for delivery in batch if delivery.tries == tries]
        # Not by the claim alone: one that took too long may have been taken over, and then isn't ours to settle.
        rows = AlertDelivery.objects.filter(pk__in=ids, claim=batch[0].claim)
        if problem is None:
            rows.update(state=State.SENT, sent_at=now, claim="", error="")
        elif problem.for_good or tries > len(AGAIN_S):
            rows.update(state=State.FAILED, claim="", error=str(problem)[:300])
        else:
            wait = max(AGAIN_S[tries - 1], min(problem.wait_s, 3600))
            rows.update(claim="", error=str(problem)[:300], due_at=now + timedelta(seconds=wait))
