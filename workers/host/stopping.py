"""A stop that was pushed to this host: the request is left where the supervisor looks for it at each tick."""

from __future__ import annotations

from workers.contract import FileName, StopMode
from workers.host.settings import HostSettings
from workers.supervisor.folder import AttemptFolder


def ask_to_stop(run_id: str, number: int, mode: StopMode, settings: HostSettings) -> bool:
    """stop_run's flow: leave the request where the supervisor looks at each tick. False: there is no such attempt
    here (yet), and its claim's answer will carry the stop."""
    folder = AttemptFolder.of(settings.runs_dir, run_id, number)
    if not folder.path.is_dir():
        return False
    if folder.stop_request() != StopMode.NOW:
        folder.write(FileName.STOP_REQUEST, mode)
    return True
