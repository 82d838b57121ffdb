"""Checkpoints in an S3-compatible store (moto's server): uploads, restores on another host, and what goes wrong."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.datasets import parquet
from tests.fakes import refusing_store
from tests.fakes.fake_control import TOKEN, FakeControl
from tests.fakes.object_store import BUCKET, ObjectStore, object_store
from tests.waiting import wait_until
from tests.workers.supervisor.attempts import RUN, Attempt, attempt, build_settings, build_spec
from tests.workers.supervisor.test_checkpoints import archive, tensors
from workers.artifactstore import MANIFEST, ArtifactStore, Corrupted, StoreError
from workers.contract.run.spec import AttemptSpec
from workers.contract.wire.artifacts import STORES, Store
from workers.contract.wire.documents import to_dict, to_json
from workers.contract.wire.names import FileName, StopMode
from workers.host import shutdown, storing
from workers.settings import HostSettings, StopReason
from workers.supervisor.claim import NotPrepared, prepare
from workers.supervisor.ending import SIGTERM_DRAIN_S
from workers.supervisor.inputs import checkpoints
from workers.supervisor.inputs.checkpoints import CheckpointError
from workers.supervisor.processes.folder import AttemptFolder
from workers.supervisor.reports.control import Control
from workers.supervisor.storing import Uploader

pytestmark = pytest.mark.processes

PATH = "checkpoints/checkpoint-4"
NAME = f"{RUN}/1/{PATH}"


@pytest.fixture(scope="module")
def server() -> Iterator[ObjectStore]:
    with object_store() as made:
        yield made


@pytest.fixture
def bucket(server: ObjectStore) -> ObjectStore:
    """The same server, emptied."""
    for name in server.names():
        server.client.delete_object(Bucket=BUCKET, Key=f"team/{name}")
    return server


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """On the host that saved it."""
    folder = tmp_path / "first" / NAME
    folder.mkdir(parents=True)
    (folder / "trainer_state.json").write_text('{"global_step": 4}')
    tensors(folder / "model.safetensors")
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth", "more/state.pt"):
        archive(folder / name)
    return folder


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def other_host(tmp_path: Path) -> Iterator[tuple[FakeControl, HostSettings, AttemptSpec]]:
    """A second attempt, on a host that has nothing."""
    control = FakeControl(parquet()).start()
    settings = build_settings(tmp_path / "second", control)
    spec = build_spec(control, attempt_id=f"{RUN}-2", number=2, resume_from=str(settings.runs_dir / NAME))
    AttemptFolder.of(settings.runs_dir, RUN, 2).create()
    yield control, settings, replace(spec, run=replace(spec.run, model=replace(spec.run.model, path="some/model")))
    control.close()


def prepared(host: tuple[FakeControl, HostSettings, AttemptSpec], store: Store, manifest: str) -> Path:
    control, settings, spec = host
    control.store_answer = {"store": to_dict(store), "manifest": manifest}
    with closing(Control.of(settings, TOKEN)) as client:
        prepare(spec, settings, client, AttemptFolder.of(settings.runs_dir, RUN, 2), stores=True)
    return settings.runs_dir / NAME


def test_another_host_gets_the_very_files_and_may_resume(
    bucket: ObjectStore, saved: Path, other_host: tuple[FakeControl, HostSettings, AttemptSpec]
) -> None:
    manifest = ArtifactStore(bucket.store).upload(saved, NAME)
    restored = prepared(other_host, bucket.store, manifest)
    assert content(restored) == content(saved)
    checkpoints.check(restored, other_host[2].run)


def test_a_file_with_a_wrong_hash_is_named_and_never_used(
    bucket: ObjectStore, saved: Path, other_host: tuple[FakeControl, HostSettings, AttemptSpec]
) -> None:
    manifest = ArtifactStore(bucket.store).upload(saved, NAME)
    bucket.client.put_object(Bucket=BUCKET, Key=f"team/{NAME}/optimizer.pt", Body=b"something else")
    with pytest.raises(CheckpointError, match=r"optimizer.pt in the store has a different hash"):
        prepared(other_host, bucket.store, manifest)
    assert not (other_host[1].runs_dir / NAME).exists()


def test_another_manifest_than_the_stored_one_is_refused(bucket: ObjectStore, saved: Path, tmp_path: Path) -> None:
    store = ArtifactStore(bucket.store)
    manifest = store.upload(saved, NAME)
    bucket.client.put_object(Bucket=BUCKET, Key=f"team/{NAME}/{MANIFEST}", Body=b'{"files": []}')
    with pytest.raises(Corrupted, match="a different manifest"):
        store.download(NAME, tmp_path / "target", manifest_sha256=manifest)


def test_an_upload_and_a_download_go_on_where_they_were_cut_off(
    bucket: ObjectStore, saved: Path, tmp_path: Path
) -> None:
    store = ArtifactStore(bucket.store)
    store.upload(saved, NAME)
    before = bucket.client.head_object(Bucket=BUCKET, Key=f"team/{NAME}/optimizer.pt")["LastModified"]
    bucket.client.delete_object(Bucket=BUCKET, Key=f"team/{NAME}/scheduler.pt")
    manifest = store.upload(saved, NAME)
    assert bucket.client.head_object(Bucket=BUCKET, Key=f"team/{NAME}/optimizer.pt")["LastModified"] == before
    target = tmp_path / "target"
    shutil.copytree(saved / "more", tmp_path / "target.part" / "more")
    store.download(NAME, target, manifest_sha256=manifest)
    assert content(target) == content(saved)


def test_a_store_out_of_reach_is_told_in_words(bucket: ObjectStore, saved: Path) -> None:
    with pytest.raises(StoreError, match="can't be reached"):
        ArtifactStore(replace(bucket.store, endpoint="http://127.0.0.1:9")).upload(saved, NAME)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        (refusing_store.FULL, "is full: There is not enough"),
        (refusing_store.OVER_QUOTA, "is full: The quota"),
        (refusing_store.WRONG_KEY, "rejects the keys: The access key"),
        (refusing_store.WRONG_SECRET, "rejects the keys: The signature"),
        (refusing_store.NO_BUCKET, "doesn't have the bucket"),
    ],
)
def test_what_a_store_can_say_is_told_in_words(saved: Path, how: tuple[int, str, str], words: str) -> None:
    with refusing_store.refusing_store(how) as store, pytest.raises(StoreError, match=words):
        ArtifactStore(store).upload(saved, NAME)


def test_a_store_that_hangs_is_told_in_words(saved: Path) -> None:
    with object_store() as hanging:
        hanging.hang()
        with pytest.raises(StoreError, match="didn't respond in time"):
            ArtifactStore(hanging.store, read_s=0.2).upload(saved, NAME)


def test_a_checkpoint_that_is_the_model_is_fetched_as_well(
    bucket: ObjectStore, saved: Path, other_host: tuple[FakeControl, HostSettings, AttemptSpec]
) -> None:
    manifest = ArtifactStore(bucket.store).upload(saved, NAME)
    control, settings, spec = other_host
    model = replace(spec.run.model, path=str(settings.runs_dir / NAME))
    spec = replace(spec, resume_from=None, run=replace(spec.run, model=model))
    assert content(prepared((control, settings, spec), bucket.store, manifest)) == content(saved)


def test_a_restore_without_the_store_ends_before_anything_is_started(
    saved: Path, bucket: ObjectStore, other_host: tuple[FakeControl, HostSettings, AttemptSpec]
) -> None:
    with pytest.raises(NotPrepared, match=r"not on this host.*can't be reached"):
        prepared(other_host, replace(bucket.store, endpoint="http://127.0.0.1:9"), "0" * 64)


def states(made: Attempt) -> list[tuple[str, str]]:
    return [(each["path"].rpartition("-")[2], each["state"]) for each in made.control.stored]


def test_a_run_uploads_while_it_trains_and_after_its_end(bucket: ObjectStore, tmp_path: Path) -> None:
    with attempt(tmp_path, trainer="steps:3,saves") as made:
        made.control.secrets = {STORES: "1"}
        made.control.store_answer = {"store": to_dict(bucket.store), "manifest": ""}
        made.launch()
        assert made.wait_for_end()["reason"] == "completed"
        made.wait_until_gone()
        assert states(made)[-1][1] in ("stored", "removed")
        last = max(int(step) for step, state in states(made) if state == "stored")
        assert f"{RUN}/1/checkpoints/checkpoint-{last}/{MANIFEST}" in bucket.names()
        assert STORES not in made.trainer_environment()


def test_an_upload_waits_for_signatures_and_says_why_there_are_none(bucket: ObjectStore, tmp_path: Path) -> None:
    control = FakeControl(parquet()).start()
    control.store_answer = {"store": to_dict(bucket.store), "manifest": ""}
    settings = build_settings(tmp_path, control)
    folder = AttemptFolder.of(settings.runs_dir, RUN, 1)
    folder.create()
    folder.write_spec_once(to_json(build_spec(control)))
    (folder / PATH).mkdir(parents=True)
    tensors(folder / PATH / "model.safetensors")
    line = {"t": 1.0, "kind": "checkpoint", "step": 4, "data": {"step": 4, "path": PATH, "bytes": 9, "kept": [4]}}
    (folder / FileName.METRICS).write_text(json.dumps(line, separators=(",", ":")) + "\n")
    with closing(Control.of(settings, TOKEN)) as client:
        uploader = Uploader(folder, client)
        control.refuse = {"signature": 503}
        assert uploader.tick() > 0
        assert [each["state"] for each in control.stored] == ["uploading"]
        control.refuse = {"signature": 403}
        assert uploader.tick() > 0
        assert "The control plane didn't sign a request to the artifact store: refused" in control.stored[-1]["problem"]
        control.refuse = {"signature": 403, "stored": 503}
        assert uploader.tick() > 0
        control.refuse = {}
        assert uploader.tick() == 0
    assert (control.stored[-1]["state"], uploader.is_finished) == ("stored", True)
    control.close()


def test_a_full_store_is_said_and_the_run_goes_on(tmp_path: Path) -> None:
    with (
        refusing_store.refusing_store(refusing_store.FULL) as full,
        attempt(tmp_path, trainer="forever,saves,pause:2", store_deadline_s=0.0) as made,
    ):
        made.control.secrets = {STORES: "1"}
        made.control.store_answer = {"store": to_dict(full), "manifest": ""}
        made.launch()
        wait_until(lambda: any(each["state"] == "failed" for each in made.control.stored), made.why)
        [problem, *_] = [each["problem"] for each in made.control.stored if each["problem"]]
        assert "is full: There is not enough" in problem
        made.wait_for_step(max(made.control.train_steps()) + 1)
        made.ask_to_stop(StopMode.NOW)
        assert made.wait_for_end()["reason"] == "stopped_by_user"


def test_a_store_that_hangs_delays_neither_a_stop_nor_the_end(bucket: ObjectStore, tmp_path: Path) -> None:
    with object_store() as hanging, attempt(tmp_path, trainer="forever,saves", store_deadline_s=0.0) as made:
        hanging.hang()
        made.control.secrets = {STORES: "1"}
        made.control.store_answer = {"store": to_dict(hanging.store), "manifest": ""}
        made.launch()
        wait_until(lambda: "uploading" in {state for _, state in states(made)}, made.why)
        made.ask_to_stop(StopMode.NOW)
        assert made.wait_for_end()["receipt"]["free"]
        made.wait_until_gone()


def test_a_host_that_is_taken_back_uploads_before_it_reports_the_end_and_another_goes_on(
    bucket: ObjectStore, tmp_path: Path, other_host: tuple[FakeControl, HostSettings, AttemptSpec]
) -> None:
    with attempt(tmp_path, trainer="forever,whole") as made:
        made.control.secrets = {STORES: "1"}
        made.control.store_answer = {"store": to_dict(bucket.store), "manifest": ""}
        made.launch()
        made.wait_for_step(2)
        settings = replace(made.settings, stop_reason=StopReason.HOST_PREEMPTED, stop_notice_s=90.0)
        assert shutdown.end_runs(settings, save=True) == 0
        assert made.wait_for_end()["reason"] == "host_preempted"
        *_, stored = made.control.stored
        assert (stored["state"], stored["after_the_end"]) == ("stored", False)
        saved = made.folder / stored["path"]
        control, other, spec = other_host
        spec = replace(spec, resume_from=str(other.runs_dir / RUN / "1" / stored["path"]))
        prepared((control, other, spec), bucket.store, stored["manifest"])
        assert content(other.runs_dir / RUN / "1" / stored["path"]) == content(saved)


def test_a_store_that_hangs_does_not_keep_a_host_beyond_its_notice(tmp_path: Path) -> None:
    with object_store() as hanging, attempt(tmp_path, trainer="forever") as made:
        hanging.hang()
        made.control.secrets = {STORES: "1"}
        made.control.store_answer = {"store": to_dict(hanging.store), "manifest": ""}
        made.launch()
        made.wait_for_step(2)
        settings = replace(made.settings, stop_reason=StopReason.HOST_PREEMPTED, stop_notice_s=SIGTERM_DRAIN_S + 5.0)
        assert shutdown.end_runs(settings, save=True) == 0
        assert made.wait_for_end()["reason"] == "host_preempted"
        assert made.control.phases()[-1] == "uploading"


def test_what_was_not_uploaded_in_time_is_uploaded_when_it_is_asked_for(bucket: ObjectStore, tmp_path: Path) -> None:
    with attempt(tmp_path, trainer="steps:3,saves") as made:
        made.launch()
        assert made.wait_for_end()["reason"] == "completed"
        made.wait_until_gone()
        made.control.store_answer = {"store": to_dict(bucket.store), "manifest": ""}
        folder = sorted((made.folder.path / "checkpoints").iterdir())[-1]
        name = folder.relative_to(made.settings.runs_dir).as_posix()
        assert storing.store_and_report(name, TOKEN, made.settings)
        wait_until(lambda: "stored" in {state for _, state in states(made)}, made.why)
        made.wait_until_gone()
        assert {each["path"] for each in made.control.stored} == {f"checkpoints/{folder.name}"}
        shutil.rmtree(folder)
        assert not storing.store_and_report(name, TOKEN, made.settings)
        assert "no longer on testhost" in made.control.stored[-1]["problem"]
