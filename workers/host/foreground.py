"""The host's worker in the foreground, kept alive, until SIGTERM; then the host's runs are left or ended.

A container's first process: its runs are not children of the worker, and a worker that dies is started again, because
the end of this program is the end of the container and of all that it holds.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from types import FrameType

from workers.contract.tied import end_with
from workers.host import shutdown
from workers.host.settings import AtStop, HostSettings

log = logging.getLogger(__name__)

WORKER_GRACE_S = 15.0
"""A worker that is told to end finishes the command it has."""
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0
STEADY_AFTER_S = 60.0
"""A worker that has lived this long starts again with the first pause."""


def serve(argv: Sequence[str], settings: HostSettings, environment: Mapping[str, str] | None = None) -> int:
    """Run the worker until SIGTERM or SIGINT. The number of runs that should have ended and have not."""
    stopping = threading.Event()
    with _signals(stopping):
        pause_s = FIRST_PAUSE_S
        while not stopping.is_set():
            began = time.monotonic()
            code = _one_life(argv, environment, stopping)
            if stopping.is_set():
                break
            pause_s = FIRST_PAUSE_S if time.monotonic() - began > STEADY_AFTER_S else pause_s
            log.error("the worker ended with code %s; starting it again in %g s", code, pause_s)
            stopping.wait(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        if settings.at_stop == AtStop.LEAVE:
            return 0
        log.info("ending this host's runs")
        return shutdown.end_runs(settings, save=settings.at_stop == AtStop.SAVE)


def _one_life(argv: Sequence[str], environment: Mapping[str, str] | None, stopping: threading.Event) -> int:
    process = subprocess.Popen(
        list(argv),
        env=dict(os.environ if environment is None else environment),
        stdin=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C reaches this program alone, which then ends the worker
        preexec_fn=partial(end_with, os.getpid(), signal.SIGTERM),
    )
    try:
        while process.poll() is None and not stopping.wait(0.2):
            pass
        process.terminate()
        return process.wait(WORKER_GRACE_S)
    except subprocess.TimeoutExpired:
        log.warning("the worker did not end in %g s", WORKER_GRACE_S)
        return -signal.SIGKILL
    finally:
        # Its pool, too. The runs' supervisors are in sessions of their own.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextlib.contextmanager
def _signals(stopping: threading.Event) -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        stopping.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def worker_command(settings: HostSettings) -> list[str]:
    name = settings.name
    argv = [sys.executable, "-m", "celery", "-A", "workers.host.celery", "worker", "-Q", f"host.{name}"]
    argv += ["-n", f"host@{name}", "-c", "2"]
    return [*argv, "--without-mingle", "--without-gossip", "--without-heartbeat", "--loglevel", "INFO"]
