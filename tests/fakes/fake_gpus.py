"""GPUs that aren't there. What a fake holds on one is in use for exactly as long as that process lives.

FAKE_GPUS=FOLDER. FOLDER/count is how many there are; FOLDER/<index>.<pid>.<start time> holds the MiB of one process;
FOLDER/<index>.other the MiB of somebody else, which stay until the file goes. Standard library only.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

MEMORY_MIB = 81_920
IDLE_MIB = 500


@dataclass(frozen=True)
class Gpus:
    """A host's GPUs, for tests."""

    folder: Path

    @classmethod
    def make(cls, folder: Path, count: int) -> Gpus:
        folder.mkdir(parents=True)
        (folder / "count").write_text(str(count))
        return cls(folder)

    def others(self, index: int, mib: int) -> None:
        """Somebody else uses so much of a GPU; 0: nobody."""
        path = self.folder / f"{index}.other"
        if mib:
            path.write_text(str(mib))
        else:
            path.unlink(missing_ok=True)

    def used(self) -> dict[int, int]:
        """MiB in use, by index."""
        found = dict.fromkeys(range(int((self.folder / "count").read_text())), IDLE_MIB)
        for path in self.folder.iterdir():
            index, _, holder = path.name.partition(".")
            if holder == "other" or (holder and _lives(*map(int, holder.split(".")))):
                found[int(index)] += _number(path)
        return found


def hold(mib: int) -> None:
    """This process has so much on each GPU that it may see."""
    folder = os.environ.get("FAKE_GPUS")
    devices = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    if not folder or not devices:
        return
    me = os.getpid()
    for index in devices.split(","):
        (Path(folder) / f"{index}.{me}.{_start_time(me)}").write_text(str(mib))


def _lives(pid: int, start_time: int) -> bool:
    try:
        return _start_time(pid) == start_time
    except (FileNotFoundError, ProcessLookupError):
        return False


def _start_time(pid: int) -> int:
    """Of a zombie 0: its memory is gone."""
    fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    return 0 if fields[0] in (b"Z", b"X") else int(fields[19])


def _number(path: Path) -> int:
    try:
        return int(path.read_text() or 0)
    except FileNotFoundError:  # taken away between the listing and the reading
        return 0
