"""Word that somebody has opened a run's page, left where the supervisor looks at each tick."""

from __future__ import annotations

from workers.contract.wire.names import FileName
from workers.settings import HostSettings
from workers.supervisor.processes.folder import AttemptFolder


def say_watched(run_id: str, number: int, settings: HostSettings) -> bool:
    """False: the attempt is not here, or has ended."""
    folder = AttemptFolder.of(settings.runs_dir, run_id, number)
    if not folder.path.is_dir() or folder.has_ended():
        return False
    folder.write_if_possible(FileName.WATCHED, "")
    return True
