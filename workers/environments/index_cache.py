"""BM25 indexes on disk beside their corpus: built once, memory-mapped by every process that searches there.

<corpus>.index/ has a folder for each setting that was asked for, the MOST_KEPT used last. One process builds while the
others wait for its lock; a folder gets its name when it is whole. It goes with the corpus's folder, and on a host when
the attempt has ended. Where it can't be written (a full disk, another owner), each process builds its own in memory.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from workers.contract.run import corpora

MOST_KEPT = 3
"""Settings of one corpus."""
_TAIL = 64 * 2**10
"""Bytes at a Parquet file's end: its footer, with the sizes and bounds of all that stands before."""


def opened(corpus: Path, documents: int, setting: str, build: Callable[[], Any]) -> Any:
    """The index (a bm25s.BM25) of a corpus. `setting`: all that it depends on besides the file. `build` may give None
    where there is nothing to index."""
    place = corpora.index_folder(corpus) / _name(corpus, setting)
    if (found := _loaded(place, documents)) is not None:
        return found
    with _alone(place.parent) as may_write:
        if may_write and (found := _loaded(place, documents)) is not None:
            return found  # another process has built it meanwhile
        built = build()
        if not may_write or built is None:
            return built
        try:
            _store(built, place)
        except (OSError, ValueError):
            return built
    return _loaded(place, documents) or built


def _name(corpus: Path, setting: str) -> str:
    import bm25s

    with corpus.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TAIL))
        digest = hashlib.sha256(f"{bm25s.__version__} {setting} {size} ".encode() + file.read())
    return digest.hexdigest()[:32]


def _loaded(place: Path, documents: int) -> Any:
    """None: it isn't there, or is damaged."""
    import bm25s

    try:
        found = bm25s.BM25.load(place, mmap=True, allow_pickle=False)
        scores = found.scores
        whole = scores["num_docs"] == documents and len(scores["indptr"]) == len(found.vocab_dict) + 1
        if not whole or not len(scores["data"]) == len(scores["indices"]) == scores["indptr"][-1]:
            return None
        os.utime(place)
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return found


@contextmanager
def _alone(folder: Path) -> Iterator[bool]:
    """Whether the block may write into the folder, which then no other process does."""
    lock = -1
    with suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        yield lock >= 0
    finally:
        if lock >= 0:
            os.close(lock)


def _store(index: Any, place: Path) -> None:
    draft = place.with_name(f"draft-{os.getpid()}-{threading.get_ident()}")
    try:
        index.save(draft, allow_pickle=False, show_progress=False)
        for path in draft.iterdir():
            with path.open("rb") as file:
                os.fsync(file.fileno())
        shutil.rmtree(place, ignore_errors=True)  # a damaged one
        draft.replace(place)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    _make_room(place.parent)


def _make_room(folder: Path) -> None:
    """Without the oldest settings, and drafts of processes that died: nobody else writes here now."""
    used = {path: path.stat().st_mtime for path in folder.iterdir() if path.is_dir()}
    whole = sorted((path for path in used if not path.name.startswith("draft-")), key=used.__getitem__, reverse=True)
    for path in used.keys() - set(whole[:MOST_KEPT]):
        shutil.rmtree(path, ignore_errors=True)
