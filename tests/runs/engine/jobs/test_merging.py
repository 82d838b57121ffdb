"""Merging from an adapter's page: who may, when it makes sense, and training on from what it makes."""

from __future__ import annotations

import pytest

from controlplane.catalogue.hardware.models import Host
from runs.engine.models import Attempt, Run
from runs.engine.states import RunStatus
from runs.engine.transitions import move
from runs.intake.host_api.ingest import accept
from tests.controlplane.people import operator, viewer
from tests.runs.builders import FREE, a_host, a_run, an_attempt, event
from tests.runs.pages.model_pages.test_model_pages import saved, text
from workers.contract.run.jobs import MERGE
from workers.contract.run.spec import LoraSpec

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("sent")]


def trained(**run: object) -> tuple[Run, str]:
    """A run that has ended, and the page of its model."""
    attempt = an_attempt(run=a_run("sums", **{"lora": LoraSpec(r=4), **run}))
    host = Host.objects.first() or a_host("gpu-1", inventory={"runs_dir": "/data/runs", "cpu_slots": 1})
    Attempt.objects.filter(pk=attempt.pk).update(host=host)
    [model] = saved(attempt, 1)
    attempt.refresh_from_db()
    move(attempt, RunStatus.SUCCEEDED, reason="completed", actor="test", facts={"receipt": FREE})
    return attempt.run, f"/models/{model}/"


def test_two_clicks_are_one_merge_on_the_adapters_host() -> None:
    run, page = trained()
    client = operator()
    for _ in range(2):
        assert client.post(f"{page}merge", {"dtype": "float32"}).status_code == 302
    job = run.jobs.get()
    assert (job.kind, job.spec["job"], job.host.name) == (MERGE, {"dtype": "float32"}, "gpu-1")
    assert viewer().post(f"{page}merge").status_code == 403
    assert "Merge this adapter" not in text(viewer(), page)


def test_what_makes_no_sense_is_refused_with_what_to_do() -> None:
    run, page = trained(lora=None)
    assert "Merge this adapter" not in text(operator(), page)
    answer = operator().post(f"{page}merge", follow=True)
    assert "already has full weights" in answer.content.decode()
    Run.objects.update(
        spec={**run.spec, "lora": {"r": 4, "alpha": 8}, "hardware": {"profile": "p", "quantization": "4bit"}}
    )
    assert "Serve it as an adapter, or train without quantization" in text(operator(), page)
    operator().post(f"{page}merge")
    operator().post(f"{page}merge", {"dtype": "int3"})
    assert not run.jobs.exists()


def test_a_merged_model_is_a_model_to_train_on_from() -> None:
    run, page = trained()
    operator().post(f"{page}merge")
    attempt = an_attempt(run=run.jobs.get())
    Attempt.objects.filter(pk=attempt.pk).update(host=Host.objects.get())
    told = {"text": "20 of 20 prompts.", "facts": {"equal_tokens": 20, "of": 20}}
    saves = {"step": 1, "path": "checkpoints/checkpoint-1", "bytes": 10, "kept": [1]}
    accept(attempt, [event(1, "checkpoint", **saves), event(2, "result", **told)])
    attempt.refresh_from_db()
    move(attempt, RunStatus.SUCCEEDED, reason="completed", actor="test", facts={"receipt": FREE})
    merged = attempt.run.events.get(kind="checkpoint")
    assert f'href="/models/{merged.pk}/">Open the merged model' in text(operator(), page)
    shown = text(operator(), f"/models/{merged.pk}/")
    assert "Merged model" in shown
    assert f"model=%2Fdata%2Fruns%2F{attempt.run_id}%2F1%2Fcheckpoints%2Fcheckpoint-1" in shown
