"""The warm server that an attempt uses instead of its own: another attempt on this host, known by its folder."""

from workers.contract.run.spec import AttemptSpec, WarmPlace
from workers.contract.stack.warm import model_files
from workers.contract.wire.names import FileName
from workers.settings import HostSettings
from workers.supervisor.processes import procfs
from workers.supervisor.processes.folder import AttemptFolder, Lock

OTHER_FILES = (
    "The model's files on the host have changed since the warm server was started, so it has different weights. It "
    "will end automatically; launch the run again to get a server with the new files."
)


class WarmLease:
    def __init__(self, place: WarmPlace, settings: HostSettings) -> None:
        run_id, _, number = place.attempt_id.rpartition("-")
        self.attempt_id = place.attempt_id
        self._folder = AttemptFolder.of(settings.runs_dir, run_id, int(number))

    def tree(self) -> set[int]:
        """Return the pids of the warm server's live processes, as its supervisor last recorded them."""
        return {process.pid for process in self._folder.recorded() if procfs.identity(process.pid) == process}

    def has_ended(self) -> bool:
        """Return whether the server will never respond again: its end is recorded, or its supervisor is gone."""
        return self._folder.has_ended() or (self._folder.was_started() and not Lock(self._folder).is_held())

    def files(self) -> str:
        """Return the fingerprint of the model's files when the server was started, or "" until it is written."""
        try:
            return (self._folder / FileName.MODEL_FILES).read_text()
        except OSError:
            return ""


def files_of(spec: AttemptSpec) -> str:
    """Return the fingerprint of the model's files that are on this host now."""
    return model_files(spec.run.model.path, spec.run.model.revision)
