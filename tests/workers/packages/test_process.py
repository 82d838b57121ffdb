"""The JSON lines to a program of the other interpreter, with programs that misbehave."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.waiting import wait_until
from workers.packages import process
from workers.packages.process import PackageProcess, RequestFailed

pytestmark = pytest.mark.processes
PROGRAM = """
import json, sys, threading, time, os
def answer(told, **more):
    sys.stdout.write(json.dumps({"id": told["id"], **more}) + "\\n")
    sys.stdout.flush()
for line in sys.stdin:
    told = json.loads(line)
    what = told["do"]
    if what == "echo":
        answer(told, ok={"text": told["text"]})
    elif what == "later":
        threading.Timer(0.2, answer, [told], {"ok": {"text": "late"}}).start()
    elif what == "raise":
        answer(told, error="It broke.", kind="raised")
    elif what == "noise":
        print("this is no JSON", flush=True)
    elif what == "end":
        os._exit(1)
"""


@pytest.fixture
def program():
    with contextlib.closing(PackageProcess(lambda: [sys.executable, "-I", "-c", PROGRAM])) as opened:
        yield opened


def test_answers_find_their_requests_in_any_order(program):
    slow = []
    thread = threading.Thread(target=lambda: slow.append(program.ask({"do": "later"}, 20)))
    thread.start()
    assert program.ask({"do": "echo", "text": "ü\n"}, 20)[0] == {"text": "ü\n"}
    thread.join()
    assert slow[0][0] == {"text": "late"}


@pytest.mark.parametrize(
    ("what", "kind"), [("raise", "raised"), ("noise", "gone"), ("end", "gone"), ("hang", "timeout")]
)
def test_whatever_the_program_does_is_told_and_the_next_request_is_answered(program, monkeypatch, what, kind):
    monkeypatch.setattr(process, "GRACE_S", 0.1)
    with pytest.raises(RequestFailed) as told:
        program.ask({"do": what}, 0.2 if what == "hang" else 20)
    assert told.value.kind == kind
    assert program.ask({"do": "echo", "text": "again"}, 20)[0] == {"text": "again"}


def test_a_program_that_ends_answers_all_that_wait_for_it(program):
    told = []

    def ask():
        with pytest.raises(RequestFailed) as raised:
            program.ask({"do": "nothing"}, 50)
        told.append(raised.value.kind)

    thread = threading.Thread(target=ask)
    thread.start()
    wait_until(lambda: program._running is not None and program._running._waiting)
    with pytest.raises(RequestFailed):
        program.ask({"do": "end"}, 20)
    thread.join()
    assert told == ["gone"]


def test_an_interpreter_that_is_no_program_is_told():
    with pytest.raises(RequestFailed, match="can't be started"):
        PackageProcess(lambda: ["/nowhere/python"]).ask({"do": "echo"}, 1)


def test_the_program_ends_when_its_owner_is_killed():
    owner = f"""
import sys; sys.path.insert(0, {str(Path.cwd())!r})
from workers.packages.process import PackageProcess
program = PackageProcess(lambda: [sys.executable, "-I", "-c", {PROGRAM!r}])
program.ask({{"do": "echo", "text": ""}}, 20)
print(program._running._process.pid, flush=True)
sys.stdin.read()
"""
    parent = subprocess.Popen([sys.executable, "-c", owner], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.communicate()
    wait_until(lambda: not Path(f"/proc/{pid}").exists() or "State:\tZ" in Path(f"/proc/{pid}/status").read_text())
