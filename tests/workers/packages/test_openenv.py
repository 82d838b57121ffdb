"""OpenEnv's client with a real small server of it, where its interpreter is built."""

from __future__ import annotations

import contextlib
import socket
import subprocess
from pathlib import Path

import pytest

from tests.waiting import wait_until
from tests.workers.packages.built import lacks
from workers.contract.run.episodes import ToolError
from workers.environments.library import LIBRARY
from workers.packages import interpreter
from workers.rewards.tools import Endpoint, Tools, Unavailable

pytestmark = pytest.mark.processes

FAKE = Path(__file__).parents[2] / "fakes" / "openenv_server.py"


@contextlib.contextmanager
def server(kind):
    if why := lacks("openenv"):
        pytest.skip(why)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen([interpreter.python(), str(FAKE), kind, str(port)])
    try:
        wait_until(lambda: _listens(port))
        yield f"http://127.0.0.1:{port}", process
    finally:
        process.kill()
        process.wait()


def _listens(port):
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def guessing():
    with server("tools") as (address, _):
        yield address


@contextlib.contextmanager
def session(address, key="openenv", refusal=None, **params):
    entry = LIBRARY[key]
    endpoint = Endpoint(address, "a-key", refusal)
    with contextlib.closing(Tools(open_sandbox=None, endpoint=lambda name: endpoint)) as tools:  # type: ignore[arg-type]
        assert entry.check({"endpoint": "SERVER", **params}) == []
        opened = entry.open("server", entry.build({"endpoint": "SERVER", **params}), tools)
        yield opened
        opened.close()


def test_an_episode_with_the_tools_that_the_server_lists(guessing):
    with session(guessing, reset='{"topic": "{answer}"}') as played:
        assert [tool.name for tool in played.tools()] == ["guess", "slow", "broken"]
        assert played.tools()[0].parameters["properties"]["number"]["type"] == "integer"
        assert played.reset({"answer": "cats"}, 17) == "Guess a number about cats."
        wrong, right = (played.call("guess", {"number": number}, 20) for number in (3, 7))
        assert (wrong.text, wrong.reward, wrong.done) == ("wrong", 0.0, False)
        assert (right.text, right.reward, right.done) == ("right", 1.0, True)


def test_two_episodes_at_once_have_a_state_of_their_own(guessing):
    with session(guessing) as one, session(guessing) as other:
        one.reset({}, 1)
        other.reset({}, 2)
        assert one.call("guess", {"number": 1}, 20).done
        assert not other.call("guess", {"number": 1}, 20).done


def test_tools_that_break_are_missing_or_never_answer_are_told_in_words(guessing):
    with session(guessing) as played:
        played.reset({}, 1)
        broken, missing = (played.call(name, {}, 20) for name in ("broken", "no_such"))
        assert (broken.error, missing.error) == (ToolError.RAISED, ToolError.RAISED)
        assert "it is broken" in broken.text
        assert played.call("slow", {}, 0.3).error is ToolError.TIMEOUT
        lost = played.call("guess", {"number": 1}, 20)  # that connection's state is unknown
        assert (lost.error, lost.text) == (
            ToolError.UNAVAILABLE,
            "The server returned no result: The connection was lost.",
        )
        played.reset({}, 1)
        assert played.call("guess", {"number": 1}, 20).done


def test_a_server_without_tools_takes_the_models_text_and_may_go_away():
    with server("text") as (address, process), session(address, "openenv_text") as played:
        assert played.tools() == []
        assert played.reset({}, 1) == "Talk to me."
        assert played.answer("hello", 20).text == "You said hello."
        ended = played.answer("end", 20)
        assert (ended.reward, ended.done) == (1.0, True)
        gone = played.answer("leave", 20)
        assert gone.error is ToolError.UNAVAILABLE
        process.wait()
        with pytest.raises(Unavailable, match="did not begin an episode"):
            played.reset({}, 1)


def test_an_address_that_the_rule_refuses_is_not_asked(guessing):
    with (
        session(guessing, refusal=lambda ip: f"{ip} is on this machine") as played,
        pytest.raises(Unavailable, match="is on this machine"),
    ):
        played.reset({}, 1)


def test_the_program_ends_with_its_tools(guessing):
    with session(guessing) as played:
        played.reset({}, 1)
        pid = played._program._running._process.pid
    wait_until(lambda: not Path(f"/proc/{pid}").exists() or "zombie" in Path(f"/proc/{pid}/status").read_text())
