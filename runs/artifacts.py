"""Checkpoints in the artifact store: what a host is told of the store, and what it says of each checkpoint."""

from __future__ import annotations

from django.db import transaction
from django.utils import timezone

from controlplane.accounts import vault
from runs import checkpoints, hints
from runs.checkpoints import NOT_STORED, STORED, UNSTORED, UPLOADING
from runs.models import Attempt, RunEvent
from runs.spec import spec_of
from workers.contract import ContractError, models_of
from workers.contract.artifacts import StoreAnswer, Storing

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
            _note(attempt, KINDS[state], {"path": path, **data})
    return True


def _model_paths(attempt: Attempt) -> list[str]:
    try:
        return [model.path for model in models_of(spec_of(attempt.run))]
    except ContractError:
        return []


def _note(attempt: Attempt, kind: str, data: dict[str, str]) -> None:
    RunEvent.objects.create(
        run_id=attempt.run_id, attempt=attempt, at=timezone.now(), kind=kind, actor="store", data=data
    )
    transaction.on_commit(lambda: hints.changed(attempt.run_id))
