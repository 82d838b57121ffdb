"""Deleting runs and the catalogue's items, getting them back, and deleting them for good."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from controlplane.catalogue.datasets.models import Dataset, DatasetVersion
from controlplane.catalogue.hardware.models import HardwareProfile, Host
from controlplane.catalogue.rewards.models import RewardConfig
from controlplane.platform.http.tokens import attempt_token
from runs.engine import checkpoints, disk
from runs.engine.artifacts.models import StoredCopy
from runs.engine.jobs import starting
from runs.engine.models import Attempt, Lease, Run, RunDisk
from runs.engine.records import LogChunk, MetricRow, SampleRow, SampleStore
from runs.engine.scheduling import launching, recovery
from runs.engine.spec import LaunchRequest
from runs.engine.states import RunStatus
from runs.engine.trash import deleting, naming, purging
from runs.engine.trash.kinds import KINDS
from runs.intake.host_api import ingest
from tests.runs.builders import a_host, a_run, a_user, an_attempt, rewards_named, train
from tests.runs.conftest import Sent
from tests.runs.engine.jobs.test_merging import trained
from workers.contract.run.jobs import MERGE
from workers.contract.wire.documents import ContractError
from workers.contract.wire.names import Task

pytestmark = pytest.mark.django_db

LATER = timedelta(days=15)


@pytest.fixture
def run(sent: Sent) -> Run:
    """It has ended on gpu-1, with one checkpoint."""
    run, _ = trained()
    Attempt.objects.update(dispatched_at=timezone.now())
    return run


def delete(row: Any, kind: str = "run") -> Any:
    return deleting.delete(KINDS[kind], row.pk, a_user())


def restore(row: Any, kind: str = "run") -> str:
    return deleting.restore(KINDS[kind], row.pk, a_user())[1]


def told(run: Run) -> list[str]:
    return list(run.events.order_by("id").values_list("kind", flat=True))


def answer(run: Run, problem: str = "") -> int:
    """What the run's host says of its folder."""
    attempt = run.attempts.get()
    headers = {"Authorization": f"Bearer {attempt_token(attempt.pk)}"}
    body = json.dumps({"path": "", "problem": problem})
    url = f"/api/attempts/{attempt.pk}/deleted"
    return Client().post(url, body, content_type="application/json", headers=headers).status_code


def test_a_deleted_run_is_nowhere_and_comes_back_as_it_was(run: Run) -> None:
    delete(run)
    delete(run)  # a second click
    assert not Run.objects.exists()
    gone = Run.every.get()
    assert (gone.deleted_by, gone.purge_at - gone.deleted_at) == (a_user(), timedelta(days=14))
    assert restore(run) == restore(run) == ""
    assert Run.objects.get().purge_at is None
    assert told(run).count("deleted") == told(run).count("restored") == 1


@pytest.mark.parametrize(
    ("status", "words"),
    [(RunStatus.QUEUED, "Remove it from the queue first"), (RunStatus.RUNNING, "is running. Stop it first")],
)
@pytest.mark.usefixtures("sent")
def test_a_live_run_stays(status: RunStatus, words: str) -> None:
    attempt = an_attempt(status)
    with pytest.raises(deleting.NotDeletable, match=words):
        delete(attempt.run)


def test_a_run_stays_while_others_need_it_or_its_gpus_are_not_free(run: Run) -> None:
    [checkpoint] = checkpoints.of_run(run)
    job = starting.start(checkpoint, MERGE, a_user())
    a_run("further", model=f"/data/runs/{checkpoint.folder}")
    Lease.objects.create(attempt=run.latest(), host=Host.objects.get(), resource="gpu:0", state=Lease.QUARANTINED)
    with pytest.raises(deleting.NotDeletable) as refused:
        delete(run)
    for words in (f"“{job.name}” is queued", "“further” is queued", "GPU 0 of gpu-1 is in quarantine"):
        assert words in str(refused.value)


