"""The foreground program of a host that has joined: its Celery worker, started again when it dies.

When it is told to end, the runs of the host go on, unless GRPO_AT_STOP says otherwise: in a container the end of this
program is the end of all of them. On a machine that an engine gave for some time (GRPO_LEAVE_AFTER_S), it tells the
control plane that it leaves, when it has been idle for long, or once its runs have ended.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import FrameType

from workers.contract.wire.joining import Leaving, host_worker
from workers.contract.wire.processes import end_with
from workers.host import shutdown
from workers.host.membership import Membership
from workers.settings import AtStop, HostSettings
from workers.supervisor.commands import SOURCE_ROOT
from workers.supervisor.reports.control import Control, ControlError, Refused

FIRST_BACKOFF_S = 1.0
MAX_BACKOFF_S = 30.0
STEADY_AFTER_S = 60.0
LOOK_S = 5.0
"""The interval of looks at whether a host that leaves when it is idle has a run."""
GRACE_S = 10.0
"""A worker that has been told to end finishes its short task first."""


def run(member: Membership, data: Path, *, report: Callable[[str], None]) -> int:
    """Run the worker until SIGTERM or Ctrl-C. Its output is ours. Call from the main thread, to whose life it is
    tied. 1: runs that should have ended have not."""
    told = Told()
    before = {number: signal.signal(number, partial(_tell, told)) for number in (signal.SIGTERM, signal.SIGINT)}
    environment = environment_of(member, data, os.environ)
    settings = HostSettings.from_env(environment)
    backoff_s = FIRST_BACKOFF_S
    leaving = Leaver(settings, told, report) if settings.leave_after_s else None
    try:
        while not told.is_set():
            begun = time.monotonic()
            code = _once(host_worker(sys.executable, member.name), environment, told)
            if told.is_set():
                break
            backoff_s = FIRST_BACKOFF_S if time.monotonic() - begun > STEADY_AFTER_S else backoff_s
            report(f"The worker ended with code {code}; starting it again in {backoff_s:.0f} s.")
            told.wait(backoff_s)
            backoff_s = min(backoff_s * 2, MAX_BACKOFF_S)
        if leaving is None:
            return _end_runs(settings, told.at, report)
        return leaving.gone_with(lambda: _end_runs(settings, told.at, report))
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


class Told(threading.Event):
    """Ends the host's program."""

    at = math.inf
    """When it was first set, by time.monotonic()."""

    def set(self) -> None:
        self.at = min(self.at, time.monotonic())
        super().set()


class Leaver:
    """Tells the control plane that this host leaves for good. `told` ends the host's program."""

    def __init__(self, settings: HostSettings, told: threading.Event, report: Callable[[str], None]) -> None:
        self._settings = settings
        self._told = told
        self._report = report
        self._idle_since = time.monotonic()
        self._has_left = False
        self._thread = threading.Thread(target=self._watch, name="leaver", daemon=True)
        self._thread.start()

    def gone_with(self, end_runs: Callable[[], int]) -> int:
        """Once the program was told to end: end the runs, and leave. 0: none is left, also if nobody answers."""
        self._thread.join()
        if self._has_left:
            return 0
        self._say(Leaving.STOPPING)
        code = end_runs()
        self._say(Leaving.STOPPED)
        return code

    def _watch(self) -> None:
        every_s = min(LOOK_S, self._settings.leave_after_s)
        while not self._told.wait(every_s):
            if any(shutdown.supervisors(self._settings)):
                self._idle_since = time.monotonic()
            elif time.monotonic() - self._idle_since >= self._settings.leave_after_s:
                self._leave()

    def _leave(self) -> None:
        """The control plane knows whether a run is on its way; if so, and if it doesn't answer, wait as long again."""
        self._idle_since = time.monotonic()
        if self._say(Leaving.IDLE):
            self._report("No run needs this host any more: it leaves.")
            self._has_left = True
            self._told.set()

    def _say(self, how: Leaving) -> bool:
        try:
            control = Control.of(self._settings, self._settings.host_token())
        except OSError as error:
            self._report(f"The control plane can't be told how this host leaves: {error}")
            return False
        try:
            control.leave(self._settings.name, how)
        except Refused as error:
            self._report(f"This host stays: {error.text}")
            return False
        except ControlError as error:
            self._report(f"The control plane could not be told how this host leaves: {error}")
            return False
        finally:
            control.close()
        return True


def _end_runs(settings: HostSettings, told_at: float, report: Callable[[str], None]) -> int:
    if settings.at_stop == AtStop.LEAVE:
        return 0
    report("Ending the runs of this host …")
    return 1 if shutdown.end_runs(settings, save=settings.at_stop == AtStop.SAVE, told_at=told_at) else 0


def environment_of(member: Membership, data: Path, source: Mapping[str, str]) -> dict[str, str]:
    """The worker's environment. The user's own variables take precedence, except for what joining has settled."""
    data = data.absolute()
    roots = [str(data / "models"), source.get("GRPO_MODEL_ROOTS", "")]
    fixed = {
        "GRPO_CONTROL_URL": member.control_url,
        "GRPO_HOST_NAME": member.name,
        "GRPO_HOST_TOKEN_FILE": str(data / "host_token"),
        "GRPO_MODEL_ROOTS": os.pathsep.join(root for root in roots if root),
        "REDIS_URL": _redis_url(member),
    }
    if member.ca_file:
        fixed["GRPO_CA_FILE"] = member.ca_file
    # The layout of a control plane's own folder is not this host's.
    own = {name: value for name, value in source.items() if name != "CONTROLPLANE_DATA"}
    return {"GRPO_RUNS_DIR": str(data / "runs"), "PYTHONUNBUFFERED": "1", **own, **fixed}


def _redis_url(member: Membership) -> str:
    if not member.ca_file or not member.redis_url.startswith("rediss://") or "ssl_ca_certs=" in member.redis_url:
        return member.redis_url
    return f"{member.redis_url}{'&' if '?' in member.redis_url else '?'}ssl_ca_certs={member.ca_file}"


def _once(argv: list[str], environment: Mapping[str, str], told: threading.Event) -> int:
    # Its own session: Ctrl-C in the terminal reaches only this program, which then ends the worker.
    worker = subprocess.Popen(
        argv,
        cwd=SOURCE_ROOT,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=partial(end_with, os.getpid(), signal.SIGTERM),
    )
    while not _has_ended(worker) and not told.wait(0.2):
        pass
    if not _has_ended(worker):
        os.kill(worker.pid, signal.SIGTERM)
    end = time.monotonic() + GRACE_S
    while not _has_ended(worker) and time.monotonic() < end:
        time.sleep(0.05)
    # Even after a clean end a busy pool process may remain. Supervisors have sessions of their own.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(worker.pid, signal.SIGKILL)
    return worker.wait()


def _has_ended(worker: subprocess.Popen[bytes]) -> bool:
    """Checked without reaping: while it is a zombie, its pid and group id can't be reused."""
    return os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _tell(told: threading.Event, number: int, frame: FrameType | None) -> None:
    told.set()
