"""The foreground program of a host that has joined: its Celery worker, started again when it dies."""

from __future__ import annotations

import contextlib
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

from workers.contract.joining import host_worker
from workers.contract.tied import end_with
from workers.host.membership import Membership
from workers.supervisor.commands import SOURCE_ROOT

FIRST_BACKOFF_S = 1.0
MAX_BACKOFF_S = 30.0
STEADY_AFTER_S = 60.0
GRACE_S = 10.0
"""A worker that has been told to end finishes its short task first."""


def run(member: Membership, data: Path, *, report: Callable[[str], None]) -> int:
    """Run the worker until SIGTERM or Ctrl-C. Its output is ours. Call from the main thread, to whose life it is
    tied."""
    told = threading.Event()
    before = {number: signal.signal(number, partial(_tell, told)) for number in (signal.SIGTERM, signal.SIGINT)}
    environment = environment_of(member, data, os.environ)
    backoff_s = FIRST_BACKOFF_S
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
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)
    return 0


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
