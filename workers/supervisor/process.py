"""Children and their descendants: start, look, reap. Main thread only.

Children get no PR_SET_PDEATHSIG: it would need code between fork and exec in a process with threads, and would reach
the direct children only. A supervisor that is killed leaves its tree to the reaper.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from workers.contract import FileName
from workers.supervisor import proc
from workers.supervisor.folder import AttemptFolder
from workers.supervisor.proc import Identity, Process


class Role(StrEnum):
    TRAINER = "trainer"
    VLLM = "vllm"


@dataclass(frozen=True)
class Exit:
    """How a child of ours ended."""

    role: Role
    pid: int
    code: int
    """As a shell gives it: 128 + number for a signal."""
    signal: str | None


class Children:
    """The processes we start, and whatever they start."""

    def __init__(self, folder: AttemptFolder) -> None:
        self._folder = folder
        self._started: dict[int, tuple[Role, subprocess.Popen[bytes]]] = {}
        self._groups: set[int] = set()
        self._written: list[Identity] | None = None
        self.baselines: dict[int, int] = {}
        """GPU index -> MiB used before anything was started; the reaper needs it too."""
        self.exits: dict[Role, Exit] = {}

    def start(self, role: Role, argv: Sequence[str], environment: Mapping[str, str]) -> int:
        """The pid. The child leads a session of its own and writes to its log."""
        self.record(self.descendants())  # the GPUs' baselines, before anything can use them
        with open(self._folder.log(role), "ab") as log:
            child = subprocess.Popen(
                argv,
                env=dict(environment),
                cwd=self._folder.path,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._started[child.pid] = (role, child)
        self._groups.add(child.pid)
        self.record(self.descendants())
        return child.pid

    def running(self, role: Role) -> bool:
        return any(started == role for started, _ in self._started.values())

    def pid(self, role: Role) -> int | None:
        return next((pid for pid, (started, _) in self._started.items() if started == role), None)

    def descendants(self) -> list[Process]:
        return proc.descendants([os.getpid()], proc.table())

    def is_orphan(self, process: Process) -> bool:
        """It left the process groups that we started: a killpg would have missed it."""
        return process.group not in self._groups

    def reap(self) -> list[Exit]:
        """Collect every dead child, the adopted orphans among them; returns the ends of those we started."""
        ends: list[Exit] = []
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return ends
            if pid == 0:
                return ends
            end = self._end_of(pid, status)
            if end is not None:
                self.exits[end.role] = end
                ends.append(end)

    def record(self, processes: Sequence[Process]) -> None:
        """pids.json, for the reaper; written when the tree has changed."""
        identities = sorted(process.identity for process in processes)
        if identities == self._written:
            return
        content = {"boot_id": proc.boot_id(), "processes": identities, "baselines": self.baselines}
        try:
            self._folder.write(FileName.PIDS, json.dumps(content))
            self._written = identities
        except OSError:
            self._written = None  # a full disk; tried again at the next scan

    def _end_of(self, pid: int, status: int) -> Exit | None:
        started = self._started.pop(pid, None)
        if started is None:
            return None
        role, child = started
        code = os.waitstatus_to_exitcode(status)
        child.returncode = code  # reaped here, so that Popen doesn't wait for it again
        name = signal.Signals(-code).name if code < 0 else None
        return Exit(role, pid, 128 - code if code < 0 else code, name)


def is_listening(port: int, pids: set[int]) -> bool:
    """One of these processes holds the listening socket of 127.0.0.1:port."""
    inodes = _listening_inodes(port)
    return bool(inodes) and any(_holds(pid, inodes) for pid in pids)


def _listening_inodes(port: int) -> set[str]:
    found = set()
    for name in ("tcp", "tcp6"):
        try:
            rows = Path(f"/proc/net/{name}").read_text().splitlines()[1:]
        except FileNotFoundError:
            continue
        for row in rows:
            fields = row.split()
            if fields[3] == "0A" and int(fields[1].rsplit(":", 1)[1], 16) == port:
                found.add(f"socket:[{fields[9]}]")
    return found


def _holds(pid: int, inodes: set[str]) -> bool:
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)
    except OSError:
        return False  # gone meanwhile
    for name in names:
        try:
            if os.readlink(f"{folder}/{name}") in inodes:
                return True
        except OSError:
            continue
    return False
