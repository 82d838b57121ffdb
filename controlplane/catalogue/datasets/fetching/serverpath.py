"""Copying of a file, or of a folder of shards, from this server."""

import os
from collections.abc import Sequence
from pathlib import Path

from controlplane.catalogue.datasets.fetching.choosing import NotFetched, kind_of
from controlplane.catalogue.datasets.fetching.joining import BLOCK
from controlplane.catalogue.datasets.reader.progress_file import ProgressFile

STAGE = "copying"


def copy(path: Path, roots: Sequence[Path], folder: Path, limit: int) -> tuple[list[tuple[str, Path]], str]:
    """Copy a file or a folder's shards, and return ([(name, file)] sorted by name, their kind). Raises NotFetched if
    there is nothing to copy, or if a file can't be opened, is outside `roots` or exceeds the limit."""
    files = _shards(path) if path.is_dir() else [path]
    shards: list[tuple[str, Path]] = []
    progress = ProgressFile(folder, STAGE, sum(file.stat().st_size for file in files))
    bytes_copied = 0
    for number, file in enumerate(files):
        target = folder / f"shard{number}"
        bytes_copied += _copy_file(file, roots, target, limit - bytes_copied, progress, bytes_copied)
        shards.append((file.name, target))
    if not bytes_copied:
        raise NotFetched("The file is empty.")
    return shards, kind_of(files[0].name)


def _shards(folder: Path) -> list[Path]:
    files = sorted(file for file in folder.iterdir() if kind_of(file.name) and file.is_file() and not file.is_symlink())
    kinds = sorted({kind_of(file.name) for file in files})
    if not files:
        raise NotFetched("This folder has no file in a supported format: JSON Lines, JSON, CSV, TSV or Parquet.")
    if len(kinds) > 1:
        raise NotFetched(f"This folder has files of several formats: {', '.join(kinds)}.", "Enter the path of a file.")
    return files


def _copy_file(file: Path, roots: Sequence[Path], target: Path, limit: int, progress: ProgressFile, copied: int) -> int:
    try:
        # Don't wait for a pipe's writer, and don't follow a link that was created after the path was checked.
        source = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise NotFetched(
            f"{file.name} can't be opened: {os.strerror(error.errno or 0).lower()}.", passing=True
        ) from error
    with os.fdopen(source, "rb") as source_file:
        real_path = Path(os.readlink(f"/proc/self/fd/{source_file.fileno()}"))
        if not any(root in real_path.parents for root in roots) or not os.path.isfile(real_path):
            raise NotFetched("Only files in the allowed folders of the server may be read.")
        size = 0
        with target.open("xb") as out:
            while piece := source_file.read(BLOCK):
                size += len(piece)
                if size > limit:
                    raise NotFetched("The file is larger than this installation accepts.")
                out.write(piece)
                progress.report(copied + size, 0)
            out.flush()
            os.fsync(out.fileno())
    return size
