"""What the processes of an attempt show of themselves while no step ends: activity, state, connections, stacks.

Nothing here stops a process or needs its help, except the fallback for stacks.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from workers.contract.reports.lines import is_finite
from workers.contract.run.gateway import LIVE
from workers.contract.wire.names import FileName
from workers.supervisor.processes import procfs
from workers.supervisor.processes.child import TRAINER
from workers.supervisor.processes.folder import AttemptFolder
from workers.supervisor.processes.procfs import Process

PY_SPY_S = 10.0
"""The limit for one process's stacks."""
MEASURED_S = 1.0
"""The processor time of this long is measured."""
MOST = 24
"""Processes that are looked at."""
LONGEST_ACTIVITY = 4096
_LIBRARY = re.compile(r"/lib/python3\.\d+/(?!site-packages|dist-packages)|^<frozen")
_COLLECTIVE = re.compile(r"distributed_c10d\.py|deepspeed/comm/|pynccl")
_COLLECTIVE_DEPTH = 8
"""An operation of torch.distributed has few frames of its own above it."""


class Activity(NamedTuple):
    """What a trainer rank has written of itself; times of the monotonic clock."""

    rank: int
    pid: int
    doing: tuple[str, ...]
    """From the outermost part to the innermost."""
    since: float
    steps_since: float
    """When the last evaluation, save or wait for others' programs ended; 0: there was none."""
    figures: Mapping[str, float] = {}
    """Of a wait for others' programs."""


class Frame(NamedTuple):
    function: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.function} ({'/'.join(self.file.split('/')[-3:])}:{self.line})"


class Thread(NamedTuple):
    name: str
    frames: tuple[Frame, ...]
    """The innermost first."""


@dataclass(frozen=True)
class Witness:
    """One process."""

    role: str
    pid: int
    name: str
    state: str
    """As in /proc: R runs, S sleeps, D waits in the kernel, T is stopped."""
    cpu_percent: float = 0.0
    """Of one core."""
    peers: tuple[str, ...] = ()
    """The far ends of its connections to other machines."""
    activity: Activity | None = None
    threads: tuple[Thread, ...] = ()
    """The main one first; empty if they couldn't be read."""

    @property
    def frame(self) -> Frame | None:
        """Where it is: the innermost frame outside Python's own library."""
        frames = self.threads[0].frames if self.threads else ()
        return next((frame for frame in frames if not _LIBRARY.search(frame.file)), next(iter(frames), None))

    @property
    def collective(self) -> Frame | None:
        """The operation in which it waits for the other ranks."""
        frames = self.threads[0].frames[:_COLLECTIVE_DEPTH] if self.threads else ()
        return next((frame for frame in reversed(frames) if _COLLECTIVE.search(frame.file)), None)


def activities(folder: AttemptFolder) -> list[Activity]:
    """Of all ranks that have written one, in order."""
    found = []
    for path in folder.path.glob(FileName.ACTIVITY.format(rank="*")):
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            with path.open("rb") as file:
                value = json.loads(file.read(LONGEST_ACTIVITY))
            doing = tuple(str(part) for part in value["doing"])
            times = float(value["since"]), float(value["steps_since"])
            told = value.get("figures", {})
            figures = {name: float(told[name]) for name in LIVE if is_finite(told.get(name))}
            found.append(Activity(int(value["rank"]), int(value["pid"]), doing, *times, figures))
    return sorted(found)


def figures_of_agents(folder: AttemptFolder) -> dict[str, float]:
    """How a run whose episodes others' programs drive waits for them; empty before it has waited, or for another."""
    return {name: value for rank in activities(folder) for name, value in rank.figures.items()}


