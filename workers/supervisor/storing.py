"""python -m workers.supervisor.storing FOLDER: upload an attempt's checkpoints.

A separate process, so that a slow store delays neither the supervisor's ticks nor a stop. The attempt's token comes on
standard input; the control plane signs each request to the store, so this process has no keys.
"""

import argparse
import logging
import os
import sys
import time
from pathlib import Path

from workers.artifactstore import ArtifactStore, FolderChanged, StoreError
from workers.contract.wire.artifacts import Storing
from workers.contract.wire.names import EventKind, FileName
from workers.settings import HostSettings
from workers.supervisor.inputs import restoring
from workers.supervisor.processes import procfs
from workers.supervisor.processes.folder import AttemptFolder
from workers.supervisor.processes.loops import Backoff
from workers.supervisor.reports.control import Control, ControlRefused, Unreachable
from workers.supervisor.reports.tail import Tail
from workers.supervisor.reports.trainerlines import trainer_line

log = logging.getLogger("workers.supervisor.storing")

POLL_S = 1.0
MAX_PAUSE_S = 60.0
MAX_LAST_TRIES = 3
"""Number of consecutive failures after which uploads are given up once the run has ended."""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m workers.supervisor.storing", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--finish", action="store_true", help="the run has ended: exit when everything is stored")
    parser.add_argument("--only", metavar="PATH", help="upload only this checkpoint of the attempt's folder")
    options = parser.parse_args(argv)
    procfs.become_undumpable()
    token = sys.stdin.read().strip()
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.INFO)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    folder = AttemptFolder(options.folder)
    uploader = Uploader(folder, Control.of(HostSettings.from_env(), token, follow=True), only_step=options.only)
    parent = os.getppid()
    while True:
        pause = uploader.tick()
        if options.finish and uploader.is_finished:
            return 0
        if os.getppid() != parent:
            return 0  # the supervisor is gone; the reaper will end the attempt
        time.sleep(pause)


class Uploader:
    """The uploader of checkpoints, newest first. It follows the trainer's lines, and removes what the trainer
    removed."""

    def __init__(self, folder: AttemptFolder, control: Control, *, only_step: str | None = None) -> None:
        self._only = only_step
        self._folder = folder
        self._control = control
        spec = folder.read_spec()
        self._attempt = spec.attempt_id
        self._name = f"{spec.run.run_id}/{spec.number}"
        self._lines = Tail(folder / FileName.METRICS, trainer_line)
        self._backoff = Backoff(MAX_PAUSE_S)
        self._waiting: dict[int, str] = {}
        """Step -> path of each checkpoint to upload."""
        self._stored: dict[int, str] = {}
        self._tried = set[int]()
        """Steps whose files the store may hold."""
        self._obsolete: dict[int, str] = {}
        """Step -> path of each checkpoint to remove from the store."""

    @property
    def is_finished(self) -> bool:
        return not (self._waiting or self._obsolete) or self._backoff.failures >= MAX_LAST_TRIES

    def tick(self) -> float:
        """Upload or remove one checkpoint; return the seconds until the next tick."""
        self._read()
        if not (self._waiting or self._obsolete):
            return POLL_S
        try:
            self._change_store()
        except (StoreError, Unreachable) as error:
            log.warning("%s", error)
            return self._backoff.failed()
        self._backoff.succeeded()
        return 0.0

    def _change_store(self) -> None:
        """Remove or upload one checkpoint, and report a failed upload. Raises StoreError if the store fails or refuses,
        and Unreachable if the control plane can't be reached."""
        step = max(self._waiting, default=None)
        try:
            files = self._connect()
            if self._obsolete:
                obsolete, path = next(iter(self._obsolete.items()))
                files.remove(f"{self._name}/{path}")
                self._report(path, Storing.REMOVED)
                self._obsolete.pop(obsolete)
            elif step is not None:
                self._upload(files, step)
        except StoreError as error:
            if step is not None and not self._obsolete:
                self._report(self._waiting[step], Storing.FAILED, problem=str(error))
            raise

    def _read(self) -> None:
        for line in self._lines.read():
            data = line.data() or {}
            if line.kind != EventKind.CHECKPOINT or self._only not in (None, data["path"]):
                continue
            self._waiting[data["step"]] = data["path"]
            remaining = data.get("kept")
            steps = {*self._waiting, *self._stored}
            for step in steps.difference(remaining if isinstance(remaining, list) else steps):
                path = self._waiting.pop(step, "") or self._stored.pop(step, "")
                if step in self._tried:
                    self._obsolete[step] = path

    def _connect(self) -> ArtifactStore:
        store, _ = restoring.connect(self._control, self._attempt)
        if store is None:
            raise StoreError("The artifact store no longer exists: an admin removed it under Settings, Secrets.")
        return store

    def _upload(self, files: ArtifactStore, step: int) -> None:
        path = self._waiting[step]
        self._tried.add(step)
        self._report(path, Storing.UPLOADING)
        try:
            manifest = files.upload(self._folder / path, f"{self._name}/{path}")
        except FolderChanged as error:
            log.info("%s no longer exists: %s", path, error)
            self._waiting.pop(step)
            self._obsolete[step] = path  # some files may have been uploaded
            return
        self._report(path, Storing.STORED, manifest=manifest)
        self._stored[step] = self._waiting.pop(step)

    def _report(self, path: str, state: Storing, *, problem: str = "", manifest: str = "") -> None:
        try:
            self._control.send_stored(self._attempt, path=path, state=state, problem=problem, manifest=manifest)
        except ControlRefused as error:
            log.warning("the control plane does not accept state %s of %s: %s", state, path, error)


if __name__ == "__main__":
    sys.exit(main())
