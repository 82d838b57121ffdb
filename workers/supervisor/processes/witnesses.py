"""Examination of an attempt's processes during a hang: their activity, state, connections and stacks.

Nothing here stops a process or needs its cooperation, except the fallback for stacks.
"""

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

from workers.contract.reports.metric_names import is_finite
from workers.contract.run.gateway import LIVE_METRICS
from workers.contract.wire.names import FileName
from workers.supervisor.processes import procfs
from workers.supervisor.processes.child import TRAINER
from workers.supervisor.processes.folder import AttemptFolder
from workers.supervisor.processes.procfs import Process

PY_SPY_S = 10.0
CPU_INTERVAL_S = 1.0
MAX_PROCESSES = 24
MAX_ACTIVITY_BYTES = 4096
_LIBRARY = re.compile(r"/lib/python3\.\d+/(?!site-packages|dist-packages)|^<frozen")
_COLLECTIVE = re.compile(r"distributed_c10d\.py|deepspeed/comm/|pynccl")
_COLLECTIVE_DEPTH = 8
"""Number of innermost frames that are searched for an operation of torch.distributed."""


class RankActivity(NamedTuple):
    """Activity that a trainer rank has reported, with times from time.monotonic()."""

    rank: int
    pid: int
    doing: tuple[str, ...]
    """Parts of a step, from the outermost to the innermost."""
    since: float
    steps_since: float
    """Time when the last evaluation, save or wait for agents ended; 0 if there was none."""
    figures: Mapping[str, float] = {}


class Frame(NamedTuple):
    function: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.function} ({'/'.join(self.file.split('/')[-3:])}:{self.line})"


class Thread(NamedTuple):
    name: str
    frames: tuple[Frame, ...]


@dataclass(frozen=True)
class Witness:
    """A process of an attempt, examined during a hang."""

    role: str
    pid: int
    name: str
    state: str
    """State from /proc: R runs, S sleeps, D waits in the kernel, T is stopped."""
    cpu_percent: float = 0.0
    peers: tuple[str, ...] = ()
    """Remote addresses of its connections to other machines."""
    activity: RankActivity | None = None
    threads: tuple[Thread, ...] = ()
    """Main thread first; empty if the stacks couldn't be read."""

    @property
    def frame(self) -> Frame | None:
        """The main thread's innermost frame, if possible outside the standard library, or None without stacks."""
        frames = self.threads[0].frames if self.threads else ()
        return next((frame for frame in frames if not _LIBRARY.search(frame.file)), next(iter(frames), None))

    @property
    def collective(self) -> Frame | None:
        """The frame of the collective operation in which this process waits for the other ranks, or None."""
        frames = self.threads[0].frames[:_COLLECTIVE_DEPTH] if self.threads else ()
        return next((frame for frame in reversed(frames) if _COLLECTIVE.search(frame.file)), None)


def activities(folder: AttemptFolder) -> list[RankActivity]:
    """Read the activities of all ranks that have reported one, in rank order."""
    ranks = []
    for path in folder.path.glob(FileName.ACTIVITY.format(rank="*")):
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            with path.open("rb") as file:
                value = json.loads(file.read(MAX_ACTIVITY_BYTES))
            activity_names = tuple(str(part) for part in value["doing"])
            times = float(value["since"]), float(value["steps_since"])
            reported = value.get("figures", {})
            figures = {name: float(reported[name]) for name in LIVE_METRICS if is_finite(reported.get(name))}
            ranks.append(RankActivity(int(value["rank"]), int(value["pid"]), activity_names, *times, figures))
    return sorted(ranks)


def agent_metrics(folder: AttemptFolder) -> dict[str, float]:
    """Return the metrics of a run's wait for the agents that drive its episodes, or {} if it has not waited."""
    return {name: value for rank in activities(folder) for name, value in rank.figures.items()}


