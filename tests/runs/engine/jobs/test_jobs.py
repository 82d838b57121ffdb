"""Jobs on a checkpoint: what is queued, where, below what, and how they are shown."""

from __future__ import annotations

import pytest

from runs.engine import checkpoints
from runs.engine.jobs import results, starting
from runs.engine.models import Attempt, Priority, Run
from runs.engine.records import RunEvent
from runs.engine.scheduling import gpu_queue, launching
from runs.engine.spec import spec_of
from runs.engine.states import RunStatus
from runs.engine.transitions import move
from runs.intake.host_api.ingest import accept
from tests.controlplane.people import operator
from tests.runs.builders import FREE, a_host, a_run, a_user, an_attempt, event
from tests.runs.pages.model_pages.test_model_pages import saved
from workers.contract.run.jobs import MERGE
from workers.contract.run.spec import LoraSpec, RecoverySpec
from workers.contract.wire.documents import ContractError

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("sent")]


@pytest.fixture
def trained() -> Run:
    attempt = an_attempt(run=a_run("sums", lora=LoraSpec(r=4), recovery=RecoverySpec(resumes=2)))
    Attempt.objects.filter(pk=attempt.pk).update(host=a_host("gpu-1"))
    saved(attempt, 1)
    return attempt.run


def merge(run: Run) -> Run:
    [checkpoint] = checkpoints.of_run(run)
    return starting.start(checkpoint, MERGE, a_user())


def test_a_job_has_the_runs_spec_with_its_own_kind_and_hardware(trained: Run) -> None:
    job = merge(trained)
    spec = spec_of(job)
    assert (job.name, job.kind, job.source) == ("sums · step 1 · merge", MERGE, trained)
    assert (spec.start_from, spec.lora) == (f"{trained.pk}/1/checkpoints/checkpoint-1", LoraSpec(r=4))
    assert (spec.recovery, spec.hardware.trainer_gpus) == (RecoverySpec(), 0)
    assert job.host is not None
    assert job.host.name == "gpu-1"


def test_a_job_waits_behind_all_training(trained: Run) -> None:
    job = merge(trained)
    late = a_run("late", priority=Priority.LOW)
    assert [attempt.run for attempt in gpu_queue.queued_attempts()] == [late, job]


def test_a_job_shows_how_far_it_is_and_then_its_result(trained: Run) -> None:
    attempt = an_attempt(run=merge(trained))
    accept(attempt, [event(1, "training", max_steps=4, step=0)])
    Run.objects.filter(pk=attempt.run_id).update(step=1)
    [checkpoint] = checkpoints.of_run(trained)
    [live] = results.of_checkpoint(checkpoint)
    assert (live.label, live.percent, live.live) == ("Merge", 25, True)
    accept(attempt, [event(2, "result", text="All equal.", facts={"equal": 3})])
    [told] = results.of_checkpoint(checkpoint)
    assert (told.text, told.facts) == ("All equal.", {"equal": 3})


def test_the_page_of_a_job_leads_back_to_its_model_and_has_nothing_of_a_training(trained: Run) -> None:
    attempt = an_attempt(RunStatus.RUNNING, run=merge(trained))
    [checkpoint] = checkpoints.of_run(trained)
    answer = operator().get(f"/runs/{attempt.run_id}/")
    page = answer.content.decode()
    assert f'<a href="/models/{checkpoint.event.pk}/">sums · step 1</a>' in " ".join(page.replace("\n", " ").split())
    assert [group.title for group in answer.context["groups"]] == ["Machine"]
    assert 'class="tiles"' not in page
    assert "the model stays unchanged" in page  # what a stop does
    for words in ("Clone", "Completions", "no step has been trained", "(deleted)"):
        assert words not in page


def test_a_job_that_is_over_says_what_it_has_made_and_is_not_resumed(trained: Run) -> None:
    attempt = an_attempt(RunStatus.RUNNING, run=merge(trained))
    accept(attempt, [event(1, "checkpoint", step=1, path="checkpoints/checkpoint-1", bytes=9, kept=[1])])
    move(attempt, RunStatus.SUCCEEDED, reason="completed", actor="test", facts={"receipt": FREE})
    page = operator().get(f"/runs/{attempt.run_id}/").content.decode()
    assert "The job is done." in page
    assert "Open the merged model" in page
    assert "Resume" not in page
    with pytest.raises(launching.NotResumable, match="Start the job again"):
        launching.resume(attempt.run, a_user())


def test_nothing_is_started_on_a_checkpoint_that_is_gone(trained: Run) -> None:
    RunEvent.objects.filter(kind="checkpoint").update(data={"step": 1, "path": "checkpoints/checkpoint-1", "kept": []})
    with pytest.raises(ContractError, match="no longer exists"):
        merge(trained)
