"""The artifact store as a host uses it, without keys; checkpoints of other hosts, fetched and verified before use."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from workers.artifactstore import ArtifactStore, Corrupted, StoreError
from workers.contract.run.spec import AttemptSpec, models_of
from workers.contract.wire.artifacts import CHECKPOINT_FOLDER, StoreRequest
from workers.settings import HostSettings
from workers.supervisor.processes.loops import Backoff
from workers.supervisor.reports.control import Control, ControlRefused, Unreachable

MAX_TRIES = 4
MAX_SIGN_PAUSE_S = 5.0
"""Longest pause before a signature is requested again, so that a long upload doesn't start over."""


def connect(control: Control, attempt_id: str, *, folder: str = "") -> tuple[ArtifactStore | None, str]:
    """Connect to the store (None if there is none), and return the manifest of the stored checkpoint in `folder`, too.

    Raises StoreError and Unreachable, as does the store for each request that the control plane doesn't sign.
    """

    def sign(request: StoreRequest) -> str:
        backoff = Backoff(MAX_SIGN_PAUSE_S)
        while True:
            try:
                return control.sign_for_store(attempt_id, request)
            except ControlRefused as error:
                problem = f"The control plane didn't sign a request to the artifact store: {error.text}"
                raise StoreError(problem) from error
            except Unreachable:
                wait = backoff.failed()
                if backoff.failures >= MAX_TRIES:
                    raise
                time.sleep(wait)

    try:
        response = control.ask_store(attempt_id, folder=folder)
    except ControlRefused as error:
        raise StoreError(f"The control plane didn't provide the artifact store: {error.text}") from error
    return ArtifactStore(response.store, sign=sign) if response.store else None, response.manifest


def restore_missing(spec: AttemptSpec, settings: HostSettings, control: Control) -> None:
    """Fetch the checkpoint from which the attempt resumes or starts, and checkpoints that it uses as models.
    Checkpoints that are already on this host, or not in the store, are skipped. Raises StoreError if one can't be
    fetched."""
    for folder in _checkpoint_folders(spec, settings):
        target = settings.runs_dir / folder
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            with _locked(target.parent):
                if not target.exists():
                    _fetch_with_retries(spec, folder, target, settings, control)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, so that no other attempt on this host fetches into it. The lock ends with its process."""
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _checkpoint_folders(spec: AttemptSpec, settings: HostSettings) -> list[str]:
    """List the folders of the checkpoints that the attempt uses, relative to RUNS_DIR."""
    prefix = f"{settings.runs_dir}/"
    models = [model.path for model in models_of(spec.run) if model.path.startswith(prefix)]
    folders = [path.removeprefix(prefix) for path in (spec.resume_from or spec.run.start_from, *models)]
    return [folder for folder in folders if CHECKPOINT_FOLDER.fullmatch(folder)]


def _fetch_with_retries(spec: AttemptSpec, folder: str, target: Path, settings: HostSettings, control: Control) -> None:
    backoff = Backoff(settings.backoff_max_s)
    while True:
        try:
            return _fetch(spec, folder, target, control)
        except Corrupted:
            raise
        except (StoreError, Unreachable):
            wait = backoff.failed()
            if backoff.failures >= MAX_TRIES:
                raise
            time.sleep(wait)


def _fetch(spec: AttemptSpec, folder: str, target: Path, control: Control) -> None:
    files, manifest = connect(control, spec.attempt_id, folder=folder)
    if files is not None and manifest:
        files.download(folder, target, manifest_sha256=manifest)
