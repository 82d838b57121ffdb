"""Checkpoints in the artifact store: what a host is told of the store, and what it says of each checkpoint."""

from __future__ import annotations

from datetime import timedelta

from django.db import transaction
from django.utils import timezone

from controlplane.platform.accounts import vault
from runs.engine import checkpoints
from runs.engine.artifacts.models import StoredCopy
from runs.engine.checkpoints import NOT_STORED, STORED, UNSTORED, UPLOADING, Checkpoint
from runs.engine.models import Attempt, Run
from runs.engine.records import RunEvent
from runs.engine.spec import spec_of
from runs.engine.timeline import add_event
from workers.contract.run.spec import models_of
from workers.contract.wire.artifacts import StoreAnswer, Storing
from workers.contract.wire.documents import ContractError

AGAIN = timedelta(minutes=10)
"""Until upkeep looks after a copy."""
KINDS = {
    Storing.UPLOADING: UPLOADING,
    Storing.STORED: STORED,
    Storing.FAILED: NOT_STORED,
    Storing.REMOVED: UNSTORED,
}


def store_for(attempt: Attempt, folder: str = "") -> StoreAnswer:
    """The store with its keys, which are written down nowhere else, and the manifest of a checkpoint that the attempt
    needs: what it resumes or starts from, or a model of its spec. Raises vault.NotGiven."""
    store = vault.artifact_store(run=attempt.run_id)
    start = attempt.resume_from or attempt.run.spec.get("start_from") or ""
    needed = {checkpoints.folder_in(each) for each in (start, *(_model_paths(attempt) if folder else ()))}
    wanted = checkpoints.by_folder(folder or start) if not folder or folder in needed else None
    return StoreAnswer(store, wanted.manifest if wanted else "")


def told(attempt: Attempt, path: str, state: Storing, *, problem: str, manifest: str) -> bool:
    """Store what a host says of a checkpoint; the same again changes nothing. False: there is no such checkpoint."""
    with transaction.atomic():
        Attempt.objects.select_for_update(of=("self",)).get(pk=attempt.pk)
        if not RunEvent.objects.filter(attempt=attempt, kind="checkpoint", data__path=path).exists():
            return False
        about = RunEvent.objects.filter(attempt=attempt, kind__in=KINDS.values(), data__path=path)
        last = about.order_by("-id").first()
        data = {name: text for name, text in (("problem", problem), ("manifest", manifest)) if text}
        again = state == Storing.UPLOADING and last is not None and last.kind == NOT_STORED  # until it is known why
        if not again and (last is None or (last.kind, last.data) != (KINDS[state], {"path": path, **data})):
            add_event(attempt, KINDS[state], "store", path=path, **data)
        _keep(attempt, path, state)
    return True


def to_go(checkpoint: Checkpoint) -> None:
    """Have upkeep remove what the store may hold of it."""
    if checkpoint.in_store:
        to_do = {"wanted": False, "next_at": timezone.now(), "tries": 0}
        StoredCopy.objects.update_or_create(to_do, attempt=checkpoint.event.attempt, path=checkpoint.event.data["path"])


def leftovers(run: Run) -> dict[tuple[str, str], StoredCopy]:
    """What isn't wanted and is still in the store, by attempt and path."""
    copies = StoredCopy.objects.filter(attempt__run=run, wanted=False)
    return {(copy.attempt_id, copy.path): copy for copy in copies}


def is_expected(attempt: Attempt) -> bool:
    """Whether upkeep has asked the host for something about one of the attempt's checkpoints."""
    return StoredCopy.objects.filter(attempt=attempt, tries__gt=0, next_at__isnull=False).exists()


def _keep(attempt: Attempt, path: str, state: Storing) -> None:
    """What upkeep works from: it looks at a copy once its attempt has ended."""
    if state == Storing.REMOVED:
        StoredCopy.objects.filter(attempt=attempt, path=path).delete()
        return
    copy, _ = StoredCopy.objects.get_or_create(attempt=attempt, path=path)
    if copy.next_at is None:
        StoredCopy.objects.filter(pk=copy.pk).update(next_at=timezone.now() + AGAIN)


def _model_paths(attempt: Attempt) -> list[str]:
    try:
        return [model.path for model in models_of(spec_of(attempt.run))]
    except ContractError:
        return []