def look(trees: Mapping[str, Sequence[Process]], ranks: Iterable[Activity]) -> tuple[list[Witness], str]:
    """All Python processes of the attempt and those that are stopped, ranks first, and why stacks are missing ("" if
    none are). Takes a second; called in a thread."""
    of_pid = {activity.pid: activity for activity in ranks}
    seen = [_witness(role, row.pid, of_pid) for role, rows in trees.items() for row in rows if row.alive]
    chosen = sorted((one for one in seen if one is not None), key=lambda one: (one.activity is None, one.pid))[:MOST]
    before = {one.pid: _cpu_seconds(one.pid) for one in chosen}
    began = time.monotonic()
    time.sleep(MEASURED_S)
    took = time.monotonic() - began
    program, missing = _py_spy(), ""
    found = []
    for one in chosen:
        used = max(0.0, _cpu_seconds(one.pid) - before[one.pid])
        threads, problem = _stacks(program, one.pid) if program else ((), "py-spy is not installed beside the worker.")
        missing = missing or problem
        found.append(replace(one, cpu_percent=100 * used / took, peers=_peers(one.pid), threads=threads))
    return found, missing


def ask_for_stacks(ranks: Iterable[Activity], trees: Mapping[str, Sequence[Process]]) -> None:
    """The fallback: each rank writes its own stacks to the trainer's log. Only processes of the trainer's tree that
    have said who they are: others would die of the signal."""
    identities = {row.pid: row.identity for row in trees.get(TRAINER, ())}
    for activity in ranks:
        if activity.pid in identities:
            procfs.send(identities[activity.pid], signal.SIGUSR1)


def _witness(role: str, pid: int, of_pid: Mapping[int, Activity]) -> Witness | None:
    row = procfs.read(pid)
    try:
        process = psutil.Process(pid)
        python, name = Path(process.exe()).name.startswith("python"), process.name()
    except (psutil.Error, OSError):
        return None
    if row is None or not (python or row.state in "Tt"):
        return None
    return Witness(role, pid, name, row.state, activity=of_pid.get(pid))


def _cpu_seconds(pid: int) -> float:
    try:
        times = psutil.Process(pid).cpu_times()
    except (psutil.Error, OSError):
        return 0.0
    return float(times.user + times.system)


def _peers(pid: int) -> tuple[str, ...]:
    try:
        connections = psutil.Process(pid).net_connections("tcp")
    except (psutil.Error, OSError):
        return ()
    ends = [one.raddr for one in connections if one.raddr and one.status == psutil.CONN_ESTABLISHED]
    far = {f"{end.ip}:{end.port}" for end in ends if not end.ip.startswith("127.") and end.ip != "::1"}
    return tuple(sorted(far))[:5]


def _py_spy() -> str | None:
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.exists() else shutil.which("py-spy")


def _stacks(program: str, pid: int) -> tuple[tuple[Thread, ...], str]:
    """Threads, and the problem if there are none. Non-blocking: py-spy would otherwise stop the process, and leave it
    stopped if it were killed itself."""
    argv = [program, "dump", "--json", "--full-filenames", "--nonblocking", "--pid", str(pid)]
    try:
        done = subprocess.run(argv, capture_output=True, timeout=PY_SPY_S, check=False)
        return _threads(json.loads(done.stdout), pid), ""
    except subprocess.TimeoutExpired:
        return (), f"py-spy has read no stacks of process {pid} within {PY_SPY_S:g} s."
    except OSError as error:
        return (), f"py-spy can't be started: {error.strerror}."
    except (ValueError, KeyError, TypeError):
        words = done.stderr.decode(errors="replace").strip().splitlines()
        return (), f"py-spy can't read the stacks of process {pid}: {words[-1][:200] if words else 'no reason given'}"


def _threads(value: list[dict[str, Any]], pid: int) -> tuple[Thread, ...]:
    ordered = sorted(value, key=lambda thread: thread["os_thread_id"] != pid)
    return tuple(
        Thread(
            "MainThread" if thread["os_thread_id"] == pid else str(thread["thread_name"] or thread["os_thread_id"]),
            tuple(Frame(str(f["name"]), str(f["filename"]), int(f["line"])) for f in thread["frames"]),
        )
        for thread in ordered
    )
