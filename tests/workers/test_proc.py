"""What the kernel's table says of a process, where it is easily misread."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from tests.workers.attempts import wait_until
from workers.supervisor import proc
from workers.supervisor.killing import Kill

pytestmark = pytest.mark.processes

HEADLESS = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(60,)).start()
ctypes.CDLL(None).pthread_exit(None)  # the first thread alone
"""


def test_a_process_whose_first_thread_has_ended_is_not_gone_before_its_last_one() -> None:
    child = subprocess.Popen([sys.executable, "-c", HEADLESS])
    try:
        wait_until(lambda: row(child.pid).state == "Z", lambda: "its first thread goes on")
        assert row(child.pid).alive
        kill = Kill(lambda: [row(child.pid)], now=time.monotonic(), grace_s=0, deadline_s=30)
        wait_until(lambda: kill.tick(time.monotonic()), lambda: "it can't be killed")
        assert kill.survivors == ()
        assert not row(child.pid).alive
        child.wait(timeout=10)
    finally:
        child.kill()
        child.wait()


def row(pid: int) -> proc.Process:
    found = proc.read(pid)
    assert found is not None
    return found
