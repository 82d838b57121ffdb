"""A run whose host is lost with all its files: from the artifact store it resumes on another host, to the same numbers,
and is evaluated on a third."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.datasets import parquet
from tests.fakes.fake_control import FakeControl
from tests.fakes.object_store import ObjectStore, object_store
from tests.trainer import builders
from tests.trainer.conftest import Train
from tests.waiting import wait_until
from tests.workers.supervisor.attempts import RUN, Attempt, build_settings
from workers.contract.run.evaluation import EVALUATION
from workers.contract.run.spec import AttemptSpec, Placement, RunSpec
from workers.contract.wire.artifacts import STORES
from workers.contract.wire.documents import to_dict
from workers.contract.wire.names import FileName

pytestmark = [pytest.mark.trainer, pytest.mark.processes]

STEPS, SAVED = 8, 4
PATH = f"checkpoints/checkpoint-{SAVED}"
ASKED: dict[str, Any] = {"max_steps": STEPS, "save_steps": SAVED, "save_total_limit": 2, "num_generations_eval": 4}
HELD_OUT = 4


@pytest.fixture
def bucket() -> Iterator[ObjectStore]:
    with object_store() as made:
        yield made


def an_attempt(root: Path, run: RunSpec, python: Path, bucket: ObjectStore, **more: Any) -> Attempt:
    """On a host whose files are all below `root`, with a control plane that knows the store."""
    control = FakeControl(parquet(builders.rows(), validation=HELD_OUT)).start()
    control.secrets = {STORES: "1"}
    control.store_answer = {"store": to_dict(bucket.store), "manifest": more.pop("manifest", "")}
    command = (str(python), "-m", "workers.trainer")
    models = (Path(run.model.path).parent,)
    settings = build_settings(root / "runs", control, trainer_command=command, model_roots=models, settle_s=5.0)
    spec = AttemptSpec(f"{RUN}-1", 1, 1, run, Placement("testhost", cpu_slots=(0,)))
    made = Attempt(control, settings, replace(spec, **more))
    made.launch(OMP_NUM_THREADS="1")
    return made


def lose(made: Attempt, root: Path) -> None:
    """The host with all its processes and files."""
    made.kill_leftovers()
    made.wait_until_gone()
    made.control.close()
    shutil.rmtree(root)


def stored(made: Attempt) -> dict[str, str]:
    return {each["path"]: each["manifest"] for each in made.control.stored if each["state"] == "stored"}


def test_a_lost_hosts_run_goes_on_elsewhere_as_if_nothing_had_happened(
    tiny_model: Path, trainer_python: Path, tmp_path: Path, bucket: ObjectStore, train: Train
) -> None:
    whole = builders.attempt_folder(tmp_path / "whole", model=tiny_model, grpo=ASKED, eval_rows=HELD_OUT)
    assert train(whole).returncode == 0
    run = replace(builders.spec_of(whole).run, run_id=RUN)

    first = an_attempt(tmp_path / "first", run, trainer_python, bucket)
    wait_until(lambda: PATH in stored(first), first.why)
    manifest = stored(first)[PATH]
    lose(first, tmp_path / "first")

    resumed: dict[str, Any] = {"attempt_id": f"{RUN}-2", "number": 2, "resume_from": f"{RUN}/1/{PATH}"}
    second = an_attempt(tmp_path / "second", run, trainer_python, bucket, manifest=manifest, **resumed)
    assert second.wait_for_end()["reason"] == "completed", second.why()
    undisturbed = builders.logs(whole)
    assert builders.logs(second.folder.path) == {step: undisturbed[step] for step in range(SAVED + 1, STEPS + 1)}
    lose(second, tmp_path / "second")
    it_is_evaluated_on_a_third_host(tmp_path / "third", run, trainer_python, bucket, manifest)


def it_is_evaluated_on_a_third_host(root: Path, run: RunSpec, python: Path, bucket: ObjectStore, manifest: str) -> None:
    job = replace(run, run_id="rtesteval22", kind=EVALUATION, start_from=f"{RUN}/1/{PATH}")
    third = an_attempt(root, job, python, bucket, manifest=manifest, attempt_id="rtesteval22-1")
    assert third.wait_for_end()["reason"] == "completed", third.why()
    assert len({group["row"] for group in builders.lines(third.folder / FileName.SAMPLES)}) == HELD_OUT
    lose(third, root)
