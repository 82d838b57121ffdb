"""Downloads of models: the job that sends an archive, and the archives in the data folder, which are received in parts,
offered for KEPT_FOR, then removed. No table lists them: the files are <job's run id>.tar, or .tar.part while
incomplete. The host sends their content; the job's result has the checksum."""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from django.conf import settings

from controlplane.platform.accounts.models import User
from controlplane.platform.datafolder import FULL_DISK_ERRORS
from runs.engine.checkpoints import Checkpoint
from runs.engine.jobs import starting
from runs.engine.models import Attempt, Run
from runs.engine.states import ACTIVE
from workers.contract.run.jobs import ARCHIVE, ArchiveSettings
from workers.contract.wire.documents import ContractError

SUFFIX, PART_SUFFIX = ".tar", ".tar.part"
KEPT_FOR = timedelta(hours=24)
MIN_FREE = 1 << 30
"""Bytes that must stay free on the data folder's disk."""


class NoRoom(Exception):
    """The archive doesn't fit on the control plane; the message says why."""


@dataclass(frozen=True)
class Archive:
    path: Path
    size: int
    until: datetime


def start(checkpoint: Checkpoint, user: User, *, card: str) -> Run:
    """Start the download of a model, or return the one that is in progress or still offered. `card` is the content of
    its README.md. Raises ContractError if the checkpoint can't be used or there is no room for the archive, and
    QueueFull if this user may not queue more runs."""
    jobs = checkpoint.run.jobs.filter(kind=ARCHIVE, spec__start_from=checkpoint.folder).order_by("-created_at")
    if offered_job := next((job for job in jobs if find(job)), None):
        return offered_job
    try:
        check_room(int(checkpoint.event.data.get("bytes") or 0))
    except NoRoom as error:
        raise ContractError(str(error)) from error
    return starting.start_once(checkpoint, ARCHIVE, user, settings=ArchiveSettings(name_of(checkpoint), card))


def name_of(checkpoint: Checkpoint) -> str:
    """Build the name of a model's archive and of its folder: letters, digits, dots, underscores and dashes only."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", checkpoint.name)[:100].strip("-.")


def find(job: Run) -> Archive | None:
    """Find a job's archive; return None if it is incomplete or was removed."""
    path = path_of(job)
    try:
        stat = path.stat()
    except FileNotFoundError:
        return None
    return Archive(path, stat.st_size, datetime.fromtimestamp(stat.st_mtime, UTC) + KEPT_FOR)


def path_of(job: Run, ending: str = SUFFIX) -> Path:
    return _folder() / f"{job.pk}{ending}"


def check_room(size: int) -> None:
    """Raise NoRoom if an archive of `size` bytes exceeds the free disk space or the limit for all archives."""
    stored_bytes = sum(stat.st_size for _, stat in _files())
    if stored_bytes + size > settings.ARCHIVES_MAX_BYTES:
        limit = settings.ARCHIVES_MAX_BYTES
        raise NoRoom(
            f"Archives may take up to {limit / 1e9:.0f} GB on the control plane (CONTROLPLANE_ARCHIVES_MAX_GB). They "
            f"already take {stored_bytes / 1e9:.1f} GB, and this one needs {size / 1e9:.1f} GB."
        )
    free_bytes = shutil.disk_usage(settings.DATA_DIR).free - MIN_FREE
    if size > free_bytes:
        free_gb = max(0, free_bytes) / 1e9
        raise NoRoom(f"The archive needs {size / 1e9:.1f} GB on the control plane, where {free_gb:.1f} GB are free.")


def store(job: Run, offset: int, data: bytes, *, total_bytes: int) -> int:
    """Store bytes at `offset` of an archive unless they would leave a gap, and return the number of bytes stored so
    far. Raises NoRoom if there is no room for the whole archive."""
    archive_path, part_path = path_of(job), path_of(job, PART_SUFFIX)
    if archive_path.exists():
        return total_bytes
    stored_bytes = part_path.stat().st_size if part_path.exists() else 0
    if offset > stored_bytes:
        return stored_bytes
    try:
        check_room(total_bytes - stored_bytes)
        if not stored_bytes:
            part_path.parent.mkdir(mode=0o700, exist_ok=True)
        _write(part_path, offset, data)
    except OSError as error:
        if error.errno not in FULL_DISK_ERRORS:
            raise
        part_path.unlink(missing_ok=True)
        raise NoRoom("The control plane's disk is full, so the archive was discarded.") from error
    stored_bytes = max(stored_bytes, offset + len(data))
    if stored_bytes == total_bytes:
        part_path.replace(archive_path)
    return stored_bytes


def tidy(now: datetime) -> None:
    """Delete expired archives, and incomplete ones whose job has ended."""
    for path, stat in _files():
        if path.name.endswith(SUFFIX):
            is_expired = datetime.fromtimestamp(stat.st_mtime, UTC) + KEPT_FOR <= now
        else:
            job = path.name.removesuffix(PART_SUFFIX)
            is_expired = not Attempt.objects.filter(run_id=job, status__in=ACTIVE).exists()
        if is_expired:
            path.unlink(missing_ok=True)


def _write(part: Path, offset: int, data: bytes) -> None:
    """Write data at an offset instead of appending it, since two requests may send the same bytes at once."""
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while data:
            written_bytes = os.pwrite(descriptor, data, offset)
            offset, data = offset + written_bytes, data[written_bytes:]
    finally:
        os.close(descriptor)


def _files() -> Iterator[tuple[Path, os.stat_result]]:
    """Yield the archives, complete or not. Other processes may rename or delete them at any time."""
    for path in _folder().glob("*"):
        if path.name.endswith((SUFFIX, PART_SUFFIX)):
            with suppress(FileNotFoundError):
                yield path, path.stat()


def _folder() -> Path:
    return Path(settings.DATA_DIR) / "archives"
