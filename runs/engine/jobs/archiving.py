"""Downloading a model: the job that brings its archive from the host."""

from __future__ import annotations

import re

from controlplane.platform.accounts.models import User
from runs.engine.checkpoints import Checkpoint
from runs.engine.jobs import archives, starting
from runs.engine.models import Run
from workers.contract.run.jobs import ARCHIVE, ArchiveSettings
from workers.contract.wire.documents import ContractError


def start(checkpoint: Checkpoint, user: User, *, card: str) -> Run:
    """The download of this model that is under way or still offered, or a new one. `card`: of README.md.

    Raises ContractError with words for people, and QueueFull.
    """
    if offered := _offered(checkpoint):
        return offered
    try:
        archives.check_room(int(checkpoint.event.data.get("bytes") or 0))
    except archives.NoRoom as error:
        raise ContractError(str(error)) from error
    return starting.start_once(checkpoint, ARCHIVE, user, settings=ArchiveSettings(name_of(checkpoint), card))


def name_of(checkpoint: Checkpoint) -> str:
    """Of the file, and of the folder inside: letters, digits and dashes."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", checkpoint.name)[:100].strip("-.")


def _offered(checkpoint: Checkpoint) -> Run | None:
    jobs = checkpoint.run.jobs.filter(kind=ARCHIVE, spec__start_from=checkpoint.folder).order_by("-created_at")
    return next((job for job in jobs if archives.find(job)), None)
