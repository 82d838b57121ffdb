"""The whole road of a hub model: a real supervisor, a real download from a fake hub, a real trainer kept off it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.datasets import parquet
from tests.fakes.fake_control import TOKEN, FakeControl
from tests.fakes.fake_hub import FakeHub, files_of
from tests.trainer import builders
from tests.waiting import wait_until
from tests.workers.supervisor.attempts import Attempt, build_settings, build_spec
from workers.contract.run.hardware import HardwareSpec
from workers.contract.run.spec import LoraSpec, ModelSpec, RewardSpec
from workers.contract.wire.documents import to_dict
from workers.contract.wire.names import StopMode
from workers.host import launcher

pytestmark = [pytest.mark.trainer, pytest.mark.processes]

DATASET = parquet(builders.rows(8))
GRPO = {"per_device_train_batch_size": 4, "num_generations": 4, "max_completion_length": 8, "max_steps": 2}
WEIGHTS = os.urandom(3_000_000)
FILES = {"config.json": b"{}", "tokenizer.json": b"{}", "model.safetensors": WEIGHTS}


@contextmanager
def hub_attempt(tmp_path: Path, model: str, **settings: Any) -> Iterator[Attempt]:
    control = FakeControl(DATASET).start()
    spec = build_spec(control, model=model, hardware=HardwareSpec("CPU", cpu_slots=1, threads=1))
    run = replace(spec.run, model=ModelSpec(model), grpo=GRPO, lora=LoraSpec(r=4))
    run = replace(run, data=replace(run.data, rows=8), rewards=(RewardSpec("variety", "unique_chars"),))
    made = Attempt(control, build_settings(tmp_path / "runs", control, **settings), replace(spec, run=run))
    try:
        yield made
        made.wait_until_gone()
    finally:
        made.kill_leftovers()
        control.close()


def launch(made: Attempt, hub: FakeHub, home: Path) -> None:
    source = {"PATH": os.environ["PATH"], "HF_ENDPOINT": hub.url, "HF_HOME": str(home)}
    launcher.launch(to_dict(made.spec), TOKEN, made.settings, environment=source)


def test_a_gated_model_is_fetched_with_the_hosts_token_and_trained(
    tmp_path: Path, trainer_python: Path, tiny_model: Path
) -> None:
    token = tmp_path / "hf_token"
    token.write_text("right\n")
    token.chmod(0o600)
    settings: dict[str, Any] = {"trainer_command": (), "trainer_python": str(trainer_python), "hf_token_file": token}
    with FakeHub() as hub, hub_attempt(tmp_path, "Org/Tiny", **settings) as made:
        hub.add("Org/Tiny", files_of(tiny_model), token="right")
        launch(made, hub, tmp_path / "hub")
        wait_until(lambda: "trainer_starting" in made.control.phases() or made.control.ended, made.why)
        asked = len(hub.requests)
        ended = made.wait_for_end()
        assert ended["reason"] == "completed", made.why()
        assert len(hub.requests) == asked > 0
    everything = b"".join(path.read_bytes() for path in made.folder.path.rglob("*") if path.is_file())
    assert b"right\n" not in everything
    assert made.control.train_steps()[:2] == [1, 2]


@pytest.mark.parametrize(
    ("model", "says"), [("Org/Missing", "Org/Missing"), ("Org/Gated", "Org/Gated"), ("Org/Stalls", "stalled")]
)
def test_why_a_model_can_not_be_had_is_the_runs_reason(
    tmp_path: Path, trainer_python: Path, model: str, says: str
) -> None:
    command = (str(trainer_python), "-m", "workers.trainer.fetch", "--stall-s", "3")
    with FakeHub() as hub, hub_attempt(tmp_path, model, fetch_command=command) as made:
        hub.add("Org/Gated", FILES, token="right")
        hub.add("Org/Stalls", FILES, stall_after=1_000_000)
        launch(made, hub, tmp_path / "hub")
        ended = made.wait_for_end()
        assert ended["reason"] == "model_unavailable", made.why()
        assert says in ended["detail"]
        assert ended["receipt"]["survivors"] == []


def test_a_stop_in_mid_download_takes_the_real_download_with_it(tmp_path: Path, trainer_python: Path) -> None:
    command = (str(trainer_python), "-m", "workers.trainer.fetch")
    with FakeHub() as hub, hub_attempt(tmp_path, "Org/Slow", fetch_command=command) as made:
        hub.add("Org/Slow", FILES, bytes_per_s=100_000)
        launch(made, hub, tmp_path / "hub")
        figures = "download/done_mib"
        wait_until(lambda: any(s["data"].get(figures, 0) > 0.2 for s in made.control.of_kind("system")), made.why)
        made.ask_to_stop(StopMode.NOW)
        ended = made.wait_for_end()
        assert (ended["reason"], ended["receipt"]["survivors"]) == ("stopped_by_user", [])
        totals = [s["data"]["download/total_mib"] for s in made.control.of_kind("system") if figures in s["data"]]
        assert totals[-1] == pytest.approx(sum(map(len, FILES.values())) / (1 << 20), abs=0.1)
