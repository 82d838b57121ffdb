"""The whole product beside a hub: a model is asked about, fetched, trained; a gated one ends its run and says why."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.fake_hub import FakeHub, files_of
from tests.stack import Stack
from tests.trainer import builders
from tests.waiting import wait_until
from tests.workers.host.test_host_on_the_stack import ANSWER, ASK, HOST, LOOK, until

pytestmark = [pytest.mark.trainer, pytest.mark.processes]

GRPO = {"max_steps": 2, "per_device_train_batch_size": 4, "num_generations": 4, "max_completion_length": 8}
SUBMIT = """
from controlplane.catalogue.hardware.models import HardwareProfile, Host
from tests.runs.builders import rewards_named
from runs.engine.scheduling import launching
from tests.datasets import ready_version
from tests.runs import builders

version = ready_version("sums", rows)
components = [{"name": "variety", "function": "unique_chars_normalised"}]
rewards = rewards_named("variety", components)
profile, _ = HardwareProfile.objects.get_or_create(name="a CPU slot", defaults={"spec": builders.CPU})
result = launching.submit(launching.LaunchRequest(name=model, host=Host.objects.get(name="testhost"),
    dataset_version=version, reward_version=rewards, profile=profile, model=model, grpo=grpo),
    user=builders.a_user()).pk
"""
DOWNLOAD = """
from runs.engine.records import MetricRow, RunEvent
rows = MetricRow.objects.filter(run_id=run, kind="system").order_by("seq")
told = [row.values for row in rows if "download/done_mib" in row.values]
phases = [event.data["phase"] for event in RunEvent.objects.filter(run_id=run, kind="phase").order_by("pk")]
result = {"told": told, "phases": phases}
"""
FINAL = ("succeeded", "failed", "stopped")


@pytest.fixture(scope="module")
def hub(tiny_model: Path) -> Iterator[FakeHub]:
    files = files_of(tiny_model)
    with FakeHub() as hub:
        hub.add("Org/Tiny", files, bytes_per_s=1_000_000)
        hub.add("Org/Gated", files, token="right")
        yield hub


@pytest.fixture(scope="module")
def beside(
    make_stack: Callable[..., Stack], trainer_python: Path, hub: FakeHub, tmp_path_factory: pytest.TempPathFactory
) -> Stack:
    home = tmp_path_factory.mktemp("hf")
    stack = make_stack(GRPO_TRAINER_PYTHON=str(trainer_python), HF_ENDPOINT=hub.url, HF_HOME=str(home))
    until(stack, HOST, lambda found: found)
    return stack


def ask(stack: Stack, model: str) -> dict[str, Any]:
    pk = stack.django(ASK, model=model)
    answer: dict[str, Any] = until(stack, ANSWER, lambda found: found, pk=pk)
    return answer


def submit(stack: Stack, model: str) -> str:
    run: str = stack.django(SUBMIT, model=model, rows=builders.rows(16), grpo=GRPO)
    return run


def test_a_model_of_the_hub_is_fetched_with_its_progress_shown_and_trained(beside: Stack, hub: FakeHub) -> None:
    told = ask(beside, "Org/Tiny")
    size = sum(map(len, hub.repositories["Org/Tiny"].files.values()))
    assert (told["hub"], told["host"], told["layers"]) == (True, "testhost", 4)
    assert 0 < told["bytes"] <= size
    run = submit(beside, "Org/Tiny")
    with beside.client("viewer") as client:

        def page() -> str:
            return client.get(f"/runs/{run}/").text

        wait_until(lambda: "Downloading the model, " in page(), lambda: page()[-3000:])
    ended = until(beside, LOOK, lambda found: found["status"] in FINAL, run=run)
    assert (ended["status"], ended["reason"]) == ("succeeded", "completed"), ended
    assert ended["rows"] >= 2
    seen = beside.django(DOWNLOAD, run=run)
    assert "fetching_model" in seen["phases"]
    done = [values["download/done_mib"] for values in seen["told"]]
    assert done == sorted(done)
    assert done[-1] == seen["told"][-1]["download/total_mib"] == pytest.approx(told["bytes"] / 2**20, abs=0.1)
    fetched = len(hub.asked("/blobs/"))
    again = until(beside, LOOK, lambda found: found["status"] in FINAL, run=submit(beside, "Org/Tiny"))
    assert (again["status"], len(hub.asked("/blobs/"))) == ("succeeded", fetched)


def test_a_gated_model_ends_its_run_with_what_to_do(beside: Stack, hub: FakeHub) -> None:
    sentence = f"Org/Gated is gated. Accept its terms at {hub.url}/Org/Gated, and give the host a token of that account"
    assert sentence in ask(beside, "Org/Gated")["error"]
    ended = until(beside, LOOK, lambda found: found["status"] in FINAL, run=submit(beside, "Org/Gated"))
    assert (ended["status"], ended["reason"]) == ("failed", "model_unavailable")
    assert sentence in ended["detail"]
    assert ended["receipt"]["free"] is True
