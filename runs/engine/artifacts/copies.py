"""Copies of checkpoints in the artifact store: the settings that hosts get, and the states that they report."""

from datetime import timedelta

from django.db import transaction
from django.utils import timezone

from controlplane.platform.accounts import vault
from runs.engine import checkpoints
from runs.engine.artifacts.models import StoredCopy
from runs.engine.checkpoints import NOT_STORED, STORED, UNSTORED, UPLOADING, Checkpoint
from runs.engine.models import Attempt, Run
from runs.engine.records import RunEvent
from runs.engine.spec import readable_spec
from runs.engine.timeline import add_event
from workers.contract.run.spec import models_of
from workers.contract.wire.artifacts import StoreAnswer, Storing

CHECK_AFTER = timedelta(minutes=10)
"""Time between a host's report and upkeep's check of the copy."""
KINDS = {
    Storing.UPLOADING: UPLOADING,
    Storing.STORED: STORED,
    Storing.FAILED: NOT_STORED,
    Storing.REMOVED: UNSTORED,
}


def store_for(attempt: Attempt, folder: str = "") -> StoreAnswer:
    """Look up the store with its keys, and the manifest of a checkpoint that the attempt needs. Without `folder`, that
    is the checkpoint that the attempt starts from; `folder` names another one that it may read. Raises
    vault.NotGiven."""
    store = vault.artifact_store(run=attempt.run_id)
    start = attempt.resume_from or attempt.run.spec.get("start_from") or ""
    spec = readable_spec(attempt.run) if folder else None
    paths = [start, *(model.path for model in (models_of(spec) if spec else ()))]
    needed_folders = {checkpoints.folder_in(path) for path in paths}
    checkpoint = checkpoints.by_folder(folder or start) if not folder or folder in needed_folders else None
    return StoreAnswer(store, checkpoint.manifest if checkpoint else "")


def record(attempt: Attempt, path: str, state: Storing, *, problem: str, manifest: str) -> bool:
    """Record the state of a checkpoint's copy as an event, once. Return False if there is no such checkpoint."""
    with transaction.atomic():
        Attempt.objects.select_for_update(of=("self",)).get(pk=attempt.pk)
        if not RunEvent.objects.filter(attempt=attempt, kind="checkpoint", data__path=path).exists():
            return False
        store_events = RunEvent.objects.filter(attempt=attempt, kind__in=KINDS.values(), data__path=path)
        newest = store_events.order_by("-id").first()
        data = {name: text for name, text in (("problem", problem), ("manifest", manifest)) if text}
        # A retry after a failure stays silent: the timeline keeps saying why the upload failed.
        is_retry = state == Storing.UPLOADING and newest is not None and newest.kind == NOT_STORED
        if not is_retry and (newest is None or (newest.kind, newest.data) != (KINDS[state], {"path": path, **data})):
            add_event(attempt, KINDS[state], "store", path=path, **data)
        if state == Storing.REMOVED:
            StoredCopy.objects.filter(attempt=attempt, path=path).delete()
        else:
            copy, _ = StoredCopy.objects.get_or_create(attempt=attempt, path=path)
            if copy.next_at is None:
                StoredCopy.objects.filter(pk=copy.pk).update(next_at=timezone.now() + CHECK_AFTER)
    return True


def schedule_removal(checkpoint: Checkpoint) -> None:
    """Mark a checkpoint's copy for removal by upkeep, if the store may hold one."""
    if checkpoint.in_store:
        columns = {"wanted": False, "next_at": timezone.now(), "tries": 0}
        key = {"attempt": checkpoint.event.attempt, "path": checkpoint.event.data["path"]}
        StoredCopy.objects.update_or_create(columns, **key)


def leftovers(run: Run) -> dict[tuple[str, str], StoredCopy]:
    """Find the unwanted copies that are still in the store, by attempt and path."""
    copies = StoredCopy.objects.filter(attempt__run=run, wanted=False)
    return {(copy.attempt_id, copy.path): copy for copy in copies}


def is_expected(attempt: Attempt) -> bool:
    """Return whether upkeep has asked the host to upload one of the attempt's checkpoints."""
    return StoredCopy.objects.filter(attempt=attempt, tries__gt=0, next_at__isnull=False).exists()
