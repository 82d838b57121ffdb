"""Machines that lack what is taken for granted: a folder to write to, many descriptors, a parent that lives on."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from controlplane.setup.serving.processes import BASE_DIR as ROOT
from tests.workers.sandbox.conftest import BACKENDS, LIMITS, open_or_skip
from tests.workers.sandbox.test_pool import ANSWER
from workers.sandbox import selftest
from workers.sandbox.isolation import lockdown
from workers.sandbox.isolation.lockdown import ResourceLimits
from workers.sandbox.outcomes import Backend, Job
from workers.sandbox.pool import Sandbox

pytestmark = pytest.mark.processes

FEW = """
import resource, sys
sys.path.insert(0, {root!r})
from workers.sandbox.outcomes import Backend, Job, SandboxUnavailable
from workers.sandbox.pool import Sandbox
resource.setrlimit(resource.RLIMIT_NOFILE, {limit!r})
try:
    with Sandbox(Backend({backend!r}), parallel=1) as sandbox:
        print(*[outcome.value for outcome in sandbox.run([Job("def f(): return 42", "f")] * 3)])
except SandboxUnavailable as error:
    print(error)
"""


@pytest.mark.parametrize("backend", BACKENDS)
def test_few_open_files_are_enough_or_said_to_be_too_few(backend: Backend) -> None:
    open_or_skip(backend).close()

    def said(soft: int, hard: int) -> str:
        code = FEW.format(root=str(ROOT), limit=(soft, hard), backend=backend.value)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert said(24, hard) == "42 42 42"
    assert said(40, 40).endswith("Only 40 files may be open at once; 64 are needed")
    assert said(8, 40).startswith(f"{backend} can't be started: ")


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_folder_to_write_to_is_needed(backend: Backend, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    open_or_skip(backend).close()
    made = tempfile.TemporaryDirectory

    def only_in_memory(**options: object) -> object:
        if "dir" not in options:
            raise FileNotFoundError("No usable temporary directory found")
        return made(prefix="sandbox-test-", dir=tmp_path)

    monkeypatch.setattr(tempfile, "TemporaryDirectory", only_in_memory)
    monkeypatch.setattr(tempfile, "TemporaryFile", only_in_memory)
    with Sandbox(backend) as sandbox:
        assert sandbox.run([ANSWER], LIMITS)[0].value == 42
    with selftest.AttackTargets() as targets:
        assert targets.damage() == ""


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_evaluation_sees_another_through_its_stdin(backend: Backend) -> None:
    """The flags of an open file are those of all who share it."""
    source = "import fcntl, os\ndef f():\n    old = fcntl.fcntl(0, fcntl.F_GETFL)\n"
    source += "    fcntl.fcntl(0, fcntl.F_SETFL, old | os.O_NONBLOCK)\n    return bool(old & os.O_NONBLOCK)"
    with open_or_skip(backend) as sandbox:
        assert [outcome.value for outcome in sandbox.run([Job(source, "f")] * 3, LIMITS)] == [False] * 3


def test_a_fork_whose_zygote_lives_is_locked_in() -> None:
    middle = os.fork()
    if middle == 0:
        code = 1
        try:
            lockdown.limit_zygote()
            child = os.fork()
            if child == 0:
                lockdown.lock(
                    ResourceLimits(60, 1 << 40, 1 << 30), tmpfs_bytes=0, dies_with_parent=True, filter_address=0
                )
                os._exit(7)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(middle, 0)[1]) == 7
