"""Observation of a download from outside: how much is in the cache, and whether it is growing."""

import contextlib
import fcntl
import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from workers.contract.wire import hub_files

if TYPE_CHECKING:
    from huggingface_hub.hf_api import ModelInfo

WRITE_EVERY_S = 1.0
ABANDONED_S = 300.0
"""Age in seconds from which a partial file with a free lock must have been left by a killed download."""


@dataclass(frozen=True)
class HubFile:
    name: str
    size: int
    blob: str | None


@dataclass(frozen=True)
class CacheState:
    """Amount of a model's data that is in the cache."""

    received: int
    files: int
    activity: int
    """Number that changes with anything of this model that the cache receives, from any process."""


@dataclass(frozen=True)
class FileListing:
    """The files of a commit that a run needs."""

    storage: Path
    commit: str
    files: tuple[HubFile, ...]

    @classmethod
    def of(cls, model: str, info: "ModelInfo") -> "FileListing":
        files = []
        for sibling in info.siblings or []:
            if hub_files.is_needed(sibling.rfilename):
                blob = sibling.lfs.sha256 if sibling.lfs else sibling.blob_id
                size = (sibling.lfs.size if sibling.lfs else sibling.size) or 0
                files.append(HubFile(sibling.rfilename, size, blob))
        return cls(cache() / f"models--{model.replace('/', '--')}", info.sha or "", tuple(files))

    @property
    def total(self) -> int:
        return sum(file.size for file in self.files)

    def cached(self) -> CacheState:
        partial = self._partial()
        complete = [file for file in self.files if self._is_whole(file)]
        sizes = {file.blob: file.size for file in self.files if file not in complete}
        received = sum(file.size for file in complete)
        received += sum(min(size, sizes[blob]) for blob, size in partial.items() if blob in sizes)
        return CacheState(received, len(complete), sum(partial.values()) + len(complete))

    def discard_abandoned(self) -> None:
        """Delete abandoned partial files, which no download ever resumes, because each uses new names."""
        for path in (self.storage / "blobs").glob("*.incomplete"):
            lock = self.storage.parent / ".locks" / self.storage.name / f"{path.name.partition('.')[0]}.lock"
            try:
                if time.time() - path.stat().st_mtime > ABANDONED_S and _is_free(lock):
                    path.unlink()
            except FileNotFoundError:
                continue

    def _is_whole(self, file: HubFile) -> bool:
        if (self.storage / "snapshots" / self.commit / file.name).exists():
            return True
        return file.blob is not None and (self.storage / "blobs" / file.blob).exists()

    def _partial(self) -> dict[str, int]:
        """Return the bytes on disk of the largest partial file of each content, by content name."""
        sizes: dict[str, int] = {}
        for path in (self.storage / "blobs").glob("*.incomplete"):
            try:
                stat = path.stat()
            except FileNotFoundError:
                continue
            blob = path.name.partition(".")[0]
            # A file may get its full length before its content.
            sizes[blob] = max(sizes.get(blob, 0), min(stat.st_size, stat.st_blocks * 512))
        return sizes


def cache() -> Path:
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE).expanduser().resolve()


def endpoint() -> str:
    from huggingface_hub import constants

    return str(constants.ENDPOINT)


def nearest_existing(path: Path) -> Path:
    """Return the path, or its nearest existing parent."""
    return next(folder for folder in (path, *path.parents) if folder.exists())


class PartialFiles:
    """The partial files that this process has opened for writing. huggingface_hub gives each one a new name and opens
    it in a thread; the interpreter's audit events reveal the names."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._leaving = False
        sys.addaudithook(self._audit)

    def delete_and_exit(self, code: int) -> NoReturn:
        """Delete these files and exit. Downloading threads can't be stopped one by one, but replacing this program with
        another stops them all, so that none writes a file after its deletion."""
        self._leaving = True
        os.execv("/bin/sh", ["sh", "-c", f'rm -f -- "$@"; exit {code}', "sh", *self._names])  # noqa: S606

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(args[0], str) and args[0].endswith(".incomplete"):
            self._names.add(args[0])
            if self._leaving:
                raise InterruptedError("the download is being ended")


def _is_free(lock: Path) -> bool:
    try:
        with open(lock, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


class DownloadProgress:
    """The writer of progress lines, which also measures how long nothing has arrived."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._listing: FileListing | None = None
        self._activity: tuple[int, int] = (-1, -1)
        self._moved_at = time.monotonic()
        self._written_at = float("-inf")
        self._ticks = 0
        self._newest = self._before = (0, 0, 0, 0)

    def begin_next(self) -> None:
        """Continue with the next model, adding the totals of earlier ones to its own."""
        self._before = self._newest
        self._listing = None
        self._moved_at = time.monotonic()

    def follow(self, listing: FileListing) -> None:
        listing.discard_abandoned()
        self._listing = listing

    def bar_class(self) -> type:
        """Create the class of an invisible progress bar for huggingface_hub that counts each update as activity. Data
        received over Xet is reported there before it reaches the disk."""
        progress = self

        from huggingface_hub.utils import tqdm

        class ActivityBar(tqdm):  # type: ignore[misc]
            def __init__(self, *args: Any, **kwargs: Any) -> None:
                super().__init__(*args, **{**kwargs, "disable": True})

            def update(self, n: float | None = 1) -> None:
                progress._ticks += 1 if n else 0

        return ActivityBar

    def update(self, *, is_last: bool = False) -> None:
        """Measure the progress, and write a line if the previous one is old enough or if `is_last`."""
        listing = self._listing
        if listing is None:
            return
        state = listing.cached()
        activity = (state.activity, self._ticks)
        now = time.monotonic()
        if activity != self._activity:
            self._activity, self._moved_at = activity, now
        if is_last or now - self._written_at >= WRITE_EVERY_S:
            self._written_at = now
            self._write(state.received, listing.total, state.files, len(listing.files))

    def complete(self, folder: Path) -> None:
        """Write the only line of a model that was already cached."""
        sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
        self._write(sum(sizes), sum(sizes), len(sizes), len(sizes))

    def silent_s(self) -> float:
        return time.monotonic() - self._moved_at

    def _write(self, *counts: int) -> None:
        """Write a line. `counts`: bytes received, bytes in total, files received, files in total."""
        totals = [before + now for before, now in zip(self._before, counts, strict=True)]
        self._newest = (totals[0], totals[1], totals[2], totals[3])
        line = {
            "t": time.time(),
            **dict(zip(("done_bytes", "total_bytes", "files_done", "files"), totals, strict=True)),
        }
        # If the run's folder has no room for the line, the run ends for that reason anyway.
        with contextlib.suppress(OSError), open(self._path, "a") as file:
            file.write(json.dumps(line) + "\n")