def examine(trees: Mapping[str, Sequence[Process]], ranks: Iterable[RankActivity]) -> tuple[list[Witness], str]:
    """Examine the attempt's Python processes and its stopped processes, ranks first; return them and why stacks are
    missing, or "" if none are. Takes at least a second, so call it in a thread."""
    activity_by_pid = {activity.pid: activity for activity in ranks}
    candidates = [_witness(role, row.pid, activity_by_pid) for role, rows in trees.items() for row in rows if row.alive]
    selected = [process for process in candidates if process is not None]
    selected = sorted(selected, key=lambda process: (process.activity is None, process.pid))[:MAX_PROCESSES]
    cpu_before = {process.pid: _cpu_seconds(process.pid) for process in selected}
    started_at = time.monotonic()
    time.sleep(CPU_INTERVAL_S)
    duration = time.monotonic() - started_at
    py_spy, missing = _py_spy(), ""
    processes = []
    for process in selected:
        pid = process.pid
        cpu_seconds = max(0.0, _cpu_seconds(pid) - cpu_before[pid])
        threads, problem = (
            _stacks(py_spy, pid) if py_spy else ((), "py-spy is not installed in the worker's environment.")
        )
        missing = missing or problem
        processes.append(replace(process, cpu_percent=100 * cpu_seconds / duration, peers=_peers(pid), threads=threads))
    return processes, missing


def request_stacks(ranks: Iterable[RankActivity], trees: Mapping[str, Sequence[Process]]) -> None:
    """Signal each rank to write its own stacks to the trainer's log, as a fallback. Only processes of the trainer's
    tree that have reported an activity are signalled: the signal would kill others."""
    identities = {row.pid: row.identity for row in trees.get(TRAINER, ())}
    for activity in ranks:
        if activity.pid in identities:
            procfs.send(identities[activity.pid], signal.SIGUSR1)


def _witness(role: str, pid: int, activity_by_pid: Mapping[int, RankActivity]) -> Witness | None:
    row = procfs.read(pid)
    try:
        process = psutil.Process(pid)
        is_python, name = Path(process.exe()).name.startswith("python"), process.name()
    except (psutil.Error, OSError):
        return None
    if row is None or not (is_python or row.state in "Tt"):
        return None
    return Witness(role, pid, name, row.state, activity=activity_by_pid.get(pid))


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
    endpoints = [link.raddr for link in connections if link.raddr and link.status == psutil.CONN_ESTABLISHED]
    addresses = {f"{end.ip}:{end.port}" for end in endpoints if not end.ip.startswith("127.") and end.ip != "::1"}
    return tuple(sorted(addresses))[:5]


def _py_spy() -> str | None:
    own_program = Path(sys.executable).with_name("py-spy")
    return str(own_program) if own_program.exists() else shutil.which("py-spy")


def _stacks(program: str, pid: int) -> tuple[tuple[Thread, ...], str]:
    """Return a process's stacks and the problem with reading them, or "". They are read without blocking, because
    py-spy would otherwise stop the process, and leave it stopped if py-spy itself were killed."""
    argv = [program, "dump", "--json", "--full-filenames", "--nonblocking", "--pid", str(pid)]
    try:
        result = subprocess.run(argv, capture_output=True, timeout=PY_SPY_S, check=False)
        return _threads(json.loads(result.stdout), pid), ""
    except subprocess.TimeoutExpired:
        return (), f"py-spy didn't read the stacks of process {pid} within {PY_SPY_S:g} s."
    except OSError as error:
        return (), f"py-spy can't be started: {error.strerror}."
    except (ValueError, KeyError, TypeError):
        lines = result.stderr.decode(errors="replace").strip().splitlines()
        return (), f"py-spy can't read the stacks of process {pid}: {lines[-1][:200] if lines else 'no reason given'}"


def _threads(value: list[dict[str, Any]], pid: int) -> tuple[Thread, ...]:
    main_first = sorted(value, key=lambda thread: thread["os_thread_id"] != pid)
    return tuple(
        Thread(
            "MainThread" if thread["os_thread_id"] == pid else str(thread["thread_name"] or thread["os_thread_id"]),
            tuple(Frame(str(f["name"]), str(f["filename"]), int(f["line"])) for f in thread["frames"]),
        )
        for thread in main_first
    )
