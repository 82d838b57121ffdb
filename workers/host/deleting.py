"""Deletes a folder on this host: one checkpoint of an attempt, or the whole folder of an attempt that has ended."""

import os
import shutil
from contextlib import closing, suppress
from pathlib import Path

from workers.contract.wire.artifacts import ATTEMPT_FOLDER, CHECKPOINT_FOLDER
from workers.settings import HostSettings
from workers.supervisor.processes.folder import AttemptFolder, Lock
from workers.supervisor.reports.control import Control


class NotDeleted(Exception):
    """The folder could not or must not be deleted. The message is a sentence for people."""


def delete_and_report(folder: str, token: str, settings: HostSettings) -> bool:
    """Delete <run>/<attempt>/checkpoints/checkpoint-N or <run>/<attempt>, and report the result to the control plane.
    `token`: the attempt's token. Returns whether the folder is gone; deleting a missing folder succeeds. Raises
    ValueError for any other folder."""
    named = CHECKPOINT_FOLDER.fullmatch(folder) or ATTEMPT_FOLDER.fullmatch(folder)
    if named is None:
        raise ValueError(f"{folder!r} is not the folder of a checkpoint or an attempt")
    path = named.groupdict().get("path", "")
    problem = ""
    try:
        if not path:
            attempt = AttemptFolder.of(settings.runs_dir, named["run"], int(named["attempt"]))
            if Lock(attempt).is_held():
                raise NotDeleted(f"A process of the run is still using {attempt.path}.")
        delete(folder, settings.runs_dir)
        if not path:
            with suppress(OSError):
                (settings.runs_dir / named["run"]).rmdir()  # with its last attempt
    except NotDeleted as error:
        problem = str(error)
    with closing(Control.of(settings, token)) as control:
        control.send_deleted(f"{named['run']}-{named['attempt']}", path=path, problem=problem)
    return not problem


def delete(folder: str, runs_dir: Path) -> None:
    """Delete a folder below `runs_dir`. Raises NotDeleted."""
    path = runs_dir / folder
    if os.path.realpath(path) != os.path.join(os.path.realpath(runs_dir), folder):
        raise NotDeleted(f"{path} is a link or lies below one. The control plane does not delete what links lead to.")
    renamed = path.with_name(f"deleted-{path.name}")
    try:
        if path.is_dir():
            # Renamed first: a partly deleted model must not look like a model.
            shutil.rmtree(renamed, ignore_errors=True)
            path.rename(renamed)
        if os.path.lexists(renamed):
            shutil.rmtree(renamed)
    except OSError as error:
        raise NotDeleted(f"{error.filename or path} can't be deleted: {error.strerror or error}.") from error
