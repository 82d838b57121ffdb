"""Child processes and their descendants: start, record and reap. For the main thread only.

Children get no PR_SET_PDEATHSIG: it would need code between fork and exec in a process with threads, and would reach
only direct children. If a supervisor is killed, the reaper ends its processes.
"""

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
"""Roles of children, in addition to contract.SERVER_ROLES; a role is also the name of its log."""


@dataclass(frozen=True)
class ChildExit:
    role: str
    pid: int
    code: int
    """Exit code as in a shell: 128 + the signal's number after a signal."""
    signal: str | None


def spawn(
    argv: Sequence[str], environment: Mapping[str, str], folder: AttemptFolder, log_name: str, *, stdin: bytes = b""
) -> subprocess.Popen[bytes]:
    """Start a program in the attempt's folder, in its own session, with its output in its log. `stdin`: a few bytes for
    its standard input, such as secrets that must not appear in process listings."""
    with open(folder.log(log_name), "ab") as log_file:
        process = subprocess.Popen(
            argv,
            env=dict(environment),
            cwd=folder.path,
            stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
            stdout=log_file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    if process.stdin is not None:
        with suppress(BrokenPipeError), process.stdin:
            process.stdin.write(stdin)
    return process


class Children:
    def __init__(self, folder: AttemptFolder) -> None:
        self._folder = folder
        self._started: dict[int, tuple[str, subprocess.Popen[bytes]]] = {}
        self._groups: set[int] = set()
        self._written: list[Identity] | None = None
        self.baselines: dict[int, int] = {}
        """GPU index -> MiB used before anything was started. Recorded in pids.json because the reaper needs it too."""
        self.exits: dict[str, ChildExit] = {}
        """Role -> exit, in the order in which exits were noticed."""

    def start(self, role: str, argv: Sequence[str], environment: Mapping[str, str], *, stdin: bytes = b"") -> int:
        self.record(self.descendants())  # the GPUs' baselines, before anything can use them
        child = spawn(argv, environment, self._folder, role, stdin=stdin)
        self._started[child.pid] = (role, child)
        self._groups.add(child.pid)
        self.record(self.descendants())
        return child.pid

    def running(self) -> set[str]:
        """Return the roles of the children that are alive."""
        return {role for role, _ in self._started.values()}

    def descendants(self) -> list[Process]:
        return procfs.descendants([os.getpid()], procfs.table())

    def trees(self) -> dict[str, list[Process]]:
        """Return each child and its descendants, by the child's role."""
        rows = procfs.table()
        roots = {pid: role for pid, (role, _) in self._started.items()}
        root_rows = {row.pid: row for row in rows if row.pid in roots}
        return {roots[pid]: [row, *procfs.descendants([pid], rows)] for pid, row in root_rows.items()}

    def is_orphan(self, process: Process) -> bool:
        """Return whether the process has left the process groups that we started, so that killpg would miss it."""
        return process.group not in self._groups

    def has_none_left(self) -> bool:
        """Return whether no descendant is left, according to the kernel: a process table may change while it is read.
        As the subreaper we inherit every orphan, so without a child, alive or dead, there are no descendants."""
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return True
        return False

    def reap(self) -> list[ChildExit]:
        """Reap all dead children, including adopted orphans; return the exits of those that we started."""
        exits: list[ChildExit] = []
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return exits
            if pid == 0:
                return exits
            exit_ = self._exit_of(pid, status)
            if exit_ is not None:
                self.exits[exit_.role] = exit_
                exits.append(exit_)

    def kill_started(self) -> None:
        """Kill the children that we started, without reading /proc: their pids can't be reused before we reap them."""
        for pid in self._started:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)

    def record(self, processes: Sequence[Process]) -> None:
        """Write pids.json for the reaper, if the processes have changed."""
        identities = sorted(process.identity for process in processes)
        if identities == self._written:
            return
        content = {"boot_id": procfs.boot_id(), "processes": identities, "baselines": self.baselines}
        try:
            self._folder.write(FileName.PIDS, json.dumps(content))
            self._written = identities
        except OSError:
            self._written = None  # a full disk; retried at the next scan

    def _exit_of(self, pid: int, status: int) -> ChildExit | None:
        child_start = self._started.pop(pid, None)
        if child_start is None:
            return None
        role, child = child_start
        code = os.waitstatus_to_exitcode(status)
        child.returncode = code  # already reaped, so that Popen doesn't wait for it again
        name = signal.Signals(-code).name if code < 0 else None
        return ChildExit(role, pid, 128 - code if code < 0 else code, name)
