"""The upload of a checkpoint to the artifact store after its run's end, when the run's own process could not do it."""

from __future__ import annotations

import os
import subprocess
from threading import Thread

from workers.contract.wire.artifacts import CHECKPOINT_FOLDER, Storing
from workers.settings import HostSettings
from workers.supervisor import commands
from workers.supervisor.processes.folder import AttemptFolder
from workers.supervisor.reports.control import Control


def store_and_tell(folder: str, token: str, settings: HostSettings) -> bool:
    """Start the upload of <run>/<attempt>/checkpoints/checkpoint-N, which tells the control plane itself. False: it
    isn't here. `token`: the attempt's."""
    named = CHECKPOINT_FOLDER.fullmatch(folder)
    if named is None:
        raise ValueError(f"{folder!r} is not the folder of a checkpoint")
    if not (settings.runs_dir / folder).is_dir():
        _tell_missing(f"{named['run']}-{named['attempt']}", named["path"], token, settings)
        return False
    attempt = AttemptFolder.of(settings.runs_dir, named["run"], int(named["attempt"]))
    with open(attempt.log("supervisor"), "ab") as log_file:
        process = subprocess.Popen(
            commands.storing_argv(attempt.path, finish=True, only=named["path"]),
            env=commands.storing_environment(settings, os.environ),
            cwd=attempt.path,
            stdin=subprocess.PIPE,
            stdout=log_file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    if process.stdin is not None:
        with process.stdin:
            process.stdin.write(token.encode())
    Thread(target=process.wait, daemon=True).start()  # so that it leaves no zombie
    return True


def _tell_missing(attempt_id: str, path: str, token: str, settings: HostSettings) -> None:
    problem = f"{path} is no longer on {settings.name}."
    control = Control.of(settings, token)
    try:
        control.send_stored(attempt_id, path=path, state=Storing.FAILED, problem=problem)
    finally:
        control.close()
