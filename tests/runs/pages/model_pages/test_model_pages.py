"""The Models page, and the page of a model that a run has saved."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from controlplane.catalogue.hardware.models import Host
from runs.engine.models import Attempt, Run
from runs.intake.host_api.ingest import accept
from tests.controlplane.people import operator, viewer
from tests.runs.builders import a_host, a_run, an_attempt, event, train
from workers.contract.run.spec import LoraSpec

pytestmark = pytest.mark.django_db


def saved(attempt: Attempt, *steps: int) -> list[int]:
    """The ids of the models that the attempt has saved and kept."""
    lines = [event(n, "checkpoint", step=n, path=f"checkpoints/checkpoint-{n}", bytes=2048) for n in steps]
    accept(attempt, lines)
    return list(attempt.run.events.filter(kind="checkpoint").values_list("pk", flat=True))


def text(client: Client, path: str, **query: Any) -> str:
    answer = client.get(path, query)
    assert answer.status_code == 200
    return answer.content.decode()


def test_the_list_has_what_runs_have_saved_and_what_lies_on_the_hosts() -> None:
    saved(an_attempt(run=a_run("sums")), 1, 2)
    facts = [{"model": "/models/tiny", "model_type": "qwen3", "parameters": 7_600_000_000, "bytes": 1}]
    a_host("gpu-1", inventory={"model_facts": facts})
    page = text(viewer(), "/models/")
    assert "sums · step 1" in page
    assert "sums · step 2" in page
    assert "7.6B" in page
    assert "All weights" in page


def test_the_list_is_searched_by_name_and_base_model() -> None:
    saved(an_attempt(run=a_run("sums", model="/models/small")), 1)
    assert "sums · step 1" in text(viewer(), "/models/", q="SMALL")
    assert "No run&#x27;s model matches" in text(viewer(), "/models/", q="quotients")


def test_an_empty_installation_says_where_models_come_from() -> None:
    page = text(viewer(), "/models/")
    assert "No run has saved a model yet" in page
    assert "No host has a model" in page
    assert "No model on a host matches" in text(viewer(), "/models/?q=qwen")


def test_a_model_leads_to_the_other_steps_of_its_run() -> None:
    first, second = saved(an_attempt(run=a_run("sums")), 1, 2)
    page = text(viewer(), f"/models/{second}/")
    assert f'<a href="/models/{first}/">1</a>' in page
    assert f'<a href="/models/{second}/">' not in page


def test_a_model_shows_its_lineage() -> None:
    [model] = saved(an_attempt(run=a_run("sums", lora=LoraSpec(r=4))), 1)
    page = text(viewer(), f"/models/{model}/")
    for words in ("Adapter", "rank 4", "/models/tiny", "sums v1", "tags v1", "0" * 12):
        assert words in page


def test_a_model_says_how_good_it_is_and_how_its_run_went_on() -> None:
    attempt = an_attempt(run=a_run("sums"))
    accept(attempt, [train(step, step, reward=step / 20) for step in range(1, 13)])
    accept(attempt, [event(13, "checkpoint", step=12, path="checkpoints/checkpoint-12", bytes=9)])
    accept(attempt, [train(14, 13, reward=0.25)])
    page = text(viewer(), f"/models/{attempt.run.events.get(kind='checkpoint').pk}/")
    quality = " ".join(page[page.index('id="quality"') : page.index('id="facts"')].split())
    assert "0.375" in quality  # the mean of the ten steps up to its own
    assert "+0.3" in quality
    assert "last 0.250, best 0.600" in quality
    assert "at step 12" in quality
    assert "no evaluation of this model yet" in quality
    assert f'href="/runs/{attempt.run_id}/?tab=charts"' in quality


def test_only_operators_train_on_from_a_model() -> None:
    attempt = an_attempt(run=a_run(host=a_host(inventory={"runs_dir": "/data/runs", "cpu_slots": 1})))
    Attempt.objects.filter(pk=attempt.pk).update(host=Host.objects.get())
    [model] = saved(attempt, 1)
    assert "Train on" not in text(viewer(), f"/models/{model}/")
    page = text(operator(), f"/models/{model}/")
    assert f"model=%2Fdata%2Fruns%2F{attempt.run_id}%2F1%2Fcheckpoints%2Fcheckpoint-1" in page


def test_a_model_that_was_deleted_says_so_and_offers_nothing() -> None:
    attempt = an_attempt(run=a_run(grpo={"max_steps": 20, "save_total_limit": 1}))
    older, _ = saved(attempt, 1, 2)
    page = text(operator(), f"/models/{older}/")
    assert "no longer exists" in page
    assert "Train on" not in page


def test_there_is_no_model_where_nothing_was_saved() -> None:
    status = an_attempt().run.events.get(kind="submitted")
    assert viewer().get(f"/models/{status.pk}/").status_code == 404
    assert viewer().get("/models/12345/").status_code == 404


def test_archived_runs_are_left_out() -> None:
    attempt = an_attempt(run=a_run("sums"))
    saved(attempt, 1)
    Run.objects.update(archived_at=attempt.created_at)
    assert "sums · step 1" not in text(viewer(), "/models/")
