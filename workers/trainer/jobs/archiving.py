"""The archive of a model's files, checked here and sent by the supervisor, since this process has no token."""

import time

from workers.contract.run.jobs import ArchiveSettings
from workers.contract.wire.model_archive import ArchiveError, ModelArchive
from workers.contract.wire.names import FileName
from workers.trainer.configuration.spec import SpecError
from workers.trainer.jobs import ModelJob, megabytes

POLL_S = 0.1


def run(job: ModelJob, settings: ArchiveSettings) -> None:
    """Let the supervisor send the archive, and report progress. Raises SpecError if there is nothing to send or it is
    refused."""
    try:
        archive = ModelArchive(job.checkpoint, name=settings.name, card=settings.card)
    except ArchiveError as error:
        raise SpecError(str(error)) from error
    job.stage("sending the archive")
    job.begin(megabytes(archive.size))
    (job.folder / FileName.ARCHIVE).touch()
    while "sha256" not in (transfer := job.document(FileName.ARCHIVE_SENT)):
        if transfer.get("refused"):
            raise SpecError(transfer["refused"])
        job.progress(min(megabytes(transfer.get("size", 0)), job.total - 1))
        time.sleep(POLL_S)
    job.progress(job.total)
    job.result("Ready to download.", size=archive.size, sha256=transfer["sha256"])
