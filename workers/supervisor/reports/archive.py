"""Upload of a model's archive in parts, read from the model's own files, without a copy of the archive on this host."""

import hashlib
import json
import logging

from workers.contract.run.jobs import ArchiveSettings
from workers.contract.run.spec import AttemptSpec
from workers.contract.wire.documents import ContractError, from_dict
from workers.contract.wire.model_archive import ArchiveError, ModelArchive
from workers.contract.wire.names import FileName
from workers.settings import HostSettings
from workers.supervisor.processes.folder import AttemptFolder
from workers.supervisor.processes.loops import Backoff
from workers.supervisor.reports.control import Control, ControlError, ControlRefused

log = logging.getLogger(__name__)

MAX_PART_BYTES = 2 << 20
"""Maximum size of one request: its time-out requires 1.7 Mbit/s, and Django keeps a body of this size in memory."""
POLL_S = 0.1
DONE_S = 3600.0


class ArchiveUploader:
    """The uploader of one archive. It starts once the trainer has found the model complete, and writes its progress to
    FileName.ARCHIVE_SENT."""

    def __init__(self, folder: AttemptFolder, spec: AttemptSpec, settings: HostSettings, control: Control) -> None:
        self._folder = folder
        self._spec = spec
        self._runs_dir = settings.runs_dir
        self._control = control
        self._backoff = Backoff(settings.backoff_max_s)
        self._archive: ModelArchive | None = None
        self._stored = 0
        self._digest = hashlib.sha256()
        """Hash of the bytes that the control plane has stored."""
        self._ended = False

    def tick(self, now: float) -> float:
        if self._ended:
            return DONE_S
        try:
            if self._archive is None:
                if not (self._folder / FileName.ARCHIVE).exists():
                    return POLL_S
                job = from_dict(ArchiveSettings, self._spec.run.job)
                model = self._runs_dir / self._spec.run.start_from
                self._archive = ModelArchive(model, name=job.name, card=job.card)
            self._send(self._archive)
        except ControlRefused as error:
            self._end(refused=f"The control plane refused the archive: {error.text}")
        except (ArchiveError, ContractError) as error:
            self._end(refused=str(error))
        except ControlError as error:
            log.warning("the archive waits at byte %d: %s", self._stored, error)
            return self._backoff.failed()
        self._backoff.succeeded()
        return 0.0

    def _send(self, archive: ModelArchive) -> None:
        data = archive.read(self._stored, MAX_PART_BYTES)
        size = self._control.send_archive(self._spec.attempt_id, offset=self._stored, of=archive.size, data=data)
        if not self._stored <= size <= self._stored + len(data):
            raise ArchiveError(f"The control plane has {size:,} bytes of the archive, but {self._stored:,} were sent.")
        self._digest.update(data[: size - self._stored])
        self._stored = size
        if size == archive.size:
            self._end(sha256=self._digest.hexdigest())
        else:
            self._write_progress()

    def _end(self, **result: str) -> None:
        self._ended = True
        self._write_progress(**result)

    def _write_progress(self, **result: str) -> None:
        self._folder.write_if_possible(FileName.ARCHIVE_SENT, json.dumps({"size": self._stored, **result}))
