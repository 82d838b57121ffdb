"""A checkpoint that another host saved: fetched from the artifact store to where it would be, and compared first."""

from __future__ import annotations

import time
from pathlib import Path

from workers.artifactstore import ArtifactStore, Spoilt, StoreError
from workers.contract.run.spec import AttemptSpec, models_of
from workers.contract.wire.artifacts import CHECKPOINT_FOLDER
from workers.settings import HostSettings
from workers.supervisor.processes.loops import Backoff
from workers.supervisor.reports.control import Control, Refused

TRIES = 4


def restore_missing(spec: AttemptSpec, settings: HostSettings, control: Control) -> None:
    """Fetch what the attempt resumes or starts from, and checkpoints that are its models, unless they are here or
    aren't stored. Raises StoreError."""
    for named in _wanted(spec, settings):
        target = settings.runs_dir / named
        if not target.exists():
            _until_fetched(spec, named, target, settings, control)


def _wanted(spec: AttemptSpec, settings: HostSettings) -> list[str]:
    """Folders of checkpoints, relative to RUNS_DIR."""
    within = f"{settings.runs_dir}/"
    models = [model.path for model in models_of(spec.run) if model.path.startswith(within)]
    named = [each.removeprefix(within) for each in (spec.resume_from or spec.run.start_from, *models)]
    return [each for each in named if CHECKPOINT_FOLDER.fullmatch(each)]


def _until_fetched(spec: AttemptSpec, named: str, target: Path, settings: HostSettings, control: Control) -> None:
    backoff = Backoff(settings.backoff_max_s)
    while True:
        try:
            return _fetch(spec, named, target, control)
        except Spoilt:
            raise
        except StoreError:
            wait = backoff.failed()
            if backoff.failures >= TRIES:
                raise
            time.sleep(wait)


def _fetch(spec: AttemptSpec, named: str, target: Path, control: Control) -> None:
    try:
        answer = control.ask_store(spec.attempt_id, folder=named)
    except Refused as error:
        raise StoreError(f"The control plane doesn't give the store's keys: {error.text}") from error
    if answer.store is not None and answer.manifest:
        ArtifactStore(answer.store).download(named, target, manifest_sha256=answer.manifest)
