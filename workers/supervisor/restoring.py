"""A checkpoint that another host saved: fetched from the artifact store to where it would be, and compared first."""

from __future__ import annotations

import time
from pathlib import Path

from workers.contract import AttemptSpec
from workers.host.settings import HostSettings
from workers.supervisor.artifactstore import ArtifactStore, Spoilt, StoreError
from workers.supervisor.control import Control, Refused
from workers.supervisor.loops import Backoff

__all__ = ["Spoilt", "restore_missing"]

TRIES = 4


def restore_missing(spec: AttemptSpec, settings: HostSettings, control: Control) -> None:
    """Fetch what the attempt resumes or starts from, unless it is here or isn't stored. Raises StoreError."""
    named = (spec.resume_from or spec.run.start_from).removeprefix(f"{settings.runs_dir}/")
    target = settings.runs_dir / named
    if not named or target.exists() or Path(named).is_absolute() or ".." in Path(named).parts:
        return
    backoff = Backoff(settings.backoff_max_s)
    while True:
        try:
            return _restore(spec, named, target, control)
        except Spoilt:
            raise
        except StoreError:
            wait = backoff.failed()
            if backoff.failures >= TRIES:
                raise
            time.sleep(wait)


def _restore(spec: AttemptSpec, named: str, target: Path, control: Control) -> None:
    try:
        answer = control.ask_store(spec.attempt_id)
    except Refused as error:
        raise StoreError(f"The control plane doesn't give the store's keys: {error.text}") from error
    if answer.store is not None and answer.manifest:
        ArtifactStore(answer.store).download(named, target, manifest_sha256=answer.manifest)
