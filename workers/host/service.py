"""The foreground program of a host that has joined, which runs the Celery worker and restarts it when it dies.

When the program ends, the host's runs continue unless GRPO_AT_STOP says otherwise, because in a container no process
outlives this program. A host on a machine that an engine has lent (GRPO_LEAVE_AFTER_S) leaves the control plane after
being idle for that long, or once its runs have ended.
"""

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

from workers.contract.wire.joining import Leaving, host_worker
from workers.contract.wire.processes import die_with_parent
from workers.host import shutdown
from workers.host.membership import Membership
from workers.settings import AtStop, HostSettings
from workers.supervisor.commands import SOURCE_ROOT
from workers.supervisor.reports.control import Control, ControlError, ControlRefused

FIRST_BACKOFF_S = 1.0
MAX_BACKOFF_S = 30.0
STEADY_AFTER_S = 60.0
IDLE_POLL_S = 5.0
GRACE_S = 10.0


def run(member: Membership, data: Path, *, report: Callable[[str], None]) -> int:
    """Run the worker, which shares our output, until SIGTERM or Ctrl-C. Return the exit code: 1 if runs that should
    have ended are still alive. Call this from the main thread, because the worker dies with the calling thread."""
    stop = StopSignal()
    signals = (signal.SIGTERM, signal.SIGINT)
    previous_handlers = {number: signal.signal(number, lambda *_: stop.set()) for number in signals}
    environment = environment_of(member, data, os.environ)
    settings = HostSettings.from_env(environment)
    backoff_s = FIRST_BACKOFF_S
    leaver = Leaver(settings, stop, report) if settings.leave_after_s else None
    try:
        while not stop.is_set():
            begun = time.monotonic()
            code = _run_worker(host_worker(sys.executable, member.name), environment, stop)
            if stop.is_set():
                break
            backoff_s = FIRST_BACKOFF_S if time.monotonic() - begun > STEADY_AFTER_S else backoff_s
            report(f"The worker exited with code {code}; restarting it in {backoff_s:.0f} s.")
            stop.wait(backoff_s)
            backoff_s = min(backoff_s * 2, MAX_BACKOFF_S)
        if leaver is None:
            return _end_runs(settings, stop.first_set_at, report)
        return leaver.leave(lambda: _end_runs(settings, stop.first_set_at, report))
    finally:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)


class StopSignal(threading.Event):
    """An event that is set once the host's program must shut down."""

    first_set_at = math.inf

    def set(self) -> None:
        self.first_set_at = min(self.first_set_at, time.monotonic())
        super().set()


class Leaver:
    """A watcher that tells the control plane when this host leaves permanently. `stop` ends the host's program."""

    def __init__(self, settings: HostSettings, stop: threading.Event, report: Callable[[str], None]) -> None:
        self._settings = settings
        self._stop = stop
        self._report = report
        self._idle_since = time.monotonic()
        self._has_left = False
        self._thread = threading.Thread(target=self._watch, name="leaver", daemon=True)
        self._thread.start()

    def leave(self, end_runs: Callable[[], int]) -> int:
        """End the runs and leave when the program stops. Return `end_runs`' result; 0 if the host had left before."""
        self._thread.join()
        if self._has_left:
            return 0
        self._report_leaving(Leaving.STOPPING)
        code = end_runs()
        self._report_leaving(Leaving.STOPPED)
        return code

    def _watch(self) -> None:
        interval_s = min(IDLE_POLL_S, self._settings.leave_after_s)
        while not self._stop.wait(interval_s):
            if any(shutdown.supervisors(self._settings)):
                self._idle_since = time.monotonic()
            elif time.monotonic() - self._idle_since >= self._settings.leave_after_s:
                self._leave_if_allowed()

    def _leave_if_allowed(self) -> None:
        """Leave, unless the control plane isn't responding or knows of a run on its way here. In that case, restart the
        idle period."""
        self._idle_since = time.monotonic()
        if self._report_leaving(Leaving.IDLE):
            self._report("No run needs this host any longer, so it is leaving.")
            self._has_left = True
            self._stop.set()

    def _report_leaving(self, reason: Leaving) -> bool:
        try:
            with contextlib.closing(Control.of(self._settings, self._settings.host_token())) as control:
                control.leave(self._settings.name, reason)
        except OSError as error:
            self._report(f"This host's token can't be read, so it can't leave: {error}")
            return False
        except ControlRefused as error:
            self._report(f"This host stays: {error.text}")
            return False
        except ControlError as error:
            self._report(f"The control plane could not be reached, so this host can't leave: {error}")
            return False
        return True


def _end_runs(settings: HostSettings, notice_at: float, report: Callable[[str], None]) -> int:
    if settings.at_stop == AtStop.LEAVE:
        return 0
    report("Ending the runs of this host …")
    return 1 if shutdown.end_runs(settings, save=settings.at_stop == AtStop.SAVE, notice_at=notice_at) else 0


def environment_of(member: Membership, data: Path, source: Mapping[str, str]) -> dict[str, str]:
    """Return the worker's environment. The user's variables take precedence, except over those set by joining."""
    data = data.absolute()
    roots = [str(data / "models"), source.get("GRPO_MODEL_ROOTS", "")]
    fixed_variables = {
        "GRPO_CONTROL_URL": member.control_url,
        "GRPO_HOST_NAME": member.name,
        "GRPO_HOST_TOKEN_FILE": str(data / "host_token"),
        "GRPO_MODEL_ROOTS": os.pathsep.join(root for root in roots if root),
        "REDIS_URL": _redis_url(member),
    }
    if member.ca_file:
        fixed_variables["GRPO_CA_FILE"] = member.ca_file
    # This host doesn't have the layout of a control plane's data folder.
    inherited_variables = {name: value for name, value in source.items() if name != "CONTROLPLANE_DATA"}
    return {"GRPO_RUNS_DIR": str(data / "runs"), "PYTHONUNBUFFERED": "1", **inherited_variables, **fixed_variables}


def _redis_url(member: Membership) -> str:
    if not member.ca_file or not member.redis_url.startswith("rediss://") or "ssl_ca_certs=" in member.redis_url:
        return member.redis_url
    return f"{member.redis_url}{'&' if '?' in member.redis_url else '?'}ssl_ca_certs={member.ca_file}"


def _run_worker(argv: list[str], environment: Mapping[str, str], stop: threading.Event) -> int:
    # Its own session: Ctrl-C in the terminal reaches only this program, which then ends the worker.
    worker = subprocess.Popen(
        argv,
        cwd=SOURCE_ROOT,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=partial(die_with_parent, os.getpid(), signal.SIGTERM),
    )
    while not _has_ended(worker) and not stop.wait(0.2):
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
    """Return whether the worker has ended, without reaping it, because a zombie's pid and group id can't be reused."""
    return os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
