"""A page that opens wakes its run's supervisor, which otherwise gathers lines for seconds. The message may be lost."""

from __future__ import annotations

import logging
from collections.abc import Collection

from django.utils import timezone

from controlplane.catalogue.hardware import host_commands
from runs.engine.models import Attempt
from runs.engine.states import ON_HOST
from workers.contract.wire.names import Task

log = logging.getLogger(__name__)


def wake(run_ids: Collection[str]) -> None:
    """Tell the hosts of these runs that somebody has begun to watch them."""
    now = timezone.now()
    attempts = Attempt.objects.filter(run__in=run_ids, status__in=ON_HOST, claimed_at__isnull=False)
    for attempt in attempts.select_related("host").only("run_id", "number", "host"):
        if attempt.host is None or not attempt.host.is_fresh(now):
            continue  # messages to a host that is out of reach would only wait
        try:
            host_commands.send(attempt.host.name, Task.WATCH_RUN, [attempt.run_id, attempt.number])
        except host_commands.BrokerDown as error:
            log.debug("%s is not woken: %s", attempt.pk, error)
            return
