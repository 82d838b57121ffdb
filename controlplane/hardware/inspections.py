"""Questions to hosts about models: sent over Celery, answered over HTTP."""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone

from controlplane.hardware import host_commands
from controlplane.hardware.models import Host, ModelInspection
from workers.contract import Task

ANSWER_WITHIN_S = 60
"""A question without an answer for so long is given up; the next look asks again."""
FRESH_FOR = timedelta(minutes=10)
"""An answer may be used for so long: a folder on a host can change."""


class HostAway(Exception):
    """The question can't be sent: no message reaches the host now."""


def ask_inspection(host: Host, model: str, *, again: bool = False) -> ModelInspection:
    """The open or recent question about this model, or a new one, sent to the host. `again`: an answer that is there
    won't do, since somebody has changed what it was about (accepted a model's terms, freed some disk)."""
    known = latest(host, model)
    if known is not None and not (again and known.answered_at):
        return known
    inspection = ModelInspection.objects.create(host=host, model=model)
    try:
        host_commands.send(host.name, Task.INSPECT_MODEL, [inspection.pk, model])
    except host_commands.BrokerDown as error:
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
