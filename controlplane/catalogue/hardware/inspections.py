"""Model inspections, requested from hosts over Celery; hosts return the results over HTTP."""

from datetime import timedelta

from django.utils import timezone

from controlplane.catalogue.hardware import host_commands
from controlplane.catalogue.hardware.models import Host, ModelInspection
from workers.contract.wire.names import Task

RESPONSE_TIMEOUT_S = 60
"""Seconds after which a request without a result is overdue, so that a new one is sent."""
FRESH_FOR = timedelta(minutes=10)
"""Time for which a result is reused; folders on a host can change."""


class HostAway(Exception):
    """Failure to send a request to a host."""


def request_inspection(host: Host, model: str, *, revision: str = "", force: bool = False) -> ModelInspection:
    """Return the open or recent inspection of this model, or request a new one from the host. Raises HostAway if the
    request can't be sent. With `force`, an existing result is ignored, because its cause has changed (accepted terms,
    freed disk space)."""
    existing_inspection = latest_inspection(host, model, revision)
    if existing_inspection is not None and not (force and existing_inspection.answered_at):
        return existing_inspection
    inspection = ModelInspection.objects.create(host=host, model=model, revision=revision)
    try:
        host_commands.send(host.name, Task.INSPECT_MODEL, [inspection.pk, model, revision])
    except host_commands.BrokerDown as error:
        inspection.delete()
        raise HostAway(str(error)) from error
    return inspection


def latest_inspection(host: Host, model: str, revision: str = "") -> ModelInspection | None:
    """Find a recent result or a request that is still pending; return None if there is neither."""
    now = timezone.now()
    inspections = ModelInspection.objects.filter(host=host, model=model, revision=revision)
    completed = inspections.filter(answered_at__gte=now - FRESH_FOR).order_by("-answered_at").first()
    if completed is not None:
        return completed
    return inspections.filter(answered_at=None, asked_at__gte=now - timedelta(seconds=RESPONSE_TIMEOUT_S)).first()


def is_overdue(inspection: ModelInspection) -> bool:
    return inspection.answered_at is None and inspection.asked_at < timezone.now() - timedelta(
        seconds=RESPONSE_TIMEOUT_S
    )
