"""Checks a model's files, and has its supervisor send their archive: this process has no token."""

from __future__ import annotations

import json
import time
from typing import Any

from workers.contract.run.jobs import ArchiveSettings
from workers.contract.wire.documents import from_dict
from workers.contract.wire.model_archive import ArchiveError, ModelArchive
from workers.contract.wire.names import FileName
from workers.trainer.configuration.spec import SpecError
from workers.trainer.jobs import Job

POLL_S = 0.1


def run(job: Job) -> None:
    """Raises SpecError if there is nothing to send, or if the archive is refused."""
    settings = from_dict(ArchiveSettings, job.spec.run.job)
    try:
        archive = ModelArchive(job.checkpoint, name=settings.name, card=settings.card)
    except ArchiveError as error:
        raise SpecError(str(error)) from error
    job.stage("sending the archive")
    job.begin(_mb(archive.size))
    (job.folder / FileName.ARCHIVE).touch()
    while "sha256" not in (sent := _sent(job)):
        if sent.get("refused"):
            raise SpecError(sent["refused"])
        job.progress(min(_mb(sent.get("size", 0)), job.total - 1))
        time.sleep(POLL_S)
    job.progress(job.total)
    job.result("Ready to download.", size=archive.size, sha256=sent["sha256"])


def _sent(job: Job) -> dict[str, Any]:
    try:
        return dict(json.loads((job.folder / FileName.ARCHIVE_SENT).read_bytes()))
    except FileNotFoundError:
        return {}


def _mb(size: int) -> int:
    return -(-size // 10**6)