def test_its_jobs_go_and_come_back_with_it_but_not_one_that_was_deleted_before(run: Run) -> None:
    [checkpoint] = checkpoints.of_run(run)
    jobs = [starting.start(checkpoint, MERGE, a_user()), starting.start(checkpoint, "archive", a_user())]
    Attempt.objects.update(status=RunStatus.SUCCEEDED)
    delete(jobs[1])
    delete(run)
    assert not Run.objects.exists()
    with pytest.raises(deleting.NotRestorable, match="Restore that run"):
        restore(jobs[0])
    restore(run)
    assert set(Run.objects.all()) == {run, jobs[0]}


def test_a_deleted_run_is_not_resumed_and_nothing_begins_on_it(run: Run) -> None:
    Attempt.objects.update(resumes_at=timezone.now())
    [checkpoint] = checkpoints.of_run(run)
    delete(run)
    recovery.resume_due(timezone.now())
    with pytest.raises(launching.NotResumable, match="was deleted"):
        launching.resume(run, a_user())
    with pytest.raises(ContractError, match="was deleted"):
        starting.start(checkpoint, MERGE, a_user())
    assert run.attempts.count() == 1


def test_a_late_line_of_a_deleted_run_is_stored(run: Run) -> None:
    delete(run)
    attempt = Attempt.objects.select_related("run").get()
    ingest.accept(attempt, [train(attempt.last_seq + 1)])
    assert Run.every.get().last_seq == attempt.last_seq + 1


def test_for_good_the_host_deletes_first_and_then_everything_is_gone(run: Run, sent: Sent) -> None:
    attempt, now = run.latest(), timezone.now()
    Lease.objects.create(attempt=attempt, host=Host.objects.get(), resource="gpu:0", state=Lease.RELEASED)
    MetricRow.objects.create(run=run, attempt=attempt, seq=99, t=0, kind="train", values={})
    SampleRow.objects.create(run=run, attempt=attempt, line=1, step=1, data={})
    LogChunk.objects.create(attempt=attempt, name="trainer", offset=0, data=b"text")
    SampleStore.objects.create(run=run)
    RunDisk.objects.create(run=run, host=Host.objects.get(), bytes=1, measured_at=now)
    delete(run)
    purging.purge(now)
    assert sent.of(Task.DELETE_MODEL) == []
    assert deleting.purge_now(KINDS["run"], run.pk)
    for _ in range(2):
        purging.purge(timezone.now())
    assert sent.of(Task.DELETE_MODEL) == [[f"{run.pk}/1", attempt_token(attempt.pk)]]
    assert answer(run, "It is a link.") == 200
    assert purging.waits_for(run, timezone.now()) == "gpu-1 couldn't delete the run's files: It is a link."
    with pytest.raises(deleting.NotRestorable):
        restore(run)
    purging.purge(timezone.now() + timedelta(hours=2))  # which is also too late for an answer: gpu-1 is unreachable
    Host.objects.update(announced_at=timezone.now() + timedelta(hours=2))
    purging.purge(timezone.now() + timedelta(hours=2))
    assert answer(run) == 200
    assert purging.purge(timezone.now()) == 1
    assert not any(
        model.objects.exists() for model in (Run.every.model, Lease, SampleRow, LogChunk, RunDisk, MetricRow)
    )
    assert not Run.every.exists()


def test_for_good_waits_for_the_artifact_store_and_for_no_host_that_is_gone(run: Run) -> None:
    StoredCopy.objects.create(attempt=run.latest(), path="checkpoints/checkpoint-1")
    Host.objects.update(removed_at=timezone.now())
    delete(run)
    assert purging.purge(timezone.now() + LATER) == 0
    assert not StoredCopy.objects.get().wanted
    StoredCopy.objects.all().delete()
    assert purging.purge(timezone.now() + LATER) == 1


