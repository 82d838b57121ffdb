"""What stands still without dying: a server that answers and serves nothing, a trainer whose steps don't come."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.fake_control import FakeControl
from tests.waiting import wait_until
from tests.workers.supervisor.attempts import Attempt, attempt, build_settings, build_spec
from tests.workers.supervisor.servers import free_port, server_attempt, server_hardware
from workers.contract.run.limits import LimitsSpec
from workers.contract.run.spec import HangSpec, Placement, servers_of
from workers.contract.wire.names import StopMode
from workers.supervisor.limits import LimitWatch
from workers.supervisor.processes import procfs
from workers.supervisor.processes.folder import AttemptFolder
from workers.supervisor.processes.witnesses import agent_metrics
from workers.supervisor.servers.fleet import ServerFleet
from workers.supervisor.servers.servermetrics import Pulse
from workers.supervisor.servers.vllm import SUSPENDED_AFTER_S
from workers.supervisor.watching import Stall, StepPace, TrainerWatch

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
        assert "has generated no token since" in ended["detail"]
        assert ended["detail"].endswith("Requests: 1 running, 0 waiting.")
        assert (ended["receipt"]["survivors"], ended["receipt"]["port_free"]) == ([], True)


def test_a_server_that_answers_nothing_any_more_ends_a_trainer_that_waits(tmp_path: Path) -> None:
    with generating(tmp_path, "forever") as made:
        made.launch()
        made.wait_for_step(2)
        send(made, "vllm", signal.SIGSTOP)
        ended = made.wait_for_end()
        assert ended["reason"] == "vllm_hung"
        assert "has not responded since" in ended["detail"]
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
        ([(0, tokens(5)), (SUSPENDED_AFTER_S + 1, tokens(5))], 0),
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
    servers = ServerFleet(spec, settings, servers_of(spec), tree=set)
    (probe,) = servers._probes
    probe.ready = True
    probe.tick(100.0)  # then the supervisor stands still for a while, and looks before it has asked again
    assert (servers.describe_lost(after_s=0.0) != "", servers.describe_lost(after_s=60.0)) == (True, "")
    probe.tick(161.0)
    assert "is no longer responding" in servers.describe_lost(after_s=60.0)


def test_a_trainers_word_is_no_silence() -> None:
    assert pulse((0, tokens(5)), (50, tokens(5)), (100, tokens(5))).silence(after=70.0) == 30.0


# --- steps ----------------------------------------------------------------------------------------------------


def hangs(made: Attempt) -> list[dict[str, Any]]:
    return made.control.of_kind("hang")


def test_a_trainer_that_stands_still_is_told_once_and_so_is_that_it_goes_on(tmp_path: Path) -> None:
    with attempt(tmp_path, trainer="forever", hang_least_s=5.0) as made:
        made.launch()
        made.wait_for_step(5)
        send(made, "trainer", signal.SIGSTOP)
        wait_until(lambda: hangs(made), made.why)
        send(made, "trainer", signal.SIGCONT)
        wait_until(lambda: notes(made, "training continues"), made.why)
        made.ask_to_stop(StopMode.SAVE)
        assert made.wait_for_end()["exit_codes"] == {"trainer": 0}
        (hang,) = hangs(made)
        assert "usually" in hang["data"]["text"]
        assert hang["data"]["text"].endswith("The trainer is stopped, perhaps by SIGSTOP or a debugger.")
        assert hang["data"]["seconds"] >= 5.0 > hang["data"]["usual_s"]


def test_a_hang_leaves_its_stacks_in_the_folder_and_ends_a_run_that_asks_for_it(tmp_path: Path) -> None:
    with attempt(tmp_path, trainer="steps:4,hang:update/rewards/slow", hang=HangSpec(2.0, stop=True), **HASTY) as made:
        made.launch()
        ended = made.wait_for_end()
        assert ended["reason"] == "hung"
        assert "The reward slow has not returned for" in ended["detail"]
        assert " s. It is at stand_still (" in ended["detail"]
        assert "sleeping" in ended["detail"]
        assert [hang["data"]["text"] for hang in hangs(made)] == [ended["detail"]]
        stacks = (made.folder / "logs/stacks.log").read_text()
        assert "doing: update > rewards > slow" in stacks
        assert "Thread MainThread\n    stand_still (" in stacks
        assert made.control.logs["stacks"].decode() == stacks


def test_a_trainer_that_waits_for_vllm_is_told_from_vllm_itself(tmp_path: Path) -> None:
    trainer = "steps:4,hang:update/generation"
    with server_attempt(tmp_path, trainer=trainer, hang=HangSpec(2.0, stop=True), **HASTY) as made:
        made.launch()
        detail = made.wait_for_end()["detail"]
        assert " s for completions from vLLM. vLLM is responding but has no requests" in detail
        assert "Its engine is at run_engine (" in detail
        assert "--- " in (made.folder / "logs/stacks.log").read_text()


HASTY = {"hang_least_s": 0.5, "sample_s": 0.1}


def test_an_evaluation_or_a_save_is_no_hang_while_it_moves(tmp_path: Path) -> None:
    folder = AttemptFolder(tmp_path)
    pace = StepPace(after=10.0, least_s=1.0, first_s=50.0)
    limits = LimitWatch(LimitsSpec(), Placement("testhost"), began=0.0)
    watch = TrainerWatch(folder, Reports(), pace, limits)  # type: ignore[arg-type]  # it takes notes
    for step in range(5):
        pace.step(step, step * 1.0)
    activity(tmp_path, ["evaluation", "generation"], since=60.0)
    assert watch.stall(69.0) is None
    stall = watch.stall(71.0)
    assert stall == Stall(4, 67.0, 1.0)
    assert watch.stall(100.0) is None  # told once
    pace.step(5, 101.0)
    activity(tmp_path, ["update"], since=150.0, steps_since=105.0)
    assert watch.stall(114.0) is None  # the steps go on since 105
    assert watch.stall(116.0) is not None


def test_a_trainer_that_waits_for_agents_is_no_hang_while_it_beats(tmp_path: Path) -> None:
    pace = StepPace(after=10.0, least_s=1.0, first_s=50.0)
    limits = LimitWatch(LimitsSpec(), Placement("testhost"), began=0.0)
    watch = TrainerWatch(AttemptFolder(tmp_path), Reports(), pace, limits)  # type: ignore[arg-type]  # it takes notes
    pace.step(0, 0.0)
    for now in (60.0, 600.0, 6000.0):
        activity(tmp_path, ["update", "preparing", "generation", "agents"], since=now - 1.0)
        assert watch.stall(now) is None
    assert watch.stall(6100.0) is not None  # it beats no more


def test_how_a_trainer_waits_for_agents_is_told_with_each_sample(tmp_path: Path) -> None:
    figures = {"gateway/sessions_open": 3, "gateway/waits_s": 7.5, "gateway/quiet_s": "soon", "gpu/0/util_percent": 9}
    record = {"rank": 0, "pid": 1, "doing": ["agents"], "since": 1.0, "steps_since": 0.0, "figures": figures}
    (tmp_path / "activity-0.json").write_text(json.dumps(record))
    told = agent_metrics(AttemptFolder(tmp_path))
    assert told == {"gateway/sessions_open": 3.0, "gateway/waits_s": 7.5}


class Reports:
    """Takes what a watch reports."""

    def note(self, text: str, level: str = "info") -> None: ...


def activity(folder: Path, doing: list[str], *, since: float, steps_since: float = 0.0, rank: int = 0) -> None:
    record = {"rank": rank, "pid": 1, "doing": doing, "since": since, "steps_since": steps_since}
    (folder / f"activity-{rank}.json").write_text(json.dumps(record).ljust(600))


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
    pace = StepPace(after=10.0, least_s=100.0, first_s=1.0)
    assert pace.stall(1_000.0) is None  # training has not begun
    for step in range(5):
        assert pace.step(step, step * 50.0) == ""
    assert pace.stall(200.0 + 499.0) is None
    stall = pace.stall(200.0 + 500.0)
    assert str(stall) == "No step has ended for 500 s, although steps usually take 50 s: the last was step 4."
    pace.reported = True
    assert pace.stall(200.0 + 900.0) is None
    assert pace.step(5, 1_200.0) == "Step 5 ended after 1000 s: training continues."


def test_a_first_step_that_does_not_come_is_told_too() -> None:
    pace = StepPace(after=10.0, least_s=1.0, first_s=100.0)
    pace.step(0, 10.0)
    assert pace.stall(109.0) is None
    assert str(pace.stall(110.0)) == "Training began 100 s ago, and no step has ended yet."
