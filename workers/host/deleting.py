"""Deleting a folder on this host: a checkpoint of an attempt, or all of an attempt that has ended."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from workers.contract.wire.artifacts import ATTEMPT_FOLDER, CHECKPOINT_FOLDER
from workers.settings import HostSettings
from workers.supervisor.processes.folder import AttemptFolder, Lock
from workers.supervisor.reports.control import Control


class NotDeleted(Exception):
    """The folder is still there, or isn't one to delete; a sentence for people."""


def delete_and_tell(folder: str, token: str, settings: HostSettings) -> bool:
    """Delete <run>/<attempt>/checkpoints/checkpoint-N, or <run>/<attempt>, and tell the control plane. True: it is
    gone. `token`: the attempt's. What is gone already is told again."""
    named = CHECKPOINT_FOLDER.fullmatch(folder) or ATTEMPT_FOLDER.fullmatch(folder)
    if named is None:
        raise ValueError(f"{folder!r} is not the folder of a checkpoint or an attempt")
    path = named.groupdict().get("path", "")
    problem = ""
    try:
        if not path:
            _check_ended(AttemptFolder.of(settings.runs_dir, named["run"], int(named["attempt"])))
        delete(folder, settings.runs_dir)
        if not path:
            with suppress(OSError):
                (settings.runs_dir / named["run"]).rmdir()  # with its last attempt
    except NotDeleted as error:
        problem = str(error)
    control = Control.of(settings, token)
    try:
        control.send_deleted(f"{named['run']}-{named['attempt']}", path=path, problem=problem)
    finally:
        control.close()
    return not problem


def _check_ended(folder: AttemptFolder) -> None:
    """Raises NotDeleted."""
    if Lock(folder).is_held():
        raise NotDeleted(f"A process of the run is still at work in {folder.path}.")


def delete(folder: str, runs_dir: Path) -> None:
    """Raises NotDeleted."""
    path = runs_dir / folder
    if os.path.realpath(path) != os.path.join(os.path.realpath(runs_dir), folder):
        raise NotDeleted(f"{path} is a link, or below one: what it leads to is not deleted from here.")
    going = path.with_name(f"deleted-{path.name}")
    try:
        if path.is_dir():
            # First out of the way: half of a model must not look like one.
            shutil.rmtree(going, ignore_errors=True)
            path.rename(going)
        if os.path.lexists(going):
            shutil.rmtree(going)
    except OSError as error:
        raise NotDeleted(f"{error.filename or path} can't be deleted: {error.strerror or error}.") from error