def test_a_dataset_stays_while_runs_need_it_and_comes_back_with_them(run: Run) -> None:
    dataset = Dataset.objects.get()
    with pytest.raises(deleting.NotDeletable, match="resuming them needs its rows: sums"):
        delete(dataset, "dataset")
    delete(run)
    delete(dataset, "dataset")
    Dataset.objects.create(name="sums")
    assert purging.waits_for(dataset, timezone.now()) == "Runs used it, so it is deleted after the last of them."
    assert "The name “sums” is now used by another one, so it became “sums 2”." in restore(run)
    assert Dataset.objects.get(pk=dataset.pk).name == "sums 2"


@pytest.mark.usefixtures("sent")
def test_a_run_can_not_begin_with_a_dataset_that_was_just_deleted() -> None:
    run = a_run()
    Run.objects.all().delete()
    delete(Dataset.objects.get(), "dataset")
    chosen = {"dataset_version": DatasetVersion.objects.get(), "profile": run.profile}
    request = LaunchRequest(name="late", host=None, reward_version=rewards_named("tags"), **chosen)
    with pytest.raises(ContractError, match="the dataset sums was deleted"):
        launching.submit(replace(request, model="/models/tiny", grpo={"max_steps": 1}), user=a_user())


@pytest.mark.parametrize("slug", ["reward", "profile"])
def test_rewards_and_profiles_go_at_once_and_runs_keep_their_copies(run: Run, slug: str) -> None:
    kind, spec = KINDS[slug], run.spec
    row = {"reward": run.reward_version and run.reward_version.config, "profile": run.profile}[slug]
    assert "sums" in " ".join(kind.consequences(row))
    delete(row, slug)
    assert row not in kind.model.objects.all()
    assert purging.purge(timezone.now() + LATER) == 1
    run.refresh_from_db()
    assert (run.spec, row in kind.model.every.all()) == (spec, False)


def test_a_name_is_free_again_and_a_restored_item_gets_the_next_one(run: Run) -> None:
    config = RewardConfig.objects.get()
    delete(config, "reward")
    rewards_named("tags")
    assert restore(config, "reward") == "The name “tags” is now used by another one, so it became “tags 2”."
    assert set(RewardConfig.objects.values_list("name", flat=True)) == {"tags", "tags 2"}


def test_a_rename_keeps_names_unique_and_is_told_of_runs(run: Run) -> None:
    user = a_user()
    HardwareProfile.objects.create(name="big", spec={})
    small = HardwareProfile.objects.create(name="little", spec={})
    with pytest.raises(naming.NameRefused, match="Another hardware profile is already named “big”"):
        naming.rename(KINDS["profile"], small, "big", user)
    for name in ("", "  ", "a" * 81, "a\0b"):
        with pytest.raises(naming.NameRefused):
            naming.rename(KINDS["profile"], small, name, user)
    assert naming.rename(KINDS["profile"], small, " small ", user)
    assert HardwareProfile.objects.filter(name="small").exists()
    assert naming.rename(KINDS["run"], run, "better", user)
    assert not naming.rename(KINDS["run"], run, "better", user)
    [event] = run.events.filter(kind="renamed")
    assert (event.actor, event.data) == ("olga", {"from": "sums", "to": "better"})
    run.refresh_from_db()
    assert (run.name, run.spec["name"]) == ("better", "sums")


def test_hosts_have_runs_of_their_own_measured(run: Run) -> None:
    host, other = Host.objects.get(), a_host("gpu-2", inventory={"runs_folder": "same"})
    disk.store_measurement(host, {run.pk: 5 << 20, "unknown": 7})
    assert disk.of_run(run).parts == ["5\N{NO-BREAK SPACE}MiB on gpu-1"]
    Host.objects.filter(pk=host.pk).update(inventory={"runs_folder": "same"})
    disk.store_measurement(other, {run.pk: 6 << 20})
    assert list(RunDisk.objects.values_list("host__name", "bytes")) == [("gpu-2", 6 << 20)]
    disk.store_measurement(other, {})
    assert not RunDisk.objects.exists()
