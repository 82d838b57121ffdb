"""Upkeep of the artifact store after a run's end. It asks hosts to repeat failed uploads, and itself removes unwanted
copies, because their host may never come back. While a run is active, its own process on the host uploads checkpoints
and removes the copies of deleted ones."""

import logging
from datetime import datetime, timedelta

from controlplane.catalogue.hardware import host_commands
from controlplane.platform.accounts import vault
from controlplane.platform.http.tokens import attempt_token
from runs.engine import checkpoints
from runs.engine.artifacts import copies
from runs.engine.artifacts.models import StoredCopy
from runs.engine.checkpoints import Checkpoint
from runs.engine.states import FINAL
from workers.artifactstore import ArtifactStore, StoreError
from workers.contract.wire.artifacts import Storing
from workers.contract.wire.names import Task

log = logging.getLogger(__name__)

MAX_PAUSE = timedelta(hours=6)
MAX_AT_ONCE = 20
READ_S = 10.0
"""Read timeout in seconds, short so that a store that hangs holds up the worker for a minute at most."""


def reconcile(now: datetime) -> int:
    """Check up to MAX_AT_ONCE due copies unclaimed by others, until a removal fails. Return the number checked."""
    due_copies = StoredCopy.objects.filter(next_at__lte=now).select_related("attempt__run", "attempt__host")
    checked_count = 0
    for copy in due_copies.order_by("next_at")[:MAX_AT_ONCE]:
        unclaimed_copy = StoredCopy.objects.filter(pk=copy.pk, next_at=copy.next_at, wanted=copy.wanted)
        factor: int = 2 ** min(copy.tries, 10)
        pause = min(copies.CHECK_AFTER * factor, MAX_PAUSE)
        if not unclaimed_copy.update(next_at=now + pause, tries=copy.tries + 1):
            continue
        checked_count += 1
        if copy.wanted:
            copy.wanted = _is_wanted(copy, now)
        if not copy.wanted and not _remove(copy):
            break  # the others would wait for the same store
    return checked_count


def _is_wanted(copy: StoredCopy, now: datetime) -> bool:
    """Return whether the store should hold the copy: until the attempt ends, and then as long as its checkpoint exists
    on a host or in the store. After the end, also ask the host to upload an incomplete copy again."""
    attempt = copy.attempt
    if attempt.status not in FINAL:
        StoredCopy.objects.filter(pk=copy.pk).update(tries=0)
        return True
    checkpoint = checkpoints.by_folder(f"{attempt.run_id}/{attempt.number}/{copy.path}")
    if checkpoint is None or checkpoint.removed or (attempt.host and attempt.host.removed_at and not checkpoint.stored):
        StoredCopy.objects.filter(pk=copy.pk).update(wanted=False)
        return False
    if checkpoint.stored:
        StoredCopy.objects.filter(pk=copy.pk, wanted=True).update(next_at=None, tries=0)
    else:
        _request_upload(checkpoint, now)
    return True


def _request_upload(checkpoint: Checkpoint, now: datetime) -> None:
    """Ask the host to upload a checkpoint. If the message is lost, the next check sends it again."""
    attempt = checkpoint.event.attempt
    if attempt.host is None or not attempt.host.is_fresh(now) or not vault.has_artifact_store():
        return
    try:
        host_commands.send(attempt.host.name, Task.STORE_MODEL, [checkpoint.folder, attempt_token(attempt.pk)])
    except host_commands.BrokerDown as error:
        log.warning("the upload of %s was not requested: %s", checkpoint.folder, error)


def _remove(copy: StoredCopy) -> bool:
    attempt = copy.attempt
    try:
        store = vault.artifact_store(run=attempt.run_id)
        if store is not None:
            ArtifactStore(store, read_s=READ_S).remove(f"{attempt.run_id}/{attempt.number}/{copy.path}")
            copies.record(attempt, copy.path, Storing.REMOVED, problem="", manifest="")
            return True
        problem = "The artifact store is no longer set up. An admin can add it again under Settings, Secrets."
    except (StoreError, vault.NotGiven) as error:
        problem = str(error)
    log.warning("the copy of %s stays in the store: %s", copy, problem)
    StoredCopy.objects.filter(pk=copy.pk).update(problem=problem[:1000])
    return False
