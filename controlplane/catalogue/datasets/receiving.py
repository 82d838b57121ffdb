"""Storage of an incoming file, which is hashed, limited in size, and removed if anything fails."""

import hashlib
import os
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from django.conf import settings
from django.core.files.uploadedfile import TemporaryUploadedFile

from controlplane.catalogue.datasets.errors import DatasetError, NoSpace, TooLarge
from controlplane.platform.datafolder import incoming

PIECE_BYTES = 2**20


class Readable(Protocol):
    def read(self, size: int = ..., /) -> bytes: ...


@dataclass(frozen=True)
class ReceivedFile:
    path: Path
    bytes: int
    sha256: str


@contextmanager
def receive(source: Readable) -> Iterator[ReceivedFile]:
    """Store a file under a temporary name while the block runs, and then remove it unless it was moved. Raises
    DatasetError if the file is empty, too large or can't be stored."""
    path = incoming_folder() / f"{os.getpid()}-{os.urandom(8).hex()}"
    try:
        try:
            yield _link(source, path) or _copy(source, path)
        except OSError as error:
            raise NoSpace(f"The file could not be stored: {os.strerror(error.errno or 0).lower()}.") from error
    finally:
        path.unlink(missing_ok=True)


def shown_name(name: str) -> str:
    """Clean a file name for display: no path, no control or direction characters, at most 255 characters."""
    base_name = name.replace("\\", "/").rpartition("/")[2]
    clean_name = "".join(c for c in base_name if not unicodedata.category(c).startswith("C")).strip()
    return clean_name[:255] or "upload"


def incoming_folder() -> Path:
    """Return the folder of incomplete files, which is created if necessary."""
    folder = incoming(Path(settings.DATA_DIR))
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def _link(source: Readable, path: Path) -> ReceivedFile | None:
    """Hard-link an upload that platform.http.upload has already stored and hashed in the same folder. Return None for
    any other source, and on file systems without hard links."""
    sha256 = getattr(source, "sha256", "")
    if not isinstance(source, TemporaryUploadedFile) or not sha256 or not source.size:
        return None
    _check_size(source.size)
    with suppress(OSError):
        source.flush()
        os.fsync(source.fileno())
        os.link(source.temporary_file_path(), path)
        return ReceivedFile(path, source.size, sha256)
    source.seek(0)
    return None


def _copy(source: Readable, path: Path) -> ReceivedFile:
    size, digest = 0, hashlib.sha256()
    with path.open("xb") as file:
        while piece := source.read(PIECE_BYTES):
            size += len(piece)
            _check_size(size)
            digest.update(piece)
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    if not size:
        raise DatasetError("The file is empty.")
    return ReceivedFile(path, size, digest.hexdigest())


def _check_size(size: int) -> None:
    limit = settings.DATASET_MAX_BYTES
    if size > limit:
        raise TooLarge(f"The file is larger than {limit // 2**20:,} MiB, the limit of this installation.")
