"""Deletion of a folder on this host: one checkpoint of an attempt, or the whole folder of an attempt that has ended."""

import os
import shutil
from contextlib import closing, suppress
from pathlib import Path

from workers.contract.wire.artifacts import ATTEMPT_FOLDER, CHECKPOINT_FOLDER
from workers.settings import HostSettings
from workers.supervisor.processes.folder import AttemptFolder, Lock
from workers.supervisor.reports.control import Control


class NotDeleted(Exception):
    """Error for a folder that can't or mustn't be deleted. The message is a sentence for people."""


def delete_and_report(folder: str, token: str, settings: HostSettings) -> bool:
    """Delete <run>/<attempt>/checkpoints/checkpoint-N or <run>/<attempt>, and report the result to the control plane.
    Return whether the folder is gone; deleting a missing folder succeeds. `token`: the attempt's token. Raises
    ValueError for any other folder."""
    match = CHECKPOINT_FOLDER.fullmatch(folder) or ATTEMPT_FOLDER.fullmatch(folder)
    if match is None:
        raise ValueError(f"{folder!r} is not the folder of a checkpoint or an attempt")
    path = match.groupdict().get("path", "")
    problem = ""
    try:
        if not path:
            attempt = AttemptFolder.of(settings.runs_dir, match["run"], int(match["attempt"]))
            if Lock(attempt).is_held():
                raise NotDeleted(f"A process of the run is still using {attempt.path}.")
        delete(folder, settings.runs_dir)
        if not path:
            with suppress(OSError):
                (settings.runs_dir / match["run"]).rmdir()  # with its last attempt
    except NotDeleted as error:
        problem = str(error)
    with closing(Control.of(settings, token)) as control:
        control.send_deleted(f"{match['run']}-{match['attempt']}", path=path, problem=problem)
    return not problem


def delete(folder: str, runs_dir: Path) -> None:
    """Delete a folder below `runs_dir`. Raises NotDeleted if it can't be deleted, or if it is a link or below one."""
    path = runs_dir / folder
    if os.path.realpath(path) != os.path.join(os.path.realpath(runs_dir), folder):
        raise NotDeleted(f"{path} is a link or is below one. The control plane doesn't delete the targets of links.")
    renamed_path = path.with_name(f"deleted-{path.name}")
    try:
        if path.is_dir():
            # Renamed first: a partly deleted model must not look like a model.
            shutil.rmtree(renamed_path, ignore_errors=True)
            path.rename(renamed_path)
        if os.path.lexists(renamed_path):
            shutil.rmtree(renamed_path)
    except OSError as error:
        raise NotDeleted(f"{error.filename or path} can't be deleted: {error.strerror or error}.") from error
