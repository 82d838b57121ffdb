"""Upload of a checkpoint to the artifact store after its run has ended, if the run could not upload it itself."""

import os
from contextlib import closing
from threading import Thread

from workers.contract.wire.artifacts import CHECKPOINT_FOLDER, Storing
from workers.settings import HostSettings
from workers.supervisor import commands
from workers.supervisor.processes.child import spawn
from workers.supervisor.processes.folder import AttemptFolder
from workers.supervisor.reports.control import Control


def store_and_report(folder: str, token: str, settings: HostSettings) -> bool:
    """Start a process that uploads <run>/<attempt>/checkpoints/checkpoint-N and reports to the control plane. If the
    checkpoint is not on this host, report that and return False. `token`: the attempt's token."""
    match = CHECKPOINT_FOLDER.fullmatch(folder)
    if match is None:
        raise ValueError(f"{folder!r} is not the folder of a checkpoint")
    if not (settings.runs_dir / folder).is_dir():
        attempt_id, path = f"{match['run']}-{match['attempt']}", match["path"]
        problem = f"{path} is no longer on {settings.name}."
        with closing(Control.of(settings, token)) as control:
            control.send_stored(attempt_id, path=path, state=Storing.FAILED, problem=problem)
        return False
    attempt = AttemptFolder.of(settings.runs_dir, match["run"], int(match["attempt"]))
    argv = commands.storing_argv(attempt.path, finish=True, only_step=match["path"])
    environment = commands.storing_environment(settings, os.environ)
    process = spawn(argv, environment, attempt, "supervisor", stdin=token.encode())
    Thread(target=process.wait, daemon=True).start()  # reaps the process
    return True
