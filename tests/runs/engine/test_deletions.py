"""Deleting a saved model: what is said first, what forbids it, and that only the host's answer makes it deleted."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from controlplane.catalogue.hardware.models import Host
from controlplane.platform.http.tokens import attempt_token
from runs.engine import checkpoints
from runs.engine.jobs import starting
from runs.engine.models import Attempt, Run
from runs.engine.states import RunStatus
from runs.engine.transitions import move
from tests.controlplane.people import operator, viewer
from tests.runs.builders import FREE, a_run, a_user, an_attempt
from tests.runs.conftest import Sent
from tests.runs.engine.jobs.test_merging import trained
from tests.runs.pages.model_pages.test_model_pages import text
from workers.contract.run.evaluation import EVALUATION
from workers.contract.run.jobs import MERGE
from workers.contract.run.spec import LoraSpec, RewardSpec
from workers.contract.wire.documents import ContractError, to_dict
from workers.contract.wire.names import Task

pytestmark = pytest.mark.django_db

PATH = "checkpoints/checkpoint-1"


@pytest.fixture
def model(sent: Sent) -> tuple[Run, str]:
    return trained()


def answer(run: Run, **body: Any) -> int:
    attempt = run.attempts.get()
    headers = {"Authorization": f"Bearer {attempt_token(attempt.pk)}"}
    told = json.dumps({"path": PATH, **body})
    url = f"/api/attempts/{attempt.pk}/deleted"
    return Client().post(url, told, content_type="application/json", headers=headers).status_code


def events(run: Run) -> list[str]:
    return [kind for kind in run.events.order_by("id").values_list("kind", flat=True) if "delet" in kind]


def delete(page: str) -> str:
    """What the page says afterwards."""
    return operator().post(f"{page}delete", follow=True).content.decode()


def test_it_is_deleted_when_the_host_says_so(model: tuple[Run, str], sent: Sent) -> None:
    run, page = model
    assert "to delete this model" in delete(page)
    folder = f"{run.pk}/1/{PATH}"
    assert sent.of(Task.DELETE_MODEL) == [[folder, attempt_token(f"{run.pk}-1")]]
    assert not checkpoints.of_run(run)[0].usable
    assert answer(run) == 200
    assert "This model was deleted" in text(viewer(), page)
    assert checkpoints.of_run(run)[0].removed
    assert "The host deleted checkpoint-1." in text(viewer(), f"/runs/{run.pk}/events/")


def test_two_clicks_two_answers_and_a_late_message_are_one_deletion(model: tuple[Run, str], sent: Sent) -> None:
    run, page = model
    delete(page)
    delete(page)
    assert answer(run) == answer(run) == answer(run, problem="too late") == 200
    delete(page)
    assert events(run) == ["deletion_asked", "model_deleted"]
    assert len(sent.of(Task.DELETE_MODEL)) == 2


def test_a_host_that_can_t_is_quoted_and_the_model_is_usable_again(model: tuple[Run, str]) -> None:
    run, page = model
    delete(page)
    assert answer(run, problem="It is a link.") == 200
    assert "The model wasn&#x27;t deleted: It is a link." in text(operator(), page)
    assert checkpoints.of_run(run)[0].usable


def test_an_answer_that_nobody_asked_for_deletes_nothing(model: tuple[Run, str]) -> None:
    run, _ = model
    assert answer(run) == 409
    assert checkpoints.of_run(run)[0].usable


def test_a_host_that_is_away_is_said_and_nothing_is_asked(model: tuple[Run, str], sent: Sent) -> None:
    run, page = model
    sent.down = True
    assert "could not be sent" in delete(page)
    assert checkpoints.of_run(run)[0].usable
    Host.objects.update(announced_at=timezone.now() - timedelta(hours=1))
    assert "gpu-1 is unreachable" in delete(page)
    assert sent.messages == []


def test_only_operators_delete(model: tuple[Run, str]) -> None:
    _, page = model
    assert viewer().post(f"{page}delete").status_code == 403
    assert "Delete this model" not in text(viewer(), page)


def test_what_is_at_work_on_it_forbids_it(model: tuple[Run, str]) -> None:
    run, page = model
    [checkpoint] = checkpoints.of_run(run)
    job = starting.start(checkpoint, MERGE, a_user())
    path = f"/data/runs/{checkpoint.folder}"
    a_run("further", model=path)
    judged = a_run("judged")
    judged.spec["rewards"] = [to_dict(RewardSpec("judge", "reward_model", 1.0, {"model": path}))]
    judged.save()
    shown = text(operator(), page)
    assert "This model can’t be deleted now" in shown
    for words in (f"The job “{job.name}” is queued", "The run “further” is queued", "The run “judged” is queued"):
        assert words in shown
        assert words in delete(page)
    assert events(run) == []


def test_a_run_that_goes_on_keeps_its_checkpoints(sent: Sent) -> None:
    run, page = trained()
    Attempt.objects.update(resumes_at=timezone.now())
    assert "Cancel the resume first" in delete(page)
    Attempt.objects.update(resumes_at=None, status=RunStatus.RUNNING)
    assert "Its run is running" in delete(page)
    assert events(run) == []


def test_what_refers_to_it_is_said_first(model: tuple[Run, str]) -> None:
    run, page = model
    [checkpoint] = checkpoints.of_run(run)
    for name, kind in (("further", "train"), ("scores", EVALUATION), ("merge", MERGE)):
        other = a_run(name, lora=LoraSpec(r=4))
        Run.objects.filter(pk=other.pk).update(kind=kind, spec={**other.spec, "start_from": checkpoint.folder})
        attempt = an_attempt(RunStatus.RUNNING, run=other)
        move(attempt, RunStatus.SUCCEEDED, reason="completed", actor="test", facts={"receipt": FREE})
    shown = text(operator(), page)
    for words in (
        "1 run started from it",
        "further",
        "1 evaluation of it",
        "1 job on it",
        "only remaining checkpoint of its run",
    ):
        assert words in shown


def test_nothing_begins_on_a_model_that_is_being_deleted(model: tuple[Run, str]) -> None:
    run, page = model
    delete(page)
    [checkpoint] = checkpoints.of_run(run)
    with pytest.raises(ContractError, match="no longer exists"):
        starting.start(checkpoint, MERGE, a_user())


def test_an_open_page_follows(model: tuple[Run, str]) -> None:
    run, page = model
    asks = {"HX-Request": "true"}
    answered_once = operator().get(page, headers=asks)
    assert (answered_once.status_code, "hx-swap-oob" in answered_once.content.decode()) == (286, True)
    delete(page)
    assert "?going=1" in text(operator(), page)
    assert "HX-Refresh" not in operator().get(f"{page}?going=1", headers=asks)
    answer(run)
    assert operator().get(f"{page}?going=1", headers=asks)["HX-Refresh"] == "true"
