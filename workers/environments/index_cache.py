"""Cache of BM25 indexes on disk, which are built once next to their corpus and memory-mapped by every process.

<corpus>.index/ has a folder for each of the MAX_SETTINGS most recently used settings. One process builds an index while
others wait for its lock; a folder gets its name when it is complete. The cache is deleted with the corpus's folder, and
on a host when the attempt has ended. If it can't be written (a full disk, another owner), each process builds an index
in memory.
"""

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

MAX_SETTINGS = 3
_TAIL_BYTES = 64 * 2**10
"""Number of bytes at the end of a Parquet file that identify it: the footer has sizes and bounds of all data."""


def open_index(corpus: Path, documents: int, setting: str, build: Callable[[], Any]) -> Any:
    """Load a corpus's index (a bm25s.BM25) from the cache, or build and cache it. `setting`: everything that the index
    depends on, except the file. `build`: returns an index, or None if there is nothing to index."""
    folder = corpora.index_folder(corpus) / _name(corpus, setting)
    if (index := _load(folder, documents)) is not None:
        return index
    with _locked(folder.parent) as may_write:
        if may_write and (index := _load(folder, documents)) is not None:
            return index  # another process has built it since
        built = build()
        if not may_write or built is None:
            return built
        try:
            _store(built, folder)
        except (OSError, ValueError):
            return built
    return _load(folder, documents) or built


def _name(corpus: Path, setting: str) -> str:
    import bm25s

    with corpus.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TAIL_BYTES))
        digest = hashlib.sha256(f"{bm25s.__version__} {setting} {size} ".encode() + file.read())
    return digest.hexdigest()[:32]


def _load(folder: Path, documents: int) -> Any:
    import bm25s

    try:
        index = bm25s.BM25.load(folder, mmap=True, allow_pickle=False)
        scores = index.scores
        is_complete = scores["num_docs"] == documents and len(scores["indptr"]) == len(index.vocab_dict) + 1
        if not is_complete or not len(scores["data"]) == len(scores["indices"]) == scores["indptr"][-1]:
            return None
        os.utime(folder)
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return index


@contextmanager
def _locked(parent: Path) -> Iterator[bool]:
    lock = -1
    with suppress(OSError):
        parent.mkdir(mode=0o700, exist_ok=True)
        lock = os.open(parent / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        yield lock >= 0
    finally:
        if lock >= 0:
            os.close(lock)


def _store(index: Any, folder: Path) -> None:
    draft = folder.with_name(f"draft-{os.getpid()}-{threading.get_ident()}")
    try:
        index.save(draft, allow_pickle=False, show_progress=False)
        for path in draft.iterdir():
            with path.open("rb") as file:
                os.fsync(file.fileno())
        shutil.rmtree(folder, ignore_errors=True)  # a damaged one
        draft.replace(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    _delete_oldest(folder.parent)


def _delete_oldest(folder: Path) -> None:
    """Delete the least recently used settings, and drafts of processes that died. The caller holds the lock."""
    used_at = {path: path.stat().st_mtime for path in folder.iterdir() if path.is_dir()}
    complete = [path for path in used_at if not path.name.startswith("draft-")]
    complete.sort(key=used_at.__getitem__, reverse=True)
    for path in used_at.keys() - set(complete[:MAX_SETTINGS]):
        shutil.rmtree(path, ignore_errors=True)
