"""From a click on Launch to the trainer's first act, and from a click on Stop until nothing of its tree is left."""

from __future__ import annotations

import contextlib
import json
import os
import select
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import psutil

from tests.benchmarks._product import LIMIT_S, Product, until
from workers.contract.wire.names import FileName


@dataclass(frozen=True)
class Click:
    launch_s: float
    stop_s: float
    """Until everything below the supervisor is gone: what holds memory and GPUs."""
    supervisor_s: float
    """Until the supervisor, which hands over the receipt and the logs, is gone too."""


def click(product: Product) -> Click:
    clicked = time.time()
    run = product.launch(pause_s=0.2)
    folder = product.folder(run)
    alive = folder / "alive"
    until(lambda: alive.exists() and alive.read_text() != "", "the trainer never came")
    launch_s = float(alive.read_text()) - clicked
    product.wait(run, "running")
    supervisor = psutil.Process(json.loads((folder / FileName.LOCK).read_text())["pid"])
    tree = [process.pid for process in supervisor.children(recursive=True)]
    if not tree:
        raise RuntimeError("the supervisor has no process to stop")
    with contextlib.ExitStack() as stack:
        below = [_open(stack, pid) for pid in tree]
        itself = _open(stack, supervisor.pid)
        # Beside it: processes may well be gone before the click's answer has come.
        clicks = stack.enter_context(ThreadPoolExecutor(1))
        clicked = time.time()
        answer = clicks.submit(product.click_stop, run)
        stop_s = _gone(below) - clicked
        supervisor_s = _gone([itself]) - clicked
        answer.result()
    product.wait(run, "stopped")
    return Click(launch_s, stop_s, supervisor_s)


def _open(stack: contextlib.ExitStack, pid: int) -> int:
    fd = os.pidfd_open(pid)
    stack.callback(os.close, fd)
    return fd


def _gone(fds: list[int]) -> float:
    """When the last of these processes ended: a pidfd becomes readable at its process' end."""
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    left, end = len(fds), time.monotonic() + LIMIT_S
    while left:
        for fd, _ in poll.poll(1000):
            poll.unregister(fd)
            left -= 1
        if time.monotonic() > end:
            raise TimeoutError(f"{left} processes were not gone within {LIMIT_S:.0f} s")
    return time.time()
