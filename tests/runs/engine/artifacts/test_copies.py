"""Checkpoints in the artifact store: what the control plane tells hosts and people, and where runs resume."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from controlplane.catalogue.datasets.models import StoredFolder
from controlplane.catalogue.hardware.models import Host
from controlplane.platform.accounts.models import Secret
from controlplane.platform.accounts.secret_forms import SecretForm
from controlplane.platform.http.tokens import attempt_token
from runs.engine import checkpoints
from runs.engine.checkpoints import Checkpoint
from runs.engine.jobs import model_jobs
from runs.engine.jobs import starting as jobs
from runs.engine.models import Attempt, Run
from runs.engine.scheduling import launching
from runs.engine.served import starting as served
from runs.engine.states import RunStatus
from runs.engine.transitions import move
from runs.insight.evaluations import starting as evaluations
from runs.intake.host_api import ingest
from runs.launch.new_run import starting as new_runs
from tests.controlplane.people import viewer
from tests.controlplane.platform.accounts.secret_rows import a_store
from tests.runs.builders import a_host, a_run, a_user, an_attempt, event
from workers.contract.run.jobs import ARCHIVE

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("sent")]

ADDRESS = "https://s3.example.com/grpo/team"
PATH = "checkpoints/checkpoint-10"


@pytest.fixture
def saved() -> Attempt:
    """Claimed, with two checkpoints."""
    attempt = an_attempt(RunStatus.STARTING, run=a_run(host=a_host()))
    Attempt.objects.filter(pk=attempt.pk).update(host=attempt.run.host, claimed_at=timezone.now())
    Run.objects.update(host=None)
    lines = [event(n, "checkpoint", step=n * 10, path=f"checkpoints/checkpoint-{n * 10}") for n in (1, 2)]
    ingest.accept(attempt, lines)
    return Attempt.objects.select_related("run").get(pk=attempt.pk)


def post(attempt: Attempt, what: str, **body: Any) -> Any:
    headers = {"Authorization": f"Bearer {attempt_token(attempt.pk)}"}
    url = f"/api/attempts/{attempt.pk}/{what}"
    return Client().post(url, json.dumps(body), content_type="application/json", headers=headers)


def tell(attempt: Attempt, state: str, path: str = PATH, **more: str) -> int:
    return int(post(attempt, "stored", path=path, state=state, **more).status_code)


def test_the_uploading_process_gets_the_stores_place_and_no_keys(saved: Attempt) -> None:
    assert post(saved, "store").json() == {"store": None, "manifest": ""}
    a_store()
    store = post(saved, "store").json()["store"]
    assert store == {
        "endpoint": "https://s3.example.com",
        "bucket": "grpo",
        "prefix": "team",
        "region": "eu-central-1",
        "key": "",
        "secret": "",
    }
    assert "SECRET" not in str(Secret.objects.values())


def test_nobody_gets_a_signature_before_the_claim_or_without_a_store(saved: Attempt) -> None:
    upload = {"method": "PUT", "path": f"/grpo/team/{saved.run_id}/1/{PATH}/model.safetensors"}
    assert post(saved, "store/signature", **upload).status_code == 403
    a_store()
    assert "X-Amz-Signature=" in post(saved, "store/signature", **upload).json()["url"]
    Attempt.objects.update(claimed_at=None)
    assert [post(saved, what, **body).status_code for what, body in (("store", {}), ("store/signature", upload))] == [
        409,
        409,
    ]


@pytest.mark.parametrize(
    ("address", "key", "words"),
    [
        ("https://s3.example.com", "ID:SECRET", "must name a bucket"),
        ("https://s3.example.com/grpo?acl=public", "ID:SECRET", "only the region"),
        (ADDRESS, "SECRET", "ID:SECRET"),
    ],
)
def test_a_store_that_cannot_be_is_refused_in_words(address: str, key: str, words: str) -> None:
    form = SecretForm({"name": "ARTIFACT_STORE", "kind": "store", "address": address, "key": key})
    assert words in str(form.errors)


def test_what_is_told_twice_is_one_event_and_the_page_shows_it(saved: Attempt) -> None:
    assert [tell(saved, state) for state in ("uploading", "uploading", "stored", "stored")] == [200] * 4
    assert saved.run.events.filter(kind__startswith="checkpoint_").count() == 2
    assert "any host can resume from it" in viewer().get(f"/runs/{saved.run_id}/checkpoints/").content.decode()
    assert tell(saved, "stored", path="checkpoints/checkpoint-99") == 409
    assert tell(saved, "nonsense") == 400


def test_a_failure_is_told_on_the_page_until_it_is_stored(saved: Attempt) -> None:
    for state in ("uploading", "failed", "uploading", "failed"):
        tell(saved, state, **({"problem": "The store is full."} if state == "failed" else {}))
    assert saved.run.events.filter(kind="checkpoint_not_stored").count() == 1
    assert "The store is full." in viewer().get(f"/runs/{saved.run_id}/checkpoints/").content.decode()
    tell(saved, "stored", manifest="a" * 64)
    assert "The store is full." not in viewer().get(f"/runs/{saved.run_id}/checkpoints/").content.decode()


def resumed(saved: Attempt) -> Attempt:
    Attempt.objects.filter(pk=saved.pk).update(status=RunStatus.FAILED, reason="host_lost")
    return launching.resume(saved.run, saved.run.owner)


def test_a_lost_hosts_run_resumes_anywhere_from_its_newest_stored_checkpoint(saved: Attempt) -> None:
    tell(saved, "stored", manifest="a" * 64)
    Host.objects.update(announced_at=None)
    second = resumed(saved)
    assert (second.host, second.resume_step) == (None, 10)
    Attempt.objects.filter(pk=second.pk).update(claimed_at=timezone.now())
    assert post(second, "store").json()["manifest"] == "a" * 64


def test_while_its_host_answers_a_run_resumes_there_from_its_last_checkpoint(saved: Attempt) -> None:
    tell(saved, "stored", manifest="a" * 64)
    second = resumed(saved)
    assert (str(second.host), second.resume_step) == ("box", 20)
    assert [each.stored for each in checkpoints.of_run(saved.run)] == [False, True]


@pytest.fixture
def orphan(saved: Attempt) -> Checkpoint:
    """Stored, of an ended run whose host is unreachable."""
    tell(saved, "stored", manifest="a" * 64)
    Host.objects.update(announced_at=None)
    move(saved, RunStatus.FAILED, reason="host_lost", actor="test")
    found = checkpoints.by_folder(f"{saved.run_id}/1/{PATH}")
    assert found
    return found


def test_jobs_and_evaluations_of_a_lost_hosts_checkpoint_go_anywhere(orphan: Checkpoint) -> None:
    user, run = a_user(), orphan.run
    run.dataset_version.validation_rows = 1
    merge = jobs.start_once(orphan, ARCHIVE, user)
    setup = evaluations.EvaluationSetup(run.dataset_version, 1, 2, run.reward_version, 1.0)
    [of_start, of_checkpoint] = evaluations.start(run, [orphan], setup, user)
    assert [each.host for each in (merge, of_start, of_checkpoint)] == [None] * 3
    Attempt.objects.filter(run=of_checkpoint).update(claimed_at=timezone.now())
    attempt = of_checkpoint.attempts.get()
    assert post(attempt, "store", folder=orphan.folder).json()["manifest"] == "a" * 64
    assert post(attempt, "store", folder=f"{run.pk}/1/checkpoints/checkpoint-20").json()["manifest"] == ""


def test_what_only_some_hosts_can_do_goes_to_one_of_them(orphan: Checkpoint) -> None:
    a_host("small")
    able = a_host("able", gpus=1)
    able.inventory |= {"converts_to_gguf": True, "runs_dir": "/elsewhere"}
    able.save()
    model_jobs.convert(orphan, a_user(), kind="f16")
    assert served.engines_on(served.host_for(orphan)) == ["cpu", "gpu"]
    served.live_or_start(orphan, a_user(), engine="gpu")
    assert {str(job.host) for job in orphan.run.jobs.all()} == {"able"}


def test_without_a_copy_all_waits_for_the_host_that_has_the_files(orphan: Checkpoint) -> None:
    a_host("other")
    unstored = checkpoints.by_folder(f"{orphan.run.pk}/1/checkpoints/checkpoint-20")
    assert unstored
    assert str(jobs.start_once(unstored, ARCHIVE, a_user()).host) == "box"
    assert str(served.host_for(unstored)) == "box"


def test_a_new_run_may_start_with_it_on_any_host(orphan: Checkpoint) -> None:
    other = a_host("other")
    choices = {"model": orphan.run.spec["model"]["path"], "lora": None, "profile": None, "host": other}
    assert [field for field, _ in new_runs.problems(orphan, **choices) if field == "host"] == []
    unstored = checkpoints.by_folder(f"{orphan.run.pk}/1/checkpoints/checkpoint-20")
    assert [field for field, _ in new_runs.problems(unstored, **choices) if field == "host"] == ["host"]


def test_a_host_waits_for_a_dataset_that_comes_from_the_store(
    saved: Attempt, settings: Settings, tmp_path: Path
) -> None:
    settings.DATA_DIR = tmp_path  # another test's rows may lie under the same number

    def answer() -> int:
        headers = {"Authorization": f"Bearer {attempt_token(saved.pk)}"}
        return Client().get(f"/api/attempts/{saved.pk}/dataset", headers=headers).status_code

    name = f"datasets/{saved.run.dataset_version_id}"
    StoredFolder.objects.create(name=name, store=a_store().address, stored_at=timezone.now())
    assert answer() == 503
    StoredFolder.objects.update(stored_at=None)
    assert answer() == 404
