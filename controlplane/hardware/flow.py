"""Asking a host about a model, over Celery; the answer comes back over HTTP (`api`). Releasing what is quarantined."""

from __future__ import annotations

from datetime import timedelta

from django.db import transaction
from django.utils import timezone

from controlplane.accounts.models import User
from controlplane.hardware.models import Host, ModelInspection
from runs import launching, leasing, messages
from runs.models import Lease
from workers.contract import Task

ANSWER_WITHIN_S = 60
"""A question without an answer for so long is given up; the next look asks again."""
FRESH_FOR = timedelta(minutes=10)
"""An answer may be used for so long: a folder on a host can change."""


class HostAway(Exception):
    """The question can't be sent: no message reaches the host now."""


def ask_inspection(host: Host, model: str) -> ModelInspection:
    """The open or recent question about this model, or a new one, sent to the host."""
    known = latest(host, model)
    if known is not None:
        return known
    inspection = ModelInspection.objects.create(host=host, model=model)
    try:
        messages.send(host.name, Task.INSPECT_MODEL, [inspection.pk, model], expires_s=ANSWER_WITHIN_S)
    except messages.BrokerDown as error:
        inspection.delete()
        raise HostAway(str(error)) from error
    return inspection


def latest(host: Host, model: str) -> ModelInspection | None:
    """A recent answer, else a question that may still be answered."""
    now = timezone.now()
    asked = ModelInspection.objects.filter(host=host, model=model)
    answered = asked.filter(answered_at__gte=now - FRESH_FOR).order_by("-answered_at").first()
    if answered is not None:
        return answered
    return asked.filter(answered_at=None, asked_at__gte=now - timedelta(seconds=ANSWER_WITHIN_S)).first()


def overdue(inspection: ModelInspection) -> bool:
    """No answer came in time."""
    return inspection.answered_at is None and inspection.asked_at < timezone.now() - timedelta(seconds=ANSWER_WITHIN_S)


def release(lease: Lease, user: User) -> bool:
    """Give a quarantined resource back on a person's word, and to whoever waits for it. False: not in quarantine."""
    with transaction.atomic():
        released = leasing.release(lease, by=user.get_username())
        if released:
            transaction.on_commit(launching.dispatch_ready, robust=True)
    return released
