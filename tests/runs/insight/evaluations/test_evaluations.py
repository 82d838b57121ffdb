"""Evaluations of a run: what is launched, who may, and how checkpoints are compared with the model before training."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.catalogue.datasets.models import DatasetVersion
from runs.engine import checkpoints
from runs.engine.jobs import starting as jobs
from runs.engine.models import Run
from runs.engine.states import RunStatus, final_status
from runs.engine.transitions import move
from runs.insight.evaluations import results
from runs.intake.host_api import uploads
from runs.intake.host_api.ingest import accept
from runs.pages.compare import prompts
from tests.controlplane.people import operator, viewer
from tests.runs import builders
from tests.runs.builders import FREE
from tests.runs.launch.new_run import launching_page
from tests.runs.launch.new_run.launching_page import a_ready_host
from workers.contract.run.evaluation import EVALUATION
from workers.contract.run.jobs import MERGE
from workers.contract.run.spec import LoraSpec
from workers.contract.wire.documents import to_dict
from workers.contract.wire.names import EndReason

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("sent")]


@pytest.fixture
def run() -> Run:
    """Trained, with a checkpoint of step 4."""
    host = a_ready_host()
    form = launching_page.sent(key="page-1", max_steps=4, num_generations=2)
    assert operator().post("/runs/new/", form).status_code == 302
    run = Run.objects.get()
    attempt = run.attempts.get()
    move(attempt, RunStatus.STARTING, reason="test", actor="test", facts={"first_seq": 1, "host": host})
    attempt.refresh_from_db()
    saved = {"step": 4, "path": "checkpoints/checkpoint-4", "bytes": 10, "kept": [4]}
    accept(attempt, [builders.event(1, "checkpoint", **saved)])
    ended(run)
    return run


def ended(run: Run, reason: EndReason = EndReason.COMPLETED) -> None:
    attempt = run.attempts.get()
    if attempt.status == RunStatus.QUEUED:
        move(attempt, RunStatus.STARTING, reason="test", actor="test", facts={"first_seq": 1})
    if attempt.status == RunStatus.STARTING:
        move(attempt, RunStatus.RUNNING, reason="test", actor="test")
    move(attempt, final_status(reason), reason=reason, actor="test", facts={"receipt": FREE})


def asked(run: Run, **changes: Any) -> dict[str, Any]:
    event = run.events.get(kind="checkpoint")
    chosen = {"dataset": run.dataset_version_id, "rewards": run.reward_version_id, "temperature": 1.0}
    return {"checkpoints": [event.pk], "prompts": 4, "generations": 2, **chosen, **changes}


def started(run: Run, **changes: Any) -> list[Run]:
    answer = operator().post(f"/runs/{run.pk}/evaluations/", asked(run, **changes))
    assert answer.status_code == 302, answer.context["form"].errors
    return list(run.jobs.order_by("created_at"))


def answered(run: Run, *rewards: tuple[float, float]) -> None:
    """A prompt for each pair of rewards."""
    groups = [
        {
            "step": 0,
            "row": row,
            "prompt": "p",
            "mode": "eval",
            "completions": [{"text": "a", "tokens": 3, "rewards": {"format": r}, "reward": r} for r in pair],
        }
        for row, pair in enumerate(rewards)
    ]
    uploads.samples(run.attempts.get(), 1, groups)


def test_the_model_before_training_is_evaluated_once_beside_the_checkpoint(run: Run) -> None:
    base, checkpoint = started(run)
    assert {base.kind, checkpoint.kind} == {EVALUATION}
    assert (base.spec["start_from"], checkpoint.spec["start_from"]) == ("", f"{run.pk}/1/checkpoints/checkpoint-4")
    assert base.spec["data"]["eval_rows"] == 4
    assert base.spec["grpo"]["num_generations_eval"] == 2
    assert len(started(run)) == 2  # a second click
    ended(base)
    ended(checkpoint, EndReason.TRAINER_EXITED)
    assert len(started(run)) == 3  # what has failed is tried again
    assert len(started(run, generations=3)) == 5  # another setup needs a base of its own
    assert started(run, temperature=0.5)[-1].spec["grpo"]["temperature"] == 0.5


def test_another_dataset_is_evaluated_on_as_far_as_it_has_validation_rows(run: Run) -> None:
    own = run.dataset_version
    other = DatasetVersion.objects.create(
        dataset=own.dataset, number=9, status=DatasetVersion.READY, rows=5, validation_rows=3, sha256="1" * 64
    )
    answer = operator().post(f"/runs/{run.pk}/evaluations/", asked(run, dataset=other.pk))
    assert answer.status_code == 422
    assert "has 3 validation rows" in answer.content.decode()
    base, checkpoint = started(run, dataset=other.pk, prompts=3)
    assert {base.dataset_version, checkpoint.dataset_version} == {other}


def test_a_merged_model_is_evaluated_as_all_weights_beside_the_adapter(run: Run) -> None:
    Run.objects.filter(pk=run.pk).update(spec={**run.spec, "lora": to_dict(LoraSpec(r=4))})
    [adapter] = checkpoints.of_run(Run.objects.get(pk=run.pk))
    attempt = builders.an_attempt(run=jobs.start(adapter, MERGE, builders.a_user()))
    saved = {"step": 4, "path": "checkpoints/checkpoint-4", "bytes": 10, "kept": [4]}
    accept(attempt, [builders.event(1, "checkpoint", **saved)])
    merged = attempt.run.events.get(kind="checkpoint")
    page = operator().get(f"/runs/{run.pk}/evaluations/").content.decode()
    assert "Step 4, merged" in page
    started(run, checkpoints=[merged.pk])
    base, evaluation = run.jobs.filter(kind=EVALUATION).order_by("created_at")
    assert (base.spec["lora"], evaluation.spec["lora"]) == ({**to_dict(LoraSpec(r=4))}, None)
    assert evaluation.spec["start_from"] == f"{attempt.run_id}/1/checkpoints/checkpoint-4"
    assert [result.merged for result in results.of_run(run)] == [False, True]
    assert "This model" in operator().get(f"/models/{merged.pk}/").content.decode()


def test_an_evaluation_has_nothing_to_save_and_stops_now(run: Run) -> None:
    base, _ = started(run)
    attempt = base.attempts.get()
    move(attempt, RunStatus.STARTING, reason="test", actor="test", facts={"first_seq": 1})
    move(attempt, RunStatus.RUNNING, reason="test", actor="test")
    assert "Save and stop" not in operator().get(f"/runs/{base.pk}/").content.decode()
    operator().post(f"/runs/{base.pk}/stop", {"mode": "save"})
    assert base.attempts.get().stop_mode == "now"


def test_what_can_t_be_evaluated_is_refused(run: Run) -> None:
    for wrong in ({"prompts": 21}, {"prompts": 0}, {"generations": 0}, {"checkpoints": ["77"]}, {"checkpoints": []}):
        assert operator().post(f"/runs/{run.pk}/evaluations/", asked(run, **wrong)).status_code == 422
    assert not run.jobs.exists()


def test_a_viewer_reads_and_starts_none(run: Run) -> None:
    assert viewer().get(f"/runs/{run.pk}/evaluations/").status_code == 200
    assert viewer().post(f"/runs/{run.pk}/evaluations/", asked(run)).status_code == 403


def test_a_checkpoint_is_compared_with_the_model_before_training_by_prompt(run: Run) -> None:
    base, checkpoint = started(run)
    answered(base, (0.0, 0.0), (0.0, 1.0), (0.0, 0.0), (0.0, 0.0))
    answered(checkpoint, (1.0, 1.0), (1.0, 1.0), (0.0, 1.0), (1.0, 1.0))
    for each in (base, checkpoint):
        ended(each)
    before, after = results.of_run(run)
    assert (before.step, after.step) == (None, 4)
    assert (before.pass_1, before.pass_k) == (1 / 8, 1 / 4)
    assert (after.pass_1, after.pass_k) == (7 / 8, 1.0)
    assert after.gain is not None
    assert after.gain.mean == 0.75
    assert 0.5 <= after.gain.low < 0.75 < after.gain.high <= 1.0
    assert after.gain.verdict == "better"
    text = operator().get(f"/runs/{run.pk}/evaluations/").content.decode()
    assert "Before training" in text
    assert "better" in text
    side_by_side = f"/runs/compare/?runs={base.pk},{checkpoint.pk}"
    assert side_by_side in text
    answers = prompts.answers([base, checkpoint], None, "last")
    assert [len(answer.completions) for answer in answers["answers"]] == [2, 2]


def test_the_page_is_followed_while_evaluations_run(run: Run) -> None:
    ask = {"headers": {"HX-Request": "true"}}
    base, checkpoint = started(run)
    assert operator().get(f"/runs/{run.pk}/evaluations/", **ask).status_code == 200
    ended(base)
    ended(checkpoint, EndReason.TRAINER_EXITED)
    assert operator().get(f"/runs/{run.pk}/evaluations/", **ask).status_code == 286


@pytest.mark.parametrize(
    ("differences", "verdict"),
    [([0.5] * 20, "better"), ([-0.5] * 20, "worse"), ([0.5, -0.5] * 10, "unclear")],
)
def test_an_interval_that_holds_zero_is_no_verdict(differences: list[float], verdict: str) -> None:
    interval = results.bootstrap(differences)
    assert interval is not None
    assert interval.verdict == verdict
    assert results.bootstrap(differences) == interval


def test_one_prompt_gives_no_interval() -> None:
    assert results.bootstrap([0.5]) is None
