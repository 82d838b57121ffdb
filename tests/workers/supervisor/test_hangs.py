"""What stands still without dying: a server that answers and serves nothing, a trainer whose steps don't come."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.fake_control import FakeControl
from tests.workers.supervisor.attempts import Attempt, attempt, build_settings, build_spec, wait_until
from tests.workers.supervisor.servers import free_port, server_attempt, server_hardware
from workers.contract import StopMode, servers_of
from workers.supervisor import procfs
from workers.supervisor.servermetrics import Pulse
from workers.supervisor.servers import Servers
from workers.supervisor.vllm import PAUSE_S
from workers.supervisor.watching import StepPace

pytestmark = pytest.mark.processes


def send(made: Attempt, role: str, number: signal.Signals) -> None:
    started = {line["data"]["role"]: line["data"]["pid"] for line in made.control.of_kind("process_started")}
    found = procfs.identity(started[role])
    assert found is not None
    procfs.send(found, number)


def notes(made: Attempt, text: str) -> list[dict[str, Any]]:
    return [note["data"] for note in made.control.of_kind("note") if text in note["data"]["text"]]


@contextmanager
def generating(tmp_path: Path, trainer: str, server: str = "", **settings: Any) -> Iterator[Attempt]:
    port = free_port()
    quick = {"sample_s": 0.1, "attached_watch_s": 0.1, "server_silence_s": 1.0, **settings}
    with server_attempt(tmp_path, server=server, trainer=f"{trainer},generate:{port}", port=port, **quick) as made:
        yield made


# --- servers --------------------------------------------------------------------------------------------------


def test_a_server_that_answers_health_and_serves_nothing_ends_a_trainer_that_waits(tmp_path: Path) -> None:
    with generating(tmp_path, "forever,ignore_term", server="health_but_hangs") as made:
        made.launch()
        ended = made.wait_for_end()
        assert ended["reason"] == "vllm_hung"
        assert "The vLLM server vllm at http://127.0.0.1:" in ended["detail"]
        assert "has made no token since" in ended["detail"]
        assert ended["detail"].endswith("Requests: 1 running, 0 waiting.")
        assert (ended["receipt"]["survivors"], ended["receipt"]["port_free"]) == ([], True)


def test_a_server_that_answers_nothing_any_more_ends_a_trainer_that_waits(tmp_path: Path) -> None:
    with generating(tmp_path, "forever") as made:
        made.launch()
        made.wait_for_step(2)
        send(made, "vllm", signal.SIGSTOP)
        ended = made.wait_for_end()
        assert ended["reason"] == "vllm_hung"
        assert "has not answered since" in ended["detail"]
        assert ended["receipt"]["survivors"] == []


def test_a_server_without_work_may_wait_for_a_slow_trainer(tmp_path: Path) -> None:
    with generating(tmp_path, "steps:2,pause:2.5", server_silence_s=1.0) as made:
        made.launch()
        assert made.wait_for_end()["reason"] == "completed"


def test_a_server_that_answers_nothing_is_left_to_a_trainer_that_goes_on(tmp_path: Path) -> None:
    quick = {"attached_watch_s": 0.1, "server_silence_s": 1.0}
    with server_attempt(tmp_path, trainer="steps:20,pause:0.1", **quick) as made:
        made.launch()
        made.wait_for_step(1)
        send(made, "vllm", signal.SIGSTOP)
        assert made.wait_for_end()["reason"] == "completed"


WORKING = {"vllm:num_requests_running": 4.0, "vllm:num_requests_waiting": 2.0}


def pulse(*seen: tuple[float, dict[str, float]]) -> Pulse:
    found = Pulse()
    found.note(-1, {**tokens(5), **dict.fromkeys(WORKING, 0.0)})
    for at, values in seen:
        found.note(at, values)
    return found


def tokens(count: float, *, prompt: float = 10.0) -> dict[str, float]:
    return {**WORKING, "vllm:generation_tokens_total": count, "vllm:prompt_tokens_total": prompt}


@pytest.mark.parametrize(
    ("seen", "silence"),
    [
        ([(0, tokens(5)), (50, tokens(5)), (100, tokens(5))], 100),
        ([(0, tokens(5)), (50, tokens(6)), (100, tokens(6))], 50),
        ([(0, tokens(5)), (50, tokens(5, prompt=900)), (100, tokens(5, prompt=900))], 50),
        ([(0, tokens(5)), (50, {**tokens(5), **dict.fromkeys(WORKING, 0.0)}), (100, tokens(5))], 0),
        ([(0, tokens(5)), (50, tokens(0)), (100, tokens(0))], 50),
        ([(0, {}), (50, {}), (100, {})], 0),
        ([(0, tokens(5)), (PAUSE_S + 1, tokens(5))], 0),
    ],
    ids=["still", "tokens", "a long prompt", "idle", "started anew", "tells nothing", "the supervisor stood still"],
)
def test_a_server_is_silent_only_while_it_is_seen_to_have_requests_and_make_no_token(
    seen: list[tuple[float, dict[str, float]]], silence: float
) -> None:
    assert pulse(*seen).silence(after=0.0) == silence


def test_requests_that_were_there_before_us_are_not_taken_for_ours_until_something_stirs() -> None:
    found = Pulse()
    for at in (0, 1000):
        found.note(at, tokens(5))
    assert found.silence(after=0.0) == 0
    found.note(1050, {**tokens(5), "vllm:num_requests_running": 5.0})
    found.note(1100, {**tokens(5), "vllm:num_requests_running": 5.0})
    assert found.silence(after=0.0) == 50


def test_a_pause_of_our_own_is_no_silence_of_an_attached_server(tmp_path: Path) -> None:
    spec = build_spec(FakeControl(), hardware=server_hardware(attached=(f"http://127.0.0.1:{free_port()}",)))
    settings = build_settings(tmp_path, FakeControl())
    servers = Servers(spec, settings, servers_of(spec), tree=set)
    (probe,) = servers._probes
    probe.ready = True
    probe.tick(100.0)  # then the supervisor stands still for a while, and looks before it has asked again
    assert (servers.lost(after_s=0.0) != "", servers.lost(after_s=60.0)) == (True, "")
    probe.tick(161.0)
    assert "no longer answers" in servers.lost(after_s=60.0)


def test_a_trainers_word_is_no_silence() -> None:
    assert pulse((0, tokens(5)), (50, tokens(5)), (100, tokens(5))).silence(after=70.0) == 30.0


# --- steps ----------------------------------------------------------------------------------------------------


def test_a_trainer_that_stands_still_is_told_once_and_so_is_that_it_goes_on(tmp_path: Path) -> None:
    with attempt(tmp_path, trainer="forever", stall_s=5.0) as made:
        made.launch()
        made.wait_for_step(5)
        send(made, "trainer", signal.SIGSTOP)
        wait_until(lambda: notes(made, "No step for"), made.why)
        send(made, "trainer", signal.SIGCONT)
        wait_until(lambda: notes(made, "training goes on"), made.why)
        made.ask_to_stop(StopMode.SAVE)
        assert made.wait_for_end()["exit_codes"] == {"trainer": 0}
        (told,) = notes(made, "No step for")
        assert told["level"] == "warning"
        assert "as a rule" in told["text"]


@pytest.mark.parametrize("mode", list(StopMode))
def test_a_trainer_that_stands_still_can_be_stopped(tmp_path: Path, mode: StopMode) -> None:
    with attempt(tmp_path, trainer="forever", save_deadline_s=0.3) as made:
        made.launch()
        made.wait_for_step(2)
        send(made, "trainer", signal.SIGSTOP)
        made.ask_to_stop(mode)
        ended = made.wait_for_end()
        assert (ended["reason"], ended["exit_codes"]) == ("stopped_by_user", {"trainer": 137})


def test_a_server_that_stands_still_can_be_stopped(tmp_path: Path) -> None:
    with server_attempt(tmp_path, trainer="forever") as made:
        made.launch()
        made.wait_for_step(2)
        send(made, "vllm", signal.SIGSTOP)
        made.ask_to_stop(StopMode.NOW)
        ended = made.wait_for_end()
        assert (ended["reason"], ended["receipt"]["survivors"]) == ("stopped_by_user", [])


def test_a_stall_is_far_more_than_a_step_takes_as_a_rule() -> None:
    pace = StepPace(100.0)
    assert pace.stalled(1_000.0) == ""  # training has not begun
    for step in range(5):
        assert pace.step(step, step * 50.0) == ""
    assert pace.stalled(200.0 + 499.0) == ""
    assert pace.stalled(200.0 + 500.0) == "No step for 500 s, where one takes 50 s as a rule: the last one was step 4."
    assert pace.stalled(200.0 + 900.0) == ""  # said once
    assert pace.step(5, 1_200.0) == "Step 5 came after 1000 s: training goes on."


def test_a_first_step_that_does_not_come_is_told_too() -> None:
    pace = StepPace(100.0)
    pace.step(0, 10.0)
    assert pace.stalled(109.0) == ""
    assert pace.stalled(110.0) == "Training began 100 s ago, and no step has ended yet."
