"""Delivery of alerts: rows are stored first; messages are sent later and retried until they arrive or are given up.
`notify` runs in the event's transaction, so no alert is lost and none reports something that didn't happen. Several
workers may run `deliver` at once: a row belongs to the worker whose UPDATE claimed it."""

import logging
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

from django.db.models import F, Q, QuerySet
from django.utils import timezone

from runs.engine.alerts import formatting, sending
from runs.engine.alerts.models import AlertDelivery, AlertTarget, State
from runs.engine.alerts.sending import NotSent
from runs.engine.records import RunEvent

log = logging.getLogger(__name__)

RETRY_DELAYS_S = (10, 30, 120, 600, 1800, 3600, 3600, 3600)
"""Minimum delays between attempts. After the last one, about four hours after the event, the message is given up."""
CLAIM_S = 60
"""Seconds that a claim lasts, far longer than one attempt may take. If a worker dies, another one retries afterwards.
"""
MAX_KEPT = 10_000
"""Number of newest settled messages to keep. The events of deleted ones stay in the timelines."""
DELETE_BATCH = 1000
MAX_CONCURRENT = 8
"""Number of targets contacted concurrently, so that an unresponsive one doesn't hold up the others."""
TRAIN = "train"


def notify(event: RunEvent) -> None:
    """Queue a training run's event for its subscribers. It only inserts rows: call it in the event's transaction."""
    topic = formatting.topic_of(event)
    if topic is None:
        return
    # A follower gets messages about the followed run only, and none once the account is disabled.
    is_subscribed_to = Q(run=None) | Q(run=event.run_id, by__is_active=True)
    targets = [target for target in AlertTarget.objects.filter(is_subscribed_to, enabled=True) if topic in target.wants]
    if not targets or event.run.kind != TRAIN:
        return
    now = timezone.now()
    rows = [AlertDelivery(target=target, event=event, due_at=now) for target in targets]
    AlertDelivery.objects.bulk_create(rows, ignore_conflicts=True)


def queue_test(target: AlertTarget) -> AlertDelivery:
    return AlertDelivery.objects.create(target=target, due_at=timezone.now())


def retry(delivery: AlertDelivery) -> bool:
    """Queue a failed message again at a user's request, and return whether it was still failed."""
    failed_delivery = AlertDelivery.objects.filter(pk=delivery.pk, state=State.FAILED)
    return bool(failed_delivery.update(state=State.WAITING, tries=0, due_at=timezone.now(), error=""))


def fail_waiting(target: AlertTarget) -> None:
    """Mark the waiting messages of a target that was turned off as failed, except those being sent."""
    target.deliveries.filter(state=State.WAITING, claim="").update(
        state=State.FAILED, error="The target is turned off."
    )


def deliver(now: datetime | None = None) -> None:
    """Send all due messages, combined into one per target."""
    now = now or timezone.now()
    due_targets = _due_deliveries(now).order_by("target").values_list("target", flat=True).distinct()
    batches = [batch for target_id in due_targets if (batch := _claim(target_id, now))]
    if not batches:
        return
    with ThreadPoolExecutor(MAX_CONCURRENT, thread_name_prefix="alert") as threads:
        # The threads only send: rows are read and written here.
        for batch, problem in zip(batches, threads.map(lambda batch: _send(batch, now), batches), strict=True):
            _record_outcome(batch, problem)


def forget(limit: int = MAX_KEPT) -> int:
    """Delete one batch of the settled messages older than the newest `limit`. Return the number deleted."""
    settled_ids = AlertDelivery.objects.exclude(state=State.WAITING).order_by("-pk").values_list("pk", flat=True)
    newest_to_delete = settled_ids[limit : limit + 1].first()
    if newest_to_delete is None:
        return 0
    oldest_ids = list(settled_ids.reverse().filter(pk__lte=newest_to_delete)[:DELETE_BATCH])
    return AlertDelivery.objects.filter(pk__in=oldest_ids).exclude(state=State.WAITING).delete()[0]


def _due_deliveries(now: datetime) -> QuerySet[AlertDelivery]:
    return AlertDelivery.objects.filter(state=State.WAITING, due_at__lte=now)


def _claim(target_id: int, now: datetime) -> list[AlertDelivery]:
    claim_id = uuid.uuid4().hex
    expires_at = now + timedelta(seconds=CLAIM_S)
    _due_deliveries(now).filter(target=target_id).update(claim=claim_id, due_at=expires_at, tries=F("tries") + 1)
    claimed_deliveries = AlertDelivery.objects.filter(claim=claim_id).select_related("target", "event__run")
    return list(claimed_deliveries.order_by("pk"))


def _send(batch: Sequence[AlertDelivery], now: datetime) -> NotSent | None:
    target = batch[0].target
    try:
        sending.send(target, [formatting.line(delivery, target.links_to, now) for delivery in batch])
    except NotSent as problem:
        return problem
    except Exception:  # thread boundary: an unexpected error must neither hold up the others nor go unnoticed
        log.exception("an alert to %s failed", target)
        return NotSent("Internal error; see the control worker's log.")
    return None


def _record_outcome(batch: Sequence[AlertDelivery], problem: NotSent | None) -> None:
    now = timezone.now()
    for tries in {delivery.tries for delivery in batch}:
        ids = [delivery.pk for delivery in batch if delivery.tries == tries]
        # Filter by the claim, too: another worker may have taken over a slow delivery.
        rows = AlertDelivery.objects.filter(pk__in=ids, claim=batch[0].claim)
        if problem is None:
            rows.update(state=State.SENT, sent_at=now, claim="", error="")
        elif problem.is_final or tries > len(RETRY_DELAYS_S):
            rows.update(state=State.FAILED, claim="", error=str(problem)[:300])
        else:
            wait = max(RETRY_DELAYS_S[tries - 1], min(problem.wait_s, 3600))
            rows.update(claim="", error=str(problem)[:300], due_at=now + timedelta(seconds=wait))
