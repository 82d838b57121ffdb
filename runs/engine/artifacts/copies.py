"""Copies of checkpoints in the artifact store: what hosts learn about the store, and the states that they report."""

from dataclasses import replace
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
    """Return the store without its keys, and the manifest of a checkpoint that the attempt needs: the one in `folder`
    or, by default, the one that the attempt starts from. The manifest is "" if there is none. Raises vault.NotGiven if
    the store's keys can't be read."""
    store = vault.artifact_store(run=attempt.run_id)
    is_needed = not folder or folder in folders_needed_by(attempt)
    checkpoint = checkpoints.by_folder(folder or _start_of(attempt)) if is_needed else None
    keyless = replace(store, key="", secret="") if store else None
    return StoreAnswer(keyless, checkpoint.manifest if checkpoint else "")


def folders_needed_by(attempt: Attempt) -> set[str]:
    """Collect the folders of the checkpoints that an attempt starts from or uses as models."""
    spec = readable_spec(attempt.run)
    paths = [_start_of(attempt), *(model.path for model in (models_of(spec) if spec else ()))]
    return {checkpoints.folder_in(path) for path in paths if path}


def _start_of(attempt: Attempt) -> str:
    return attempt.resume_from or attempt.run.spec.get("start_from") or ""


def record(attempt: Attempt, path: str, state: Storing, *, problem: str, manifest: str) -> bool:
    """Record a checkpoint copy's state, as an event if it is news. Return False if there is no such checkpoint."""
    with transaction.atomic():
        Attempt.objects.select_for_update(of=("self",)).get(pk=attempt.pk)
        if not RunEvent.objects.filter(attempt=attempt, kind="checkpoint", data__path=path).exists():
            return False
        store_events = RunEvent.objects.filter(attempt=attempt, kind__in=KINDS.values(), data__path=path)
        event = store_events.order_by("-id").first()
        data = {name: value for name, value in (("problem", problem), ("manifest", manifest)) if value}
        # A retry after a failure stays silent: the timeline keeps saying why the upload failed.
        is_retry = state == Storing.UPLOADING and event is not None and event.kind == NOT_STORED
        if not is_retry and (event is None or (event.kind, event.data) != (KINDS[state], {"path": path, **data})):
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
    """Map (attempt id, path) to each unwanted copy that the store may still hold."""
    copies = StoredCopy.objects.filter(attempt__run=run, wanted=False)
    return {(copy.attempt_id, copy.path): copy for copy in copies}


def is_expected(attempt: Attempt) -> bool:
    """Return whether upkeep may be waiting for the host to repeat the upload of one of the attempt's checkpoints."""
    return StoredCopy.objects.filter(attempt=attempt, tries__gt=0, next_at__isnull=False).exists()
