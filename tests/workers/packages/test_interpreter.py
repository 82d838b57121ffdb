"""Where the other interpreter is, and the sandbox in it: with a small package of its own in place of the real ones."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from workers.packages import interpreter
from workers.packages.interpreter import PackageMissing
from workers.sandbox import selftest
from workers.sandbox.outcomes import Backend, Job, Kind, Limits, SandboxUnavailable
from workers.sandbox.pool import Sandbox

FAKE = """
print("noise on stdout while it is imported")
import json
def shout(text):
    print("noise" * 100)
    return text.upper()
def hang():
    while True:
        pass
def end():
    import os
    os._exit(3)
def read(path):
    return open(path).read()
def write(path):
    open(path, "w").write("x")
def call():
    import socket
    socket.socket()
"""
SOURCE = "from workers.packages.inside import fake\nglobals().update(vars(fake))"


@pytest.fixture(params=selftest.ORDER)
def sandbox(request, tmp_path, monkeypatch):
    if why := selftest.probe().tried[request.param]:
        pytest.skip(f"{request.param}: {why}")
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "fake.py").write_text(FAKE)
    monkeypatch.setattr(interpreter, "INSIDE_FOLDER", inside)
    monkeypatch.setenv("GRPO_ENVIRONMENTS_PYTHON", sys.executable)
    with interpreter.open_sandbox("fake", request.param, parallel=2) as opened:
        yield opened


def asked(sandbox: Sandbox, call: str, *args: object, seconds: float = 20) -> object:
    [outcome] = sandbox.run([Job(SOURCE, call, args)], Limits(seconds=seconds))
    return outcome.value if outcome.kind is Kind.OK else outcome.kind


@pytest.mark.processes
def test_a_package_answers_whatever_it_prints(sandbox):
    assert asked(sandbox, "shout", "word") == "WORD"


@pytest.mark.processes
def test_what_hangs_or_ends_is_an_outcome_and_the_next_request_is_answered(sandbox):
    assert asked(sandbox, "hang", seconds=0.3) is Kind.TIMEOUT
    assert asked(sandbox, "end") is Kind.ERROR
    assert asked(sandbox, "shout", "again") == "AGAIN"


@pytest.mark.processes
def test_nothing_outside_is_read_or_written_and_no_socket_is_opened(sandbox, tmp_path):
    (tmp_path / "secret").write_text("secret")
    assert asked(sandbox, "read", str(tmp_path / "secret")) is Kind.ERROR
    assert asked(sandbox, "write", str(tmp_path / "new")) is Kind.ERROR
    assert asked(sandbox, "call") is Kind.ERROR
    assert sorted(path.name for path in tmp_path.iterdir()) == ["inside", "secret"]


@pytest.mark.processes
def test_a_package_that_is_missing_is_told_with_what_to_do(monkeypatch):
    if why := selftest.probe().tried[Backend.LANDLOCK]:
        pytest.skip(why)
    monkeypatch.setenv("GRPO_ENVIRONMENTS_PYTHON", sys.executable)  # which has no reasoning-gym
    with pytest.raises(PackageMissing, match="on_demand environments"):
        interpreter.open_sandbox("reasoning", Backend.LANDLOCK)


def test_an_interpreter_that_is_named_and_missing_is_told(monkeypatch):
    monkeypatch.setenv("GRPO_ENVIRONMENTS_PYTHON", "/nowhere/python")
    for ask in (interpreter.python, interpreter.build):
        with pytest.raises(PackageMissing, match="/nowhere/python"):
            ask()


def test_without_the_environment_the_words_say_how_to_build_it(monkeypatch, tmp_path):
    monkeypatch.delenv("GRPO_ENVIRONMENTS_PYTHON", raising=False)
    monkeypatch.setattr(interpreter, "SOURCE_ROOT", Path(tmp_path))
    with pytest.raises(PackageMissing, match="on_demand environments"):
        interpreter.python()
    with pytest.raises(PackageMissing, match="could not be installed here"):
        interpreter.build()


def test_a_program_that_is_no_interpreter_is_no_sandbox(monkeypatch):
    monkeypatch.setenv("GRPO_ENVIRONMENTS_PYTHON", "/bin/true")
    with pytest.raises(SandboxUnavailable, match="did not report"):
        interpreter.open_sandbox("fake", Backend.LANDLOCK)
