"""A model of the hub: fetched before anything else is started, and a download that fails, hangs or is stopped."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.fake_control import TOKEN, FakeControl
from tests.waiting import wait_until
from tests.workers.supervisor.attempts import FAKES, Attempt, attempt, build_settings, build_spec
from tests.workers.supervisor.servers import free_port, server_hardware, vllm_command
from workers.contract.run.spec import REWARD_MODEL, AttemptSpec, ModelSpec, Placement, RewardSpec
from workers.contract.stack import commands as workers_commands
from workers.contract.wire.names import StopMode
from workers.host import reaper
from workers.supervisor import commands

pytestmark = pytest.mark.processes

MIB = 1 << 20


@contextmanager
def hub_attempt(
    tmp_path: Path, fetch: str = "", *, spec: dict[str, Any] | None = None, **more: Any
) -> Iterator[Attempt]:
    command = ("/usr/bin/env", f"FAKE_FETCH={fetch}", sys.executable, str(FAKES / "fake_fetch.py"))
    with attempt(tmp_path, spec={"model": "some/model", **(spec or {})}, fetch_command=command, **more) as made:
        yield made


def roles(made: Attempt) -> list[str]:
    return [line["data"]["role"] for line in made.control.of_kind("process_started")]


def downloaded(made: Attempt) -> list[float]:
    lines = made.control.of_kind("system")
    return [line["data"]["download/done_mib"] for line in lines if "download/done_mib" in line["data"]]


def fetch_was_told(made: Attempt) -> dict[str, Any]:
    return dict(json.loads((made.folder / "fetch_environment.json").read_text()))


def test_the_model_comes_first_and_nobody_asks_the_hub_after_it(tmp_path: Path) -> None:
    port = free_port()
    spec = {"hardware": server_hardware(), "placement": Placement("testhost", cpu_slots=(0,), ports=(port,))}
    with hub_attempt(tmp_path, spec=spec, trainer=f"connect:{port}", vllm_command=vllm_command()) as made:
        made.control.secrets = {"HF_TOKEN": "hf_claimed"}
        made.launch(HF_TOKEN="hf_inherited", HF_ENDPOINT="http://hub.test")
        ended = made.wait_for_end()
        assert ended["reason"] == "completed"
        assert ended["exit_codes"]["download"] == 0
    assert roles(made) == ["download", "vllm", "trainer"]
    phases = made.control.phases()
    assert phases.index("preparing") < phases.index("fetching_model") < phases.index("vllm_starting")
    told = fetch_was_told(made)
    assert told["argv"] == ["some/model", "--progress", str(made.folder / "download.jsonl")]
    assert told["environment"]["HF_TOKEN"] == "hf_claimed"
    assert told["environment"]["HF_ENDPOINT"] == "http://hub.test"
    seen = made.trainer_environment()
    assert (seen["HF_HUB_OFFLINE"], "HF_TOKEN" in seen) == ("1", False)
    assert b"fetching some/model" in made.control.logs["download"]


def test_its_progress_is_told_as_figures(tmp_path: Path) -> None:
    with hub_attempt(tmp_path, "slow:1.5") as made:
        made.launch()
        made.wait_for_end()
    steps = downloaded(made)
    assert steps == sorted(steps)
    assert len(steps) >= 3
    assert steps[-1] == pytest.approx(3_100_000_000 / MIB, abs=0.1)


def test_a_size_that_the_hub_does_not_tell_is_left_out(tmp_path: Path) -> None:
    with hub_attempt(tmp_path, "unsized") as made:
        made.launch()
        made.wait_for_end()
    told = [line["data"] for line in made.control.of_kind("system") if "download/done_mib" in line["data"]]
    assert told
    assert all("download/total_mib" not in data for data in told)


@pytest.mark.parametrize(
    ("fetch", "reason", "says"),
    [
        ("unavailable", "model_unavailable", "some/model is gated: ask for access"),
        ("crash", "model_unavailable", "The download exited with code 1. RuntimeError: the hub's library broke"),
        ("full", "disk_full", "No space left on device"),
    ],
)
def test_a_download_that_fails_ends_the_run_with_its_words(tmp_path: Path, fetch: str, reason: str, says: str) -> None:
    with hub_attempt(tmp_path, fetch) as made:
        made.launch()
        ended = made.wait_for_end()
        assert ended["reason"] == reason
        assert says in ended["detail"]
        assert ended["receipt"]["free"] is True
    assert roles(made) == ["download"]


def test_a_download_that_says_nothing_is_given_up(tmp_path: Path) -> None:
    with hub_attempt(tmp_path, "hang", download_silence_s=0.5) as made:
        made.launch()
        ended = made.wait_for_end()
        assert (ended["reason"], ended["receipt"]["survivors"]) == ("model_unavailable", [])
        assert "made no progress for 0.5 s" in ended["detail"]


@pytest.mark.parametrize("mode", [StopMode.SAVE, StopMode.NOW])
def test_a_stop_in_mid_download_leaves_nothing(tmp_path: Path, mode: StopMode) -> None:
    with hub_attempt(tmp_path, "slow:50") as made:
        made.launch()
        wait_until(lambda: downloaded(made), made.why)
        made.ask_to_stop(mode)
        ended = made.wait_for_end()
        assert ended["reason"] == "stopped_by_user"
        assert set(ended["exit_codes"]) == {"download"}
        assert ended["receipt"]["survivors"] == []
    assert roles(made) == ["download"]


def test_what_a_dead_supervisor_leaves_of_a_download_is_reaped(tmp_path: Path) -> None:
    with hub_attempt(tmp_path, "slow:50") as made:
        made.launch()
        wait_until(lambda: downloaded(made), made.why)
        made.kill_supervisor()
        reaper.reap(made.spec.run.run_id, 1, TOKEN, made.settings)
        assert made.control.reaped[0]["receipt"]["processes_ended"] == 1


def test_a_local_model_asks_nobody(tmp_path: Path) -> None:
    with attempt(tmp_path) as made:
        made.launch()
        made.wait_for_end()
        assert "HF_HUB_OFFLINE" not in made.trainer_environment()
    assert roles(made) == ["trainer"]
    assert "fetching_model" not in made.control.phases()


@pytest.mark.parametrize(("mode", "warns"), [(0o600, False), (0o644, True)])
def test_the_hosts_token_reaches_the_download_alone(tmp_path: Path, mode: int, warns: bool) -> None:
    file = tmp_path / "hf_token"
    file.write_text("hf_of_the_host\n")
    file.chmod(mode)
    with hub_attempt(tmp_path, hf_token_file=file) as made:
        made.launch()
        made.wait_for_end()
        assert fetch_was_told(made)["environment"]["HF_TOKEN"] == "hf_of_the_host"
        assert "HF_TOKEN" not in made.trainer_environment()
        notes = [line["data"]["text"] for line in made.control.of_kind("note")]
        assert any("Other users can read" in note for note in notes) is warns


def test_a_token_that_is_not_there_is_told_and_open_models_still_come(tmp_path: Path) -> None:
    with hub_attempt(tmp_path, hf_token_file=tmp_path / "absent") as made:
        made.launch()
        assert made.wait_for_end()["reason"] == "completed"
        notes = [line["data"]["text"] for line in made.control.of_kind("note")]
        assert any("Gated models can't be downloaded" in note for note in notes)


def test_a_revision_is_asked_for_by_its_name(tmp_path: Path) -> None:
    control = FakeControl()
    spec = build_spec(control)
    run = replace(spec.run, model=replace(spec.run.model, revision="v2"))
    settings = build_settings(tmp_path, control, trainer_python="/opt/python")
    argv = commands.download_argv(replace(spec, run=run), settings, tmp_path)
    assert argv[:6] == ["/opt/python", "-m", "workers.trainer.fetch", "some/model", "--revision", "v2"]


def with_rewards(spec: AttemptSpec, model: str, *judges: tuple[str, str]) -> AttemptSpec:
    """The spec with a policy and reward models, each a path and a revision."""
    named = [{"model": path, "revision": revision} for path, revision in judges]
    rewards = tuple(RewardSpec(f"judge {i}", REWARD_MODEL, params=params) for i, params in enumerate(named))
    return replace(spec, run=replace(spec.run, model=ModelSpec(model), rewards=(*spec.run.rewards, *rewards)))


@pytest.mark.parametrize(
    ("model", "judges", "words"),
    [
        ("/models/policy", [], []),
        ("/models/policy", [("/models/judge", "")], []),
        ("/models/policy", [("org/judge", "")], ["org/judge"]),
        ("/models/p", [("org/j", "v1"), ("org/k", "v2")], ["org/j", "--revision", "v1", "--also", "org/k@v2"]),
        ("org/policy", [("org/judge", ""), ("org/judge", "")], ["org/policy", "--also", "org/judge"]),
    ],
)
def test_every_model_of_the_hub_is_fetched_once(
    tmp_path: Path, model: str, judges: list[tuple[str, str]], words: list[str]
) -> None:
    control = FakeControl()
    spec = with_rewards(build_spec(control), model, *judges)
    settings = build_settings(tmp_path, control, trainer_python="/opt/python")
    assert commands.needs_download(spec) is bool(words)
    if words:
        argv = commands.download_argv(spec, settings, tmp_path)
        assert argv[3:-2] == words
        assert list(workers_commands.fetch_arguments(spec.run)) == words


def test_a_reward_model_outside_the_hosts_folders_is_refused(tmp_path: Path) -> None:
    with attempt(tmp_path) as made:
        spec = with_rewards(made.spec, made.spec.run.model.path, ("/etc", ""))
        made.use(spec)
        made.launch()
        assert made.wait_for_end()["reason"] == "spec_refused"
        assert not (made.folder / "environment.json").exists()


def test_a_reward_model_of_the_hub_is_fetched_beside_a_local_policy(tmp_path: Path) -> None:
    command = (sys.executable, str(FAKES / "fake_fetch.py"))
    with attempt(tmp_path, fetch_command=command) as made:
        made.use(with_rewards(made.spec, made.spec.run.model.path, ("org/judge", "")))
        made.launch()
        assert made.wait_for_end()["reason"] == "completed"
        assert made.trainer_environment()["HF_HUB_OFFLINE"] == "1"
    assert fetch_was_told(made)["argv"][0] == "org/judge"
    assert roles(made) == ["download", "trainer"]
