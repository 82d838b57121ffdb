"""Tools that run in the sandbox: what they answer, and what of an ill-behaved one the model reads."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from workers.contract.run.episodes import ToolError
from workers.environments.entry import EpisodeSession, Result
from workers.environments.library import LIBRARY
from workers.rewards.tools import Tools, Unavailable
from workers.sandbox import selftest
from workers.sandbox.outcomes import SandboxUnavailable
from workers.sandbox.pool import Sandbox

pytestmark = pytest.mark.skipif(selftest.probe().backend is None, reason="no sandbox holds on this machine")


@pytest.fixture(scope="module")
def tools() -> Iterator[Tools]:
    kit = Tools(open_sandbox=lambda preload: Sandbox(selftest.best(), preload=preload, parallel=2))
    yield kit
    kit.close()


def own(tools: Tools, body: str, **params: Any) -> EpisodeSession:
    source = f'def act(text: str) -> str:\n    """Act."""\n    {body}\n'
    entry = LIBRARY["python_tool"]
    assert entry.check({"source": source, **params}) == []
    return entry.open("act", entry.build({"source": source, **params}), tools)


def call(tools: Tools, body: str, **params: Any) -> Result:
    return own(tools, body, **params).call("act", {"text": "hello"}, 20.0)


def run(tools: Tools, code: str, **params: Any) -> Result:
    entry = LIBRARY["python_interpreter"]
    return entry.open("python", entry.build(params), tools).call("python", {"code": code}, 20.0)


@pytest.mark.parametrize(
    ("body", "text"),
    [("return text.upper()", "HELLO"), ("return {'n': 1}", '{"n": 1}'), ("return None", "null"), ("return 7", "7")],
)
def test_an_own_tool_answers_what_its_function_returns(tools: Tools, body: str, text: str) -> None:
    assert call(tools, body) == Result(text)


@pytest.mark.parametrize(
    ("body", "error", "words"),
    [
        ("while True: pass", ToolError.TIMEOUT, "act failed"),
        ("import os; os.fork()", ToolError.RAISED, "PermissionError"),
        ("print('x' * 100_000_000)", ToolError.OUTPUT, "more than"),
        ("return 'x' * 1_000_000", ToolError.OUTPUT, "more than 200,000 characters"),
        ("return [0] * 10**9", ToolError.RAISED, "act failed"),
        ("raise ValueError('too small')", ToolError.RAISED, "ValueError: too small"),
        ("import os; os._exit(0)", ToolError.RAISED, "act failed"),
        ("import socket; socket.socket()", ToolError.RAISED, "act failed"),
    ],
)
def test_what_goes_wrong_in_a_tool_is_a_sentence_for_the_model(
    tools: Tools, body: str, error: ToolError, words: str
) -> None:
    result = call(tools, body, seconds=2.0)
    assert result.error is error
    assert words in result.text


def test_a_call_gets_no_more_time_than_is_left_of_the_episode(tools: Tools) -> None:
    result = own(tools, "import time; time.sleep(30)", seconds=60.0).call("act", {"text": ""}, 0.2)
    assert result.error is ToolError.TIMEOUT


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("print('a')\n1 + 1", "a\n2"),
        ("x = 3\nx * 2", "6"),
        ("x = 3", "It printed nothing, and its last line is not an expression with a value."),
        ("print('a')\nraise SystemExit", "a"),
    ],
)
def test_the_interpreter_answers_the_output_and_the_last_value(tools: Tools, code: str, text: str) -> None:
    assert run(tools, code) == Result(text)


def test_an_error_in_the_models_code_is_shown_with_its_line(tools: Tools) -> None:
    result = run(tools, "print('before')\nx = 1\nx.upper()")
    assert result.error is ToolError.RAISED
    assert result.text.startswith("before\nTraceback")
    assert 'File "<code>", line 3' in result.text
    assert "AttributeError" in result.text
    assert "__grpo_run__" not in result.text


def test_no_variable_lives_on_to_the_next_call(tools: Tools) -> None:
    run(tools, "x = 1")
    assert "NameError" in run(tools, "x").text


def test_calls_that_wait_run_side_by_side_on_a_sandbox_of_two_places(tools: Tools) -> None:
    body = "import time; t = time.monotonic(); time.sleep(1.0); return [t, time.monotonic()]"
    session = own(tools, body, seconds=20.0)
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: session.call("act", {"text": ""}, 20.0), range(8)))
    spans = [json.loads(result.text) for result in results]
    assert max(begun for begun, _ in spans) < min(ended for _, ended in spans)


def test_a_sandbox_that_is_lost_in_a_call_is_unavailable() -> None:
    kit = Tools(open_sandbox=lambda preload: Sandbox(selftest.best(), preload=preload))
    session = own(kit, "while True: pass")
    results: list[Result] = []
    thread = threading.Thread(target=lambda: results.append(session.call("act", {"text": ""}, 60.0)))
    thread.start()
    kit.close()
    thread.join(30)
    assert [result.error for result in results] == [ToolError.UNAVAILABLE]


@pytest.mark.parametrize("key", ["python_tool", "python_interpreter"])
def test_without_a_sandbox_nothing_is_opened(key: str) -> None:
    def none(preload: tuple[str, ...]) -> Sandbox:
        raise SandboxUnavailable("bubblewrap isn't installed.")

    entry = LIBRARY[key]
    with pytest.raises(Unavailable, match="bubblewrap"):
        entry.open("act", entry.build({}), Tools(open_sandbox=none))
