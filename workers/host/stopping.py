"""Stop requests pushed to this host: written to where the supervisor polls at each tick."""

from __future__ import annotations

from workers.contract.wire.names import FileName, StopMode
from workers.settings import HostSettings
from workers.supervisor.processes.folder import AttemptFolder


def ask_to_stop(run_id: str, number: int, mode: StopMode, settings: HostSettings) -> bool:
    """Write a stop request for the supervisor. False: the attempt is not here (yet); the answer to its claim will
    include the stop."""
    folder = AttemptFolder.of(settings.runs_dir, run_id, number)
    if not folder.path.is_dir():
        return False
    if folder.stop_request() != StopMode.NOW:
        folder.write(FileName.STOP_REQUEST, mode)
    return True
