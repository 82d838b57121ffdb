"""What the kernel's table says of a process, where it is easily misread."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from controlplane.setup.serving.processes import BASE_DIR as ROOT
from tests.waiting import wait_until
from workers.supervisor.processes import procfs
from workers.supervisor.processes.killing import Kill

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


def row(pid: int) -> procfs.Process:
    found = procfs.read(pid)
    assert found is not None
    return found


def test_a_process_that_may_not_be_signalled_keeps_nobody_else_alive() -> None:
    if os.getuid() != 0:
        pytest.skip("only root can become somebody else here")
    with subprocess.Popen(["sleep", "60"]) as others:
        done = subprocess.run([sys.executable, "-c", AS_ANOTHER_USER, str(others.pid)], cwd=ROOT, capture_output=True)
        assert (done.returncode, others.poll()) == (0, None), done.stderr.decode()
        others.kill()


AS_ANOTHER_USER = """
import os, subprocess, sys
from workers.supervisor.processes import procfs
from workers.supervisor.processes.killing import Kill
os.setuid(65534)
mine = subprocess.Popen(["sleep", "60"])
rows = [procfs.read(int(sys.argv[1])), procfs.read(mine.pid)]
kill = Kill(lambda: [row for row in rows if mine.poll() is None or row.pid != mine.pid], now=0, grace_s=0, deadline_s=1)
while mine.poll() is None:
    assert not kill.tick(0.5)
assert kill.tick(2) and kill.survivors == (rows[0].pid,), kill.survivors
"""


def test_a_process_that_forks_and_ends_all_the_while_is_not_taken_for_gone() -> None:
    script = [sys.executable, "-c", FLEES]
    done = subprocess.run(script, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


FLEES = """
import os, time
from pathlib import Path
from workers.supervisor.processes import procfs
from workers.supervisor.processes.folder import AttemptFolder
from workers.supervisor.processes.killing import Kill
from workers.supervisor.processes.child import Children

def flee():
    end = time.monotonic() + 20
    while time.monotonic() < end:
        if os.fork() > 0:
            os._exit(0)
    os._exit(0)

procfs.become_subreaper()
children = Children(AttemptFolder(Path("/nowhere")))
if os.fork() == 0:
    flee()
began = time.monotonic()
kill = Kill(children.descendants, now=began, grace_s=0, deadline_s=15, nobody_left=children.has_none_left)
while not kill.tick(time.monotonic()):
    children.reap()
assert kill.gone_at is not None, "it outlived the kill"
try:
    os.waitpid(-1, 0)
except ChildProcessError:
    pass
else:
    raise AssertionError("somebody was left")
assert kill.ended, "it was never found"
"""


@pytest.mark.parametrize("files", ["enough", "none left"])
def test_a_supervisor_that_can_not_even_end_its_attempt_leaves_no_process(tmp_path: Path, files: str) -> None:
    (tmp_path / "logs").mkdir()
    script = [sys.executable, "-c", GIVES_UP, str(tmp_path), files]
    done = subprocess.run(script, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


GIVES_UP = """
import os, resource, sys, threading
from pathlib import Path
from workers.supervisor import lifecycle
from workers.supervisor.processes import procfs
from workers.supervisor.processes.folder import AttemptFolder
from workers.supervisor.processes.child import Children
from workers.supervisor.steps import AttemptStep

class Sick:
    step = AttemptStep.TRAINING
    children = Children(AttemptFolder(Path(sys.argv[1])))

    def fail(self, *ignored):
        raise OSError("the disk is gone")

    tick = finish = fail

class Life(lifecycle.Lifecycle):
    hurried, _told_to_end = True, False

    def __init__(self):
        self.folder, self.attempt, self.refused, self._clock = None, Sick(), False, lambda: 0.0

    def _wait(self):
        pass

procfs.become_subreaper()
pid = Sick.children.start("trainer", ["sleep", "60"], os.environ)
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
if sys.argv[2] == "none left":
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
try:
    Life().run()
except OSError as error:
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert str(error) == "the disk is gone", error
    threading.Timer(30, os._exit, [1]).start()
    while pid in [row.pid for row in procfs.descendants([os.getpid()], procfs.table())]:
        Sick.children.reap()
    os._exit(0)
"""
