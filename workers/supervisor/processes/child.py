"""Child processes and their descendants: start, check, reap. Main thread only.

Children get no PR_SET_PDEATHSIG: it would need code between fork and exec in a process with threads, and would reach
only direct children. A killed supervisor leaves its tree to the reaper.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from workers.contract.wire.names import FileName
from workers.supervisor.processes import procfs
from workers.supervisor.processes.folder import AttemptFolder
from workers.supervisor.processes.procfs import Identity, Process

TRAINER = "trainer"
DOWNLOAD = "download"
STORING = "storing"
"""Roles of children other than contract.SERVER_ROLES; a role is also its log's name."""


@dataclass(frozen=True)
class ChildExit:
    """The exit of a child."""

    role: str
    pid: int
    code: int
    """As in a shell: 128 + number for a signal."""
    signal: str | None


class Children:
    """The processes started by the supervisor, and their descendants."""

    def __init__(self, folder: AttemptFolder) -> None:
        self._folder = folder
        self._started: dict[int, tuple[str, subprocess.Popen[bytes]]] = {}
        self._groups: set[int] = set()
        self._written: list[Identity] | None = None
        self.baselines: dict[int, int] = {}
        """GPU index -> MiB used before anything was started; the reaper needs it too."""
        self.exits: dict[str, ChildExit] = {}
        """In the order in which they were seen."""

    def start(self, role: str, argv: Sequence[str], environment: Mapping[str, str], *, told: bytes = b"") -> int:
        """Start a child in its own session, with its output in its log. Return its pid. `told`: a few bytes for its
        standard input, which no list of processes shows."""
        self.record(self.descendants())  # the GPUs' baselines, before anything can use them
        with open(self._folder.log(role), "ab") as log:
            child = subprocess.Popen(
                argv,
                env=dict(environment),
                cwd=self._folder.path,
                stdin=subprocess.PIPE if told else subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        if child.stdin is not None:
            with child.stdin, suppress(BrokenPipeError):
                child.stdin.write(told)
        self._started[child.pid] = (role, child)
        self._groups.add(child.pid)
        self.record(self.descendants())
        return child.pid

    def running(self) -> set[str]:
        """The roles of the children that are alive."""
        return {role for role, _ in self._started.values()}

    def descendants(self) -> list[Process]:
        return procfs.descendants([os.getpid()], procfs.table())

    def trees(self) -> dict[str, list[Process]]:
        """Role -> its child and the child's descendants."""
        rows = procfs.table()
        roots = {pid: role for pid, (role, _) in self._started.items()}
        own = {row.pid: row for row in rows if row.pid in roots}
        return {roots[pid]: [row, *procfs.descendants([pid], rows)] for pid, row in own.items()}

    def is_orphan(self, process: Process) -> bool:
        """Whether it left the process groups that we started, so that killpg would miss it."""
        return process.group not in self._groups

    def none_left(self) -> bool:
        """Whether the tree is empty, by the kernel's own account instead of a changing process table: as the subreaper
        we inherit every orphan, and we have no child left, alive or dead."""
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return True
        return False

    def reap(self) -> list[ChildExit]:
        """Reap all dead children, including adopted orphans; return the exits of those we started."""
        ends: list[ChildExit] = []
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

    def kill_started(self) -> None:
        """Kill the children we started, without files: their pids can't be reused before we reap them."""
        for pid in self._started:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)

    def record(self, processes: Sequence[Process]) -> None:
        """Write pids.json for the reaper, if the tree has changed."""
        identities = sorted(process.identity for process in processes)
        if identities == self._written:
            return
        content = {"boot_id": procfs.boot_id(), "processes": identities, "baselines": self.baselines}
        try:
            self._folder.write(FileName.PIDS, json.dumps(content))
            self._written = identities
        except OSError:
            self._written = None  # a full disk; retried at the next scan

    def _end_of(self, pid: int, status: int) -> ChildExit | None:
        started = self._started.pop(pid, None)
        if started is None:
            return None
        role, child = started
        code = os.waitstatus_to_exitcode(status)
        child.returncode = code  # already reaped, so that Popen doesn't wait for it again
        name = signal.Signals(-code).name if code < 0 else None
        return ChildExit(role, pid, 128 - code if code < 0 else code, name)
