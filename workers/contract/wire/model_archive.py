"""A model's files as one tar: what goes into it, and any part of its bytes. Standard library only.

The bytes depend on nothing but the files' names and contents, so that any part can be read again: an upload continues
where it was interrupted, and two archives of the same model have the same checksum.
"""

import tarfile
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from workers.contract.wire import hub_files

CARD = "README.md"
TRAINER_FILES = frozenset({"trainer_state.json", "versions.json"})
"""JSON files of the trainer, which don't belong to the model."""
WEIGHTS = ".safetensors"
_END = b"\0" * (2 * tarfile.BLOCKSIZE)


class ArchiveError(Exception):
    """Error of a model with nothing to archive, or of a changed file; its message is shown to people."""


def model_files(folder: Path) -> list[Path]:
    """List the model's own files, by name: never a pickle, a link, or the trainer's state."""
    names = (path for path in folder.iterdir() if hub_files.is_needed(path.name) and path.name not in TRAINER_FILES)
    return sorted(path for path in names if path.is_file() and not path.is_symlink())


@dataclass(frozen=True)
class _Part:
    content: bytes | Path
    size: int


class ModelArchive:
    """Tar of a model's files, in the folder `name` and with `card` as README.md. Raises ArchiveError if the files can't
    be read or have no safetensors weights."""

    def __init__(self, folder: Path, *, name: str, card: str) -> None:
        try:
            files: list[tuple[str, bytes | Path, int]] = [
                (path.name, path, path.stat().st_size) for path in model_files(folder)
            ]
        except OSError as error:
            raise ArchiveError(f"{folder.name} can't be read: {error.strerror or error}.") from error
        if not any(name.endswith(WEIGHTS) for name, _, _ in files):
            raise ArchiveError(f"{folder.name} has no safetensors weights, and nothing else is archived.")
        card_bytes = card.encode()
        parts: list[_Part] = []
        for file, content, size in sorted([*files, (CARD, card_bytes, len(card_bytes))]):
            parts += _entry(f"{name}/{file}", content, size)
        self._parts = [*parts, _Part(_END, len(_END))]
        self._starts = [0, *accumulate(part.size for part in self._parts)]

    @property
    def size(self) -> int:
        return self._starts[-1]

    def read(self, offset: int, limit: int) -> bytes:
        """Read `limit` bytes from `offset` on; fewer only at the end. Raises ArchiveError if a file has changed."""
        pieces: list[bytes] = []
        index = bisect_right(self._starts, offset) - 1
        while limit > 0 and index < len(self._parts):
            start = offset - self._starts[index]
            piece = _read(self._parts[index], start, min(limit, self._parts[index].size - start))
            pieces.append(piece)
            offset, limit, index = offset + len(piece), limit - len(piece), index + 1
        return b"".join(pieces)


def _entry(name: str, content: bytes | Path, size: int) -> Sequence[_Part]:
    info = tarfile.TarInfo(name)  # no owner, no time
    info.size, info.mode = size, 0o644
    header = info.tobuf(tarfile.GNU_FORMAT)  # files may be larger than 8 GiB
    padding = b"\0" * (-size % tarfile.BLOCKSIZE)
    parts = (_Part(header, len(header)), _Part(content, size), _Part(padding, len(padding)))
    return [part for part in parts if part.size]


def _read(part: _Part, offset: int, length: int) -> bytes:
    if isinstance(part.content, bytes):
        return part.content[offset : offset + length]
    try:
        with open(part.content, "rb") as file:
            file.seek(offset)
            piece = file.read(length)
    except OSError as error:
        raise ArchiveError(f"{part.content.name} can't be read: {error.strerror or error}.") from error
    if len(piece) != length:
        raise ArchiveError(f"{part.content.name} was truncated while it was read.")
    return piece
