"""Foreign input is worked on in children with limits: their answers, their errors, and what ends them."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from controlplane.catalogue.environments import opening
from controlplane.catalogue.environments.opening import EPISODES, child_for
from controlplane.catalogue.exchange import documents
from controlplane.catalogue.exchange.reading import UnreadableDocument
from controlplane.catalogue.rewards import scored, turns
from controlplane.platform import safe_yaml
from controlplane.platform.confined import messages
from controlplane.platform.confined import pool as pools
from controlplane.platform.confined.__main__ import MAX_MESSAGE_CHARS, NICENESS
from controlplane.platform.confined.limits import Busy, StoppedAtLimit, client_waits
from controlplane.platform.confined.pool import ChildPool
from controlplane.platform.confined.tasks import QUICK, ConfinedTask
from controlplane.setup.serving.processes import BASE_DIR
from runs.pages.playground import confined_play
from runs.pages.playground.episode_play import WrittenMove
from tests.waiting import LIMIT_S
from workers.contract.run.episodes import EpisodeLimits, PartSpec
from workers.environments.executor import Call
from workers.rewards.library import LIBRARY
from workers.rewards.reward import Completion

pytestmark = pytest.mark.processes


@dataclass(frozen=True)
class Thing:
    names: tuple[str, ...]
    content: bytes
    size: int | None = None


def twice(thing: Thing, times: int = 2) -> list[Thing]:
    return [thing] * times


def refuse(text: str) -> None:
    raise UnreadableDocument(text)


def fail(text: str) -> None:
    raise KeyError(text)


def loop(seconds: float) -> str:
    while seconds:
        pass
    return "never"


def doze(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def grow(size: int) -> int:
    return len(bytearray(size))


def nest(depth: int) -> int:
    return nest(depth + 1)


def flood(size: int) -> list[int]:
    return [0] * size


def size(value: Any) -> int:
    return len(value)


def variables() -> list[str]:
    return sorted(os.environ)


def pid() -> int:
    return os.getpid()


def crash(code: int) -> int:
    os.abort()


@pytest.fixture
def own() -> Iterator[ChildPool]:
    pool = ChildPool(1)
    yield pool
    pool.close()


def test_values_keep_their_types(own: ChildPool) -> None:
    thing = Thing(("a", "\ud800"), b"\xff\0", 7)
    assert ConfinedTask(twice, "Doubling", pool=own)(thing) == [thing, thing]
    assert ConfinedTask(twice, "Doubling", pool=own)(thing, times=1) == [thing]


def test_errors_that_a_task_names_arrive_with_their_message(own: ChildPool) -> None:
    with pytest.raises(UnreadableDocument, match="line 3"):
        ConfinedTask(refuse, "Refusing", (UnreadableDocument,), own)("line 3")


def test_any_other_error_is_a_sentence_and_a_line_of_the_log(own: ChildPool, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(StoppedAtLimit, match="Failing failed because of an error on the server"):
        ConfinedTask(fail, "Failing", pool=own)("secret")
    assert "KeyError: 'secret'" in caplog.text


def test_a_long_error_is_cut(own: ChildPool) -> None:
    with pytest.raises(UnreadableDocument) as caught:
        ConfinedTask(refuse, "Refusing", (UnreadableDocument,), own)("x" * 10**6)
    assert len(str(caught.value)) == MAX_MESSAGE_CHARS


def test_an_answer_beyond_the_limit_is_not_read_and_its_child_is_replaced(
    own: ChildPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = ConfinedTask(pid, "Asking", pool=own)()
    with monkeypatch.context() as patch:
        patch.setattr(messages, "MAX_ANSWER_BYTES", 1000)  # the child, which has its own limit, sends more
        with pytest.raises(StoppedAtLimit, match="Working has a result that is too large"):
            ConfinedTask(flood, "Working", pool=own)(1000)
    assert ConfinedTask(pid, "Asking", pool=own)() != first


def test_an_answer_that_arrives_too_slowly_is_given_up() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(struct.pack("!Q", 10) + b"12345")
        with pytest.raises(TimeoutError):
            messages.receive(ours, until=time.monotonic() + 0.05)


def test_arguments_that_are_nested_too_deeply_are_refused_in_words(own: ChildPool) -> None:
    nested: list[Any] = []
    for _ in range(5000):
        nested = [nested]
    with pytest.raises(StoppedAtLimit, match="Sizing was stopped because the input is nested too deeply"):
        ConfinedTask(size, "Sizing", pool=own)(nested)


def test_no_time_limit_is_endless(own: ChildPool) -> None:
    assert ConfinedTask(grow, "Working", pool=own).within(math.inf)(5) == 5


def test_one_child_answers_again_and_again(own: ChildPool) -> None:
    assert len({ConfinedTask(pid, "Asking", pool=own)() for _ in range(5)}) == 1


@pytest.mark.parametrize(
    ("task", "argument", "message"),
    [
        (loop, 1.0, "Working took longer than 1 second, so it was stopped"),
        (grow, 2**32, "Working needed more memory than the server allows"),
        (flood, 400_000, "Working has a result that is too large to be shown"),
        (nest, 0, "Working was stopped because the input is nested too deeply"),
        (crash, 0, "Working needed more memory or deeper nesting than the server allows"),
    ],
)
def test_a_limit_ends_the_work_and_the_next_one_succeeds(own: ChildPool, task, argument, message: str) -> None:
    with pytest.raises(StoppedAtLimit, match=message):
        ConfinedTask(task, "Working", pool=own).within(1)(argument)
    assert ConfinedTask(grow, "Working", pool=own)(5) == 5


def test_what_is_no_longer_wanted_ends_early(own: ChildPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "CANCEL_S", 0.1)
    assert ConfinedTask(pid, "Starting", pool=own)()
    with pytest.raises(StoppedAtLimit, match="was no longer needed"):
        ConfinedTask(loop, "Looping", pool=own).within(600, iter([True, False]).__next__)(1.0)


def test_a_cancellation_that_comes_too_late_is_not_read_as_the_next_message(own: ChildPool) -> None:
    assert ConfinedTask(pid, "Starting", pool=own)()
    assert ConfinedTask(doze, "Dozing", pool=own).within(60, iter([True, *[False] * 1000]).__next__)(0.6) == 0.6
    for _ in range(2):
        assert ConfinedTask(grow, "Working", pool=own)(5) == 5


def test_a_child_has_no_secrets(own: ChildPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgres://secret")
    assert set(ConfinedTask(variables, "Looking", pool=own)()) <= {*pools.INHERITED_VARIABLES, "LANG", "LC_CTYPE"}


def test_a_child_that_is_full_is_replaced(own: ChildPool) -> None:
    first = ConfinedTask(pid, "Asking", pool=own)()
    assert ConfinedTask(grow, "Growing", pool=own).within(LIMIT_S)(600 * 2**20) == 600 * 2**20
    assert ConfinedTask(pid, "Asking", pool=own)() != first


def test_a_killed_child_is_replaced(own: ChildPool) -> None:
    first = ConfinedTask(pid, "Asking", pool=own)()
    os.kill(first, signal.SIGKILL)
    while own._idle[0].is_alive():
        threading.Event().wait(0.01)
    assert ConfinedTask(pid, "Asking", pool=own)() != first


def priority() -> tuple[int, int]:
    return os.getsid(0), os.nice(0)


def test_a_child_yields_to_the_process_that_asks_it_since_they_share_a_session(own: ChildPool) -> None:
    session, niceness = ConfinedTask(priority, "Asking", pool=own)()
    assert session == os.getsid(0)
    assert niceness == min(19, os.nice(0) + NICENESS)


def test_children_end_with_their_process() -> None:
    code = (
        "import os; os.environ['DJANGO_SETTINGS_MODULE'] = 'controlplane.settings'\n"
        "from controlplane.platform.confined.tasks import ConfinedTask\n"
        "from tests.controlplane.platform.confined.test_children import pid\n"
        "print(ConfinedTask(pid, 'Asking')(), flush=True)\nos._exit(0)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=BASE_DIR, capture_output=True, text=True, check=True)
    deadline = time.monotonic() + 30
    while os.path.exists(f"/proc/{int(done.stdout)}") and time.monotonic() < deadline:
        threading.Event().wait(0.05)
    assert not os.path.exists(f"/proc/{int(done.stdout)}")


def test_an_environment_that_does_not_answer_leaves_children_to_others() -> None:
    pool = ChildPool(4)
    task = ConfinedTask(doze, "Opening this environment", pool=pool)
    stuck, other = [PartSpec("a", "openenv", {"url": "a"})], [PartSpec("a", "openenv", {"url": "b"})]
    until = threading.Event()

    def ask() -> None:
        with contextlib.suppress(Busy), child_for(stuck, task, 60) as doze_in_child:
            until.wait(60)
            doze_in_child(0.0)

    asked = [threading.Thread(target=ask) for _ in range(8)]
    for thread in asked:
        thread.start()
    while (slots := opening._BY_ENVIRONMENT._slots.get(repr(stuck))) is None or len(slots._queue) < 6:
        threading.Event().wait(0.01)
    with pytest.raises(Busy, match="the server is busy"), child_for(stuck, task, 60):
        pass
    with child_for(other, task, 60) as doze_in_child:
        assert doze_in_child(0.01) == 0.01
    until.set()
    for thread in asked:
        thread.join()
    assert not opening._BY_ENVIRONMENT._slots
    pool.close()


def test_an_episode_ends_when_its_client_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "CANCEL_S", 0.1)
    pool = ChildPool(1)
    answers = iter([True, True])
    token = client_waits.set(lambda: next(answers, False))
    try:
        with (
            pytest.raises(StoppedAtLimit, match="was no longer needed"),
            child_for([PartSpec("a", "calculator")], ConfinedTask(loop, "Playing", pool=pool), 600) as loop_in_child,
        ):
            loop_in_child(1.0)
    finally:
        client_waits.reset(token)
        pool.close()


def test_every_task_of_the_product_can_be_imported_without_the_database() -> None:
    for pool in (QUICK, scored.SCORING, scored.ASKING_POOL, EPISODES):
        assert pool.modules
        code = f"import importlib, sys; [importlib.import_module(name) for name in {sorted(pool.modules)}]\n"
        code += "print('torch' in sys.modules, 'django.apps' in sys.modules and __import__('django').apps.apps.ready)"
        modules = subprocess.run(
            [sys.executable, "-c", code], cwd=BASE_DIR, capture_output=True, text=True, check=False
        )
        assert (modules.returncode, modules.stdout.split()[-1:]) == (0, ["False"]), modules.stderr


def test_the_tasks_of_the_product_work_in_children() -> None:
    assert safe_yaml.load(b"a: [1, true, x]") == {"a": [1, True, "x"]}
    reading = documents.read(json.dumps({"learning_rate": 1e-6}).encode(), {"learning_rate": "float"})
    assert reading.values == {"grpo.learning_rate": 1e-6}
    row = {"row": 0, "prompt": "6 × 7?", "answer": "42", "test_cases": []}
    turn = turns.turn(30)
    scores = scored.scores(LIBRARY["numeric_match"], [Completion("42"), Completion("41")], [row, row], {}, turn)
    assert (scores.values, turn.late, turn.unavailable) == ([1.0, 0.0], False, "")
    parts = [PartSpec("calculator", "calculator")]
    answer, _ = confined_play.call(parts, EpisodeLimits(), Call("calculator", {"expression": "6 * 7"}))
    assert answer.text == "42"
    moves = [WrittenMove("", (Call("calculator", {"expression": "1 / 0"}),)), WrittenMove("No.")]
    played = confined_play.play(parts, EpisodeLimits(), {"prompt": "6 × 7?"}, 0, moves)
    assert [(turn.move, [answer.error for _, answer in turn.answers]) for turn in played.turns] == [
        (moves[0], ["raised"]),
        (moves[1], []),
    ]
