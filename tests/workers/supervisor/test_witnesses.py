"""The sentences about a hang, and how the stacks of its processes are read."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from workers.supervisor import hangs
from workers.supervisor.hangs import Scene
from workers.supervisor.processes import procfs, witnesses
from workers.supervisor.processes.witnesses import Frame, RankActivity, Thread, Witness
from workers.supervisor.servers.fleet import ServerState

NOW = 100.0


def rank(number: int, *doing: str, since: float = 10.0, state: str = "S", at: Frame | None = None) -> Witness:
    activity = RankActivity(number, 500 + number, doing, since, 0.0)
    threads = (Thread("MainThread", (at,)),) if at else ()
    return Witness("trainer", 500 + number, "python", state, activity=activity, threads=threads)


GATHER = Frame("all_gather", "/x/site-packages/torch/distributed/distributed_c10d.py", 3)
POST = Frame("post", "/x/site-packages/httpx/_client.py", 7)
STEP = Thread("MainThread", (Frame("step", "/v/core.py", 4),))
ENGINE = Witness("vllm", 700, "VLLM::EngineCore", "S", threads=(STEP,))


@pytest.mark.parametrize(
    ("scene", "words"),
    [
        (
            Scene([rank(0, "update", "generation", at=POST), ENGINE], [ServerState("vllm", 0.0, 16, 2, 88.0)]),
            "The trainer has waited 90 s for completions from vLLM. vLLM has 16 requests running and 2 waiting, and "
            "has generated no token for 88 s. Its engine is at step (/v/core.py:4), sleeping.",
        ),
        (
            Scene([rank(0, "update", "weight_sync")], [ServerState("vllm", 85.0, 0, 0, 0.0)]),
            "The trainer has waited 90 s for vLLM to receive its weights. vLLM has not responded for 85 s.",
        ),
        (
            Scene([rank(0, "evaluation", "rewards", "judge", at=POST)]),
            "In an evaluation: The reward judge has not returned for 90 s. It is at post "
            "(site-packages/httpx/_client.py:7), sleeping.",
        ),
        (
            Scene([rank(0, "update", at=GATHER), rank(1, "update", "rewards", "slow", at=POST)]),
            "The reward slow of rank 1 of the trainer (pid 501) has not returned for 90 s. It is at post "
            "(site-packages/httpx/_client.py:7), sleeping. The other rank is waiting for it.",
        ),
        (
            Scene([rank(0, "update", at=GATHER), rank(1, "generation", at=GATHER)]),
            "All ranks are waiting for each other, perhaps in different collective operations: rank 0 in "
            "all_gather (torch/distributed/distributed_c10d.py:3); rank 1 in all_gather "
            "(torch/distributed/distributed_c10d.py:3).",
        ),
        (
            Scene([rank(0, "update", at=GATHER), rank(1, "update", state="T")]),
            "Rank 1 of the trainer (pid 501) is stopped, perhaps by SIGSTOP or a debugger. The rest of the run "
            "is waiting for it.",
        ),
        (
            Scene([rank(0, "saving", state="D")], gpus={0: 0.0, 1: 3.2}),
            "The trainer has been saving a checkpoint for 90 s. It is waiting in the kernel, for a disk or a driver. "
            "GPU use: 0: 0 %, 1: 3 %.",
        ),
        (
            Scene([replace(rank(0, "update"), cpu_percent=99.0, peers=("10.0.0.5:80",))]),
            "The trainer has been computing the update for 90 s. It is computing on 99 % of a core, connected to "
            "10.0.0.5:80.",
        ),
        (
            Scene([Witness("trainer", 5, "python", "S", threads=(Thread("MainThread", (POST,)),))]),
            "The trainer doesn't report its activity. It is at post (site-packages/httpx/_client.py:7), sleeping.",
        ),
        (Scene([]), ""),
    ],
)
def test_who_waits_for_whom_is_said_in_words(scene: Scene, words: str) -> None:
    assert hangs.explain(scene, NOW) == words


SLEEPS = """
import faulthandler, signal, sys, time
faulthandler.register(signal.SIGUSR1)
def waits_for_ever():
    print("ready", flush=True)
    while True:
        time.sleep(60)
waits_for_ever()
"""


@contextmanager
def sleeper() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", SLEEPS], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        try:
            yield child
        finally:
            child.kill()


@pytest.mark.processes
def test_a_process_shows_its_state_and_its_stacks_without_its_help(tmp_path: Path) -> None:
    with sleeper() as child, subprocess.Popen(["sleep", "60"]) as other:
        trees = {"trainer": [row for pid in (child.pid, other.pid) if (row := procfs.read(pid))]}
        (one,), missing = witnesses.examine(trees, [RankActivity(0, child.pid, ("update",), 0.0, 0.0)])
        other.kill()
    assert missing == ""
    assert (one.pid, one.state, one.activity and one.activity.rank) == (child.pid, "S", 0)
    assert one.frame is not None
    assert one.frame.function == "waits_for_ever"


@pytest.mark.processes
def test_a_rank_writes_its_own_stacks_if_they_cant_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(witnesses, "_py_spy", lambda: "/nowhere/py-spy")
    with sleeper() as child:
        trees = {"trainer": [row for row in [procfs.read(child.pid)] if row]}
        ranks = [RankActivity(0, child.pid, (), 0.0, 0.0), RankActivity(1, 1, (), 0.0, 0.0)]  # one lies about its pid
        (one,), missing = witnesses.examine(trees, ranks)
        assert (one.threads, missing) == ((), "py-spy can't be started: No such file or directory.")
        witnesses.request_stacks(ranks, trees)
        assert child.stderr is not None
        assert next(line for line in child.stderr if "waits_for_ever" in line)
        child.send_signal(signal.SIGTERM)
