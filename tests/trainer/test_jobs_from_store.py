"""The whole product with a host whose disk is empty: a model that only the artifact store has, since its own host is
gone, is fetched there, evaluated, merged, and answers in the chat."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.fakes.object_store import BUCKET, object_store
from tests.stack import Stack
from tests.trainer import builders
from tests.trainer.conftest import Train
from tests.waiting import wait_until
from tests.workers.host.test_host_on_the_stack import HOST, until
from workers.artifactstore import ArtifactStore
from workers.contract.run.spec import LoraSpec

pytestmark = [pytest.mark.trainer, pytest.mark.processes]

PATH = "checkpoints/checkpoint-2"
SAVED = """
from django.db import transaction
from controlplane.catalogue.hardware.models import HardwareProfile, Host
from runs.intake.host_api.ingest import accept
from runs.engine.models import Attempt
from runs.engine.scheduling import launching
from runs.engine.states import RunStatus
from runs.engine.transitions import move
from tests.controlplane.platform.accounts.secret_rows import a_store
from tests.datasets import ready_version
from tests.runs import builders
from workers.contract.run.spec import LoraSpec

a_store(address, "id:secret")
gone = Host.objects.create(name="gone", inventory={"runs_dir": "/gone/runs"})
with transaction.atomic():  # nothing starts before it has ended
    run = launching.submit(launching.LaunchRequest(name="sums", host=None, model=model, grpo={"max_steps": 2},
        dataset_version=ready_version("problems", rows, validation=4), reward_version=builders.rewards_named("tags"),
        profile=HardwareProfile.objects.create(name="cpu", spec=builders.CPU), lora=LoraSpec(r=4, alpha=64)),
        user=builders.a_user())
    attempt = builders.an_attempt(run=run)
    Attempt.objects.filter(pk=attempt.pk).update(host=gone)
    accept(attempt, [builders.event(1, "checkpoint", step=2, path=path, bytes=9)])
    attempt.refresh_from_db()
    move(attempt, RunStatus.SUCCEEDED, reason="completed", actor="test", facts={"receipt": builders.FREE})
result = [run.pk, run.events.get(kind="checkpoint").pk]
"""
STORED = """
from runs.engine.artifacts import copies
from runs.engine.models import Attempt
from workers.contract.wire.artifacts import Storing
result = copies.record(Attempt.objects.get(run_id=run), path, Storing.STORED, problem="", manifest=manifest)
"""
EVALUATE = """
from runs.engine import checkpoints
from runs.insight.evaluations import starting
from runs.engine.models import Run
from tests.runs import builders
run = Run.objects.get(pk=run)
setup = starting.EvaluationSetup(run.dataset_version, 4, 2, run.reward_version, 1.0)
starting.start(run, [checkpoints.last(run)], setup, builders.a_user())
"""
JOBS = """
from runs.engine.models import Attempt
rows = Attempt.objects.filter(run__source_id=run, run__spec__start_from__gt="").select_related("run", "host")
result = {row.run.kind: [row.status, row.host and row.host.name, row.detail, row.phase_detail] for row in rows}
"""
FOUND = """
from runs.insight.evaluations import results
from runs.engine.models import Run
from runs.engine.records import RunEvent
from runs.engine.served.models import Answer
result = {"prompts": [len(each.prompts) for each in results.of_run(Run.objects.get(pk=run)) if each.folder],
          "merged": RunEvent.objects.filter(run__source_id=run, run__kind="merge", kind="checkpoint").count(),
          "answers": {answer.model: answer.finish for answer in Answer.objects.filter(turn__run__source_id=run)}}
"""


@pytest.fixture
def adapter(tmp_path: Path, tiny_model: Path, train: Train) -> Path:
    """A short training's."""
    lora = LoraSpec(r=4, alpha=64)
    folder = builders.attempt_folder(tmp_path / "a", model=tiny_model, grpo={"max_steps": 2}, run={"lora": lora})
    done = train(folder)
    assert done.returncode == 0, done.stderr[-2000:]
    return folder / PATH


def test_a_host_with_an_empty_disk_fetches_evaluates_merges_and_serves_a_stored_model(
    make_stack: Callable[..., Stack], trainer_python: Path, tiny_model: Path, adapter: Path
) -> None:
    stack = make_stack(GRPO_TRAINER_PYTHON=str(trainer_python), GRPO_CPU_SLOTS="4")
    until(stack, HOST, lambda found: found)
    model = shutil.copytree(tiny_model, stack.installation.models_dir / "tiny")
    with object_store() as bucket, stack.client("admin") as client:
        address = f"{bucket.store.endpoint}/{BUCKET}/team?region=us-east-1"
        run, event = stack.django(SAVED, address=address, model=str(model), rows=builders.rows(), path=PATH)
        manifest = ArtifactStore(bucket.store).upload(adapter, f"{run}/1/{PATH}")
        assert stack.django(STORED, run=run, path=PATH, manifest=manifest)

        assert client.post(f"/models/{event}/merge", data={"dtype": ""}).status_code == 302
        stack.django(EVALUATE, run=run)
        asked = {"text": "2 + 3", "temperature": "0", "max_tokens": "4", "seed": "0"}
        assert client.post(f"/models/{event}/chat/ask", data=asked).status_code == 200
        shown = partial(stack.django, JOBS, run=run)

        def done() -> bool:
            client.get(f"/models/{event}/chat/state")  # somebody looks
            jobs, found = shown(), stack.django(FOUND, run=run)
            assert "failed" not in {status for status, *_ in jobs.values()}, jobs
            return {jobs[kind][0] for kind in ("merge", "evaluation")} == {"succeeded"} and all(
                found["answers"].values()
            )

        wait_until(done, lambda: str(shown()))
        found = stack.django(FOUND, run=run)
        assert (found["prompts"], found["merged"], sorted(found["answers"])) == ([4], 1, ["base", "trained"])
        assert {host for _, host, *_ in shown().values()} == {"testhost"}
        assert client.post(f"/models/{event}/chat/stop").status_code == 204
        wait_until(lambda: shown()["serve"][0] == "stopped", lambda: str(shown()))
    fetched = stack.runs_dir / run / "1" / PATH
    assert (
        fetched.joinpath("adapter_model.safetensors").read_bytes()
        == (adapter / "adapter_model.safetensors").read_bytes()
    )
