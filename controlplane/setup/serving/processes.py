"""Child processes, which end with this process, are restarted when they die, and are stopped together."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from workers.contract.wire.processes import die_with_parent

BASE_DIR = Path(__file__).resolve().parents[3]

FIRST_BACKOFF_S = 1.0
MAX_BACKOFF_S = 30.0
LOG_LIMIT = 20_000_000
"""Size in bytes above which a log is rotated at the program's next start."""
SICK_AFTER = 3
"""Number of successive deaths after which the end of the log is shown, not only its path."""
STEADY_AFTER_S = 60.0


@dataclass(frozen=True)
class ServedProgram:
    """Program to run as a child process: its command, and a function that returns whether it is ready."""

    name: str
    argv: list[str]
    env: dict[str, str] | None
    log: Path
    ready: Callable[[], bool] | None = None
    pass_fds: tuple[int, ...] = ()
    grace_s: float = 8.0
    niceness: int = 0
    """Niceness, set for programs that don't train, because training on this machine has priority for the cores."""
    needed_to_the_end: bool = False
    """True if other children need the program until they have ended, so that it is stopped last."""


class NotReady(RuntimeError):
    """Error for a child that did not become ready; the message has the end of its log."""


@dataclass
class _Child:
    program: ServedProgram
    process: subprocess.Popen[bytes]
    started: float
    backoff_s: float
    restart_at: float | None = None
    deaths: int = 0


@dataclass
class Fleet:
    """Child processes of an `up`. Use it only from the main thread: children die with the *thread* that spawned
    them."""

    report: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    first_backoff_s: float = FIRST_BACKOFF_S
    steady_after_s: float = STEADY_AFTER_S
    pass_fds: tuple[int, ...] = ()
    _children: dict[str, _Child] = field(default_factory=dict)

    def start(self, program: ServedProgram) -> None:
        program = replace(program, pass_fds=(*program.pass_fds, *self.pass_fds))
        self._children[program.name] = _Child(program, spawn(program), self.clock(), self.first_backoff_s)

    def wait_ready(self, names: Iterable[str], deadline_s: float = 120.0) -> None:
        """Wait until every named child is ready. Raises NotReady if one dies or takes too long."""
        deadline = self.clock() + deadline_s
        for name in names:
            child = self._children[name]
            is_ready = child.program.ready or (lambda: True)
            while not is_ready():
                reason = f"exited with code {kill_and_reap(child.process)}" if has_ended(child.process) else ""
                if not reason and self.clock() > deadline:
                    reason = f"isn't responding after {deadline_s:.0f} s"
                if reason:
                    raise NotReady(f"{name} {reason}; the end of {child.program.log}:\n{tail(child.program.log)}")
                time.sleep(0.02)

    def tick(self) -> None:
        """Handle children that have died, and restart those whose back-off is over."""
        now = self.clock()
        for child in self._children.values():
            if child.restart_at is None:
                self._notice_death(child, now)
            elif now >= child.restart_at:
                child.process, child.started, child.restart_at = spawn(child.program), now, None
                self.report(f"{child.program.name} restarted")

    def _notice_death(self, child: _Child, now: float) -> None:
        if not has_ended(child.process):
            return
        code = kill_and_reap(child.process)
        if now - child.started > self.steady_after_s:
            child.backoff_s, child.deaths = self.first_backoff_s, 0
        child.deaths += 1
        child.restart_at = now + child.backoff_s
        name, log = child.program.name, child.program.log
        self.report(f"{name} exited with code {code} (see {log}); restarting it in {child.backoff_s:.0f} s")
        if child.deaths == SICK_AFTER:
            self.report(f"{name} exited {SICK_AFTER} times in a row; the end of its log:\n{tail(log)}")
        child.backoff_s = min(child.backoff_s * 2, MAX_BACKOFF_S)

    def pids(self) -> dict[str, int]:
        return {name: child.process.pid for name, child in self._children.items()}

    def programs(self) -> dict[str, ServedProgram]:
        return {name: child.program for name, child in self._children.items()}

    def stop(self, names: Iterable[str] | None = None) -> None:
        """Stop children in parallel, those that others need to the end last. Send SIGTERM and, after the grace period,
        SIGKILL to the whole process group."""
        stopped_names = set(self._children if names is None else names)
        needed_names = {name for name in stopped_names if self._children[name].program.needed_to_the_end}
        for group in (stopped_names - needed_names, needed_names):
            for name in group:
                _terminate(self._children[name])
            terminated_at = time.monotonic()
            for name in group:
                child = self._children[name]
                if child.restart_at is not None:
                    continue
                while not has_ended(child.process) and time.monotonic() - terminated_at < child.program.grace_s:
                    time.sleep(0.02)
                kill_and_reap(child.process)
            for name in group:
                del self._children[name]


def _terminate(child: _Child) -> None:
    # Popen's terminate() would reap a child that has just died, and its group could no longer be identified.
    if child.restart_at is None and child.process.returncode is None:
        os.kill(child.process.pid, signal.SIGTERM)


def has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Return whether the process has ended, without reaping it, because a zombie's pid and group id can't be reused."""
    if process.returncode is not None:
        return True
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def kill_and_reap(process: subprocess.Popen[bytes]) -> int:
    """Send SIGKILL to the process's whole group, where others may remain even after a clean end. Then reap the process
    and return its exit code."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return process.wait()


def spawn(program: ServedProgram) -> subprocess.Popen[bytes]:
    """Start a program in its own session, in the project's folder, and return its process, which ends with this one."""
    if program.log.exists() and program.log.stat().st_size > LOG_LIMIT:
        program.log.replace(program.log.with_suffix(".log.1"))
    with program.log.open("ab") as log:
        # Its own session: Ctrl-C in the terminal reaches only `up`, which then stops the children.
        child = subprocess.Popen(
            program.argv,
            cwd=BASE_DIR,
            env=program.env,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            pass_fds=program.pass_fds,
            start_new_session=True,
            preexec_fn=partial(die_with_parent, os.getpid(), signal.SIGTERM),
        )
    if program.niceness:
        with contextlib.suppress(OSError):  # ended already, or nicer
            os.setpriority(os.PRIO_PROCESS, child.pid, program.niceness)
    return child


def tail(path: Path, lines: int = 12) -> str:
    try:
        content = path.read_text(errors="replace")
    except OSError:
        return ""
    return "\n".join(content.splitlines()[-lines:])
