"""Steps that are broken off, cancelled, refused by their limits or done twice; and what the sweep makes up for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from django.conf import settings as django_settings
from django.utils import timezone

from controlplane.catalogue.datasets import actions, reader_process, worker
from controlplane.catalogue.datasets.errors import ChildFailed, NoSpace
from controlplane.catalogue.datasets.folders import try_lock
from controlplane.catalogue.datasets.models import Dataset, DatasetVersion
from controlplane.catalogue.datasets.reader import files
from controlplane.catalogue.datasets.receiving import incoming_folder
from controlplane.catalogue.datasets.work_queue import progress
from controlplane.celery import app
from tests.controlplane.catalogue.datasets.sources import jsonl
from tests.controlplane.catalogue.datasets.steps import MAPPING, ROWS, checked, ready, uploaded, worked
from tests.disk import fill, mounted
from tests.waiting import wait_until

pytestmark = [pytest.mark.django_db, pytest.mark.processes]

HANGS = ("-c", "import sys, time; open(sys.argv[1] + '/half.part', 'w').close(); time.sleep(600)")


@pytest.fixture
def sent(monkeypatch, settings, django_capture_on_commit_callbacks):
    """Versions that something sends to the worker."""
    settings.REDIS_URL = "unix:///nowhere"
    queued: list[int] = []
    monkeypatch.setattr(app, "send_task", lambda name, args, **options: queued.append(args[0]))

    def during(act) -> list[int]:
        queued.clear()
        with django_capture_on_commit_callbacks(execute=True):
            act()
        return queued

    return during


def long_ago(**columns: object) -> None:
    DatasetVersion.objects.update(queued_at=timezone.now() - timedelta(minutes=1), **columns)


def test_an_upload_is_sent_to_the_worker_and_so_is_its_mapping(sent):
    made = []
    assert sent(lambda: made.append(uploaded())) == [made[0].pk]
    worked(made[0])
    assert sent(lambda: actions.request_import(made[0], MAPPING)) == [made[0].pk]


def test_only_one_worker_is_at_a_version():
    version = uploaded()
    with try_lock(version.folder / "lock"):
        assert worked(version).check_started_at is None
    assert worked(version).status == DatasetVersion.NEEDS_MAPPING


def test_no_more_datasets_are_worked_on_than_there_are_slots(sent):
    version, later, folder = uploaded(), uploaded(), incoming_folder().parent
    with try_lock(folder / "slot0.lock"), try_lock(folder / "slot1.lock"):
        assert worked(version).check_started_at is None
    assert sent(lambda: worker.process(version)) == [later.pk]


def test_doing_it_twice_changes_nothing():
    version = checked()
    assert worked(version).status == DatasetVersion.NEEDS_MAPPING


def test_a_version_deleted_while_it_waits_is_left_alone():
    version = uploaded()
    pk = version.pk
    version.dataset.delete()
    version.pk = pk
    worker.process(version)
    assert not DatasetVersion.objects.exists()
    assert not version.folder.exists()


@pytest.mark.parametrize(
    ("program", "kind", "told"),
    [
        (("-c", "raise SystemExit(4)"), "limits", "more CPU time than the limit of 60 minutes"),
        (("-c", "import os; os.kill(os.getpid(), 9)"), "limits", "more memory than the limit of 1.5 GiB"),
        (("-c", "raise MemoryError"), "limits", "more memory than the limit"),
        (("-c", "raise SystemExit(28)"), "disk", "control plane's disk is full"),
        (("-c", "raise OSError(28, 'No space left on device')"), "disk", "control plane's disk is full"),
        (("-c", "import a_package_that_is_missing"), "server", "on the server"),
        (("-c", "pass"), "server", "on the server"),
    ],
)
def test_a_child_that_fails_is_told_in_words_and_may_be_asked_again(monkeypatch, program, kind, told):
    with monkeypatch.context() as patch:
        patch.setattr(reader_process, "PROGRAM", program)
        version = checked()
    assert version.status == DatasetVersion.INVALID
    assert version.report["file_error"]["kind"] == kind
    assert told in version.report["file_error"]["message"]
    assert actions.try_again(version) is (kind != "limits")
    if kind != "limits":
        assert worked(version).status == DatasetVersion.NEEDS_MAPPING


def test_an_import_that_fails_goes_back_to_its_mapping(monkeypatch):
    version = checked()
    actions.request_import(version, MAPPING)
    program = ("-c", "import sys; open(sys.argv[1] + '/rows.parquet.part', 'w').close(); raise SystemExit(3)")
    with monkeypatch.context() as patch:
        patch.setattr(reader_process, "PROGRAM", program)
        worked(version)
    assert version.status == DatasetVersion.NEEDS_MAPPING
    assert version.report["mapped"]["file_error"]["kind"] == "limits"
    actions.request_import(version, MAPPING)
    assert worked(version).status == DatasetVersion.READY
    assert not (version.folder / "rows.parquet.part").exists()


def hanging(monkeypatch, then):
    """The child never ends; `then` happens once it has begun."""
    monkeypatch.setattr(reader_process, "PROGRAM", HANGS)
    monkeypatch.setattr(reader_process, "POLL_S", 0.05)
    real, done = worker._is_wanted, []

    def wanted(version):
        asks = real(version)

        def ask():
            if not done and (version.folder / "half.part").exists():
                done.append(then(version))
            return asks()

        return ask

    monkeypatch.setattr(worker, "_is_wanted", wanted)
    return done


def test_a_running_check_that_is_cancelled_leaves_nothing(monkeypatch, django_capture_on_commit_callbacks):
    def cancel(version):
        with django_capture_on_commit_callbacks(execute=True):
            return actions.cancel(version)

    version = uploaded()
    folder = version.folder
    done = hanging(monkeypatch, cancel)
    worker.process(version)
    assert done == [actions.DELETED]
    assert not folder.exists()
    assert not Dataset.objects.exists()


PROPOSED = replace(MAPPING, transform="gsm8k")


@pytest.mark.parametrize(
    ("mapping", "left"),
    [
        pytest.param(PROPOSED, {files.REPORT, files.PROBLEMS}, id="while it imports"),
        pytest.param(MAPPING, set(), id="while it checks another mapping"),
    ],
)
def test_an_import_that_is_cancelled_goes_back_and_can_be_asked_for_again(monkeypatch, mapping, left):
    version = checked()
    actions.request_import(version, mapping)
    with monkeypatch.context() as patch:
        done = hanging(patch, actions.cancel)
        worked(version)
    assert done == [actions.BACK_TO_MAPPING]
    assert version.status == DatasetVersion.NEEDS_MAPPING
    assert {path.name for path in version.folder.iterdir()} == {files.SOURCE, "lock"} | left
    actions.request_import(version, mapping)
    assert worked(version).status == DatasetVersion.READY


def verbs(monkeypatch):
    """The children that the worker starts from now on."""
    real, begun = reader_process.run, []

    def work(folder, verb, *arguments, **options):
        begun.append(verb)
        return real(folder, verb, *arguments, **options)

    monkeypatch.setattr(reader_process, "run", work)
    return begun


def test_a_file_is_checked_again_only_for_a_mapping_that_the_check_did_not_have(monkeypatch):
    for mapping, begun in (
        (PROPOSED, ["import"]),
        (replace(PROPOSED, template="Think. {prompt}", drop_duplicates=True), ["import"]),
        (MAPPING, ["check", "import"]),
        (replace(MAPPING, answer="", answer_after=""), ["check", "import"]),
    ):
        version = checked()
        actions.request_import(version, mapping)
        with monkeypatch.context() as patch:
            done = verbs(patch)
            assert worked(version).status == DatasetVersion.READY
        assert done == begun


def test_a_check_that_is_cancelled_at_its_end_leaves_the_files_of_no_mapping(monkeypatch):
    version = checked()
    actions.request_import(version, MAPPING)
    real = worker._check

    def cancelled(version):
        fields = real(version)
        actions.cancel(version)
        return fields

    with monkeypatch.context() as patch:
        patch.setattr(worker, "_check", cancelled)
        worked(version)
    assert version.status == DatasetVersion.NEEDS_MAPPING
    assert not (version.folder / files.REPORT).exists()
    actions.request_import(version, PROPOSED)
    assert worked(version).report["checked"]["transform"] == "gsm8k"


def test_a_version_deleted_the_moment_it_is_taken_up_leaves_nothing(monkeypatch):
    version = uploaded()
    folder, read = version.folder, DatasetVersion.refresh_from_db

    def gone(self, *how, **more):
        DatasetVersion.objects.filter(pk=self.pk).delete()
        read(self, *how, **more)

    with monkeypatch.context() as patch:
        patch.setattr(DatasetVersion, "refresh_from_db", gone)
        worker.process(version)
    assert not folder.exists()


def test_a_version_that_somebody_mapped_since_it_was_looked_at_is_kept_when_it_is_cancelled():
    version = checked()
    seen = DatasetVersion.objects.get(pk=version.pk)
    actions.request_import(version, MAPPING)
    assert actions.cancel(seen) == actions.BACK_TO_MAPPING
    assert worked(version).status == DatasetVersion.NEEDS_MAPPING


def test_a_check_that_nobody_has_begun_is_cancelled_at_once(django_capture_on_commit_callbacks):
    version, other = uploaded(name="two"), ready(ROWS)
    with django_capture_on_commit_callbacks(execute=True):
        assert actions.cancel(version) == actions.DELETED
    assert not version.folder.exists()
    assert list(Dataset.objects.all()) == [other.dataset]
    assert actions.cancel(other) == actions.TOO_LATE


def test_a_cancelled_version_of_a_dataset_leaves_the_others(django_capture_on_commit_callbacks):
    first = uploaded(name="both")
    second = uploaded(name="both")
    with django_capture_on_commit_callbacks(execute=True):
        actions.cancel(second)
    assert list(DatasetVersion.objects.all()) == [first]


def test_a_child_that_takes_too_long_is_ended(monkeypatch, tmp_path):
    monkeypatch.setattr(reader_process, "PROGRAM", HANGS)
    with pytest.raises(ChildFailed, match=r"didn't finish this within 0\.5 seconds"):
        reader_process.ask(tmp_path, "find", {}, seconds=0.5)
    monkeypatch.setattr(reader_process, "WORK_SECONDS", 0.2)
    with pytest.raises(ChildFailed, match="longer than the limit"):
        reader_process.run(tmp_path, "check", {}, is_wanted=lambda: True)


FLOODS = ("-c", "import os\nwhile True: os.write(1, b'x' * 65536)")


def test_a_child_that_writes_without_end_is_ended_at_the_limit(monkeypatch, tmp_path):
    monkeypatch.setattr(reader_process, "PROGRAM", FLOODS)
    with pytest.raises(ChildFailed, match="too large to be shown"):
        reader_process.ask(tmp_path, "render", {}, seconds=60)
    with pytest.raises(ChildFailed, match="too large to be shown"):
        reader_process.run(tmp_path, "check", {}, is_wanted=lambda: True)


def test_only_the_end_of_a_childs_errors_is_kept(monkeypatch, tmp_path, caplog):
    noisy = "import os, sys\nfor _ in range(100): os.write(2, b'x' * 65536)\nos.write(1, b'[]'); sys.exit({})"
    monkeypatch.setattr(reader_process, "PROGRAM", ("-c", noisy.format(0)))
    assert reader_process.ask(tmp_path, "find", {}, seconds=60) == []
    assert b"".join(reader_process.stream(tmp_path, "export", {})) == b"[]"
    monkeypatch.setattr(reader_process, "PROGRAM", ("-c", noisy.format("'the cause'")))
    with pytest.raises(ChildFailed, match="on the server"):
        reader_process.ask(tmp_path, "find", {}, seconds=60)
    assert "the cause" in caplog.text
    assert len(caplog.text) < 2 * reader_process.MAX_ERROR_BYTES


def test_a_download_that_is_given_up_ends_its_child(monkeypatch, tmp_path):
    writes = ("-c", "import os, sys\nwhile True: os.write(1, b'x' * 65536)")
    begun = []
    real = subprocess.Popen
    monkeypatch.setattr(reader_process, "PROGRAM", writes)
    monkeypatch.setattr(reader_process.subprocess, "Popen", lambda *a, **o: begun.append(real(*a, **o)) or begun[-1])
    pieces = reader_process.stream(tmp_path, "export", {})
    assert next(pieces)
    pieces.close()
    assert begun[0].returncode == -signal.SIGKILL


def test_a_child_dies_with_its_worker_and_the_work_is_sent_again(tmp_path, sent):
    version = checked()
    actions.request_import(version, MAPPING)
    tells = "import os, sys, time; open(sys.argv[1] + '/pid', 'w').write(str(os.getpid())); time.sleep(600)"
    starts_it = (
        "import django; django.setup()\nfrom pathlib import Path\n"
        "from controlplane.catalogue.datasets import reader_process\n"
        f"reader_process.run(Path({str(tmp_path)!r}), 'import', {{}}, is_wanted=lambda: 1, program=('-c', {tells!r}))"
    )
    environment = os.environ | {"CONTROLPLANE_DATA": str(tmp_path / "data")}
    process = subprocess.Popen([sys.executable, "-c", starts_it], cwd=django_settings.BASE_DIR, env=environment)
    try:
        wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), lambda: "no child")
        child = int((tmp_path / "pid").read_text())
    finally:
        process.kill()
        process.wait()
    wait_until(lambda: not Path(f"/proc/{child}/cmdline").exists(), lambda: "the child outlives its worker")
    long_ago(check_started_at=timezone.now())
    (version.folder / "rows.parquet.part").write_bytes(b"half")
    assert sent(worker.reconcile) == [version.pk]
    assert worked(version).status == DatasetVersion.READY
    assert not (version.folder / "rows.parquet.part").exists()


def test_work_that_was_just_asked_for_is_not_sent_again(sent):
    uploaded()
    assert sent(worker.reconcile) == []


def test_work_whose_message_was_lost_is_sent_again_and_one_at_work_is_not(sent):
    version = uploaded()
    long_ago()
    assert sent(worker.reconcile) == [version.pk]
    with try_lock(version.folder / "lock"):
        assert sent(worker.reconcile) == []


def test_versions_that_wait_for_nothing_are_left_alone(sent):
    checked()
    long_ago()
    assert sent(worker.reconcile) == []


def test_files_that_no_row_knows_of_go_once_they_are_old(sent):
    kept = uploaded()
    orphan, half = incoming_folder().parent / "987654", incoming_folder() / "half"
    orphan.mkdir()
    half.write_bytes(b"x")
    sent(worker.reconcile)
    assert orphan.exists()
    assert half.exists()
    for path in (orphan, half, kept.folder):
        os.utime(path, (1, 1))
    sent(worker.reconcile)
    assert not orphan.exists()
    assert not half.exists()
    assert (kept.folder / files.SOURCE).exists()


def test_a_broker_that_is_away_does_not_spoil_the_upload(settings, django_capture_on_commit_callbacks, caplog):
    settings.REDIS_URL = "unix:///nowhere.sock"
    with django_capture_on_commit_callbacks(execute=True):
        version = uploaded()
    assert version.status == DatasetVersion.CHECKING
    assert "sent again later" in caplog.text


def test_how_far_it_is(monkeypatch):
    version = uploaded()
    assert progress(version).stage == "waiting"
    assert progress(version).waits is None
    version.queued_at -= timedelta(minutes=1)
    assert progress(version).waits > timedelta(seconds=50)
    version.check_started_at = timezone.now()
    assert progress(version).stage == "starting"
    (version.folder / files.PROGRESS).write_text('{"stage": "s", "bytes": 5, "of": 20, "rows": 3, "mb_per_s": 1.5}')
    told = progress(version)
    assert (told.stage, told.share, told.rows, told.mb_per_s) == ("s", 0.25, 3, 1.5)
    for odd in ("", "[]", '{"bytes": "x", "of": null}', "{"):
        (version.folder / files.PROGRESS).write_text(odd)
        assert progress(version).share is None
    assert progress(worked(version)) is None


def test_a_disk_that_is_full_is_told_and_what_was_asked_for_works_once_there_is_room(settings, small_disk):
    settings.DATA_DIR = small_disk
    (small_disk / "datasets").mkdir()
    rows = [{"question": f"{n} " + os.urandom(600).hex(), "answer": "#### 1"} for n in range(200)]
    version = checked(jsonl(rows))
    assert version.status == DatasetVersion.NEEDS_MAPPING
    fill(small_disk / "others")
    actions.request_import(version, MAPPING)
    worked(version)
    assert version.status == DatasetVersion.NEEDS_MAPPING
    assert version.report["mapped"]["file_error"]["kind"] == "disk"
    with pytest.raises(NoSpace, match="no space left"):
        uploaded(jsonl(rows), name="another")
    assert not Dataset.objects.filter(name="another").exists()
    assert list(incoming_folder().iterdir()) == []
    (small_disk / "others").unlink()
    actions.request_import(version, MAPPING)
    assert worked(version).status == DatasetVersion.READY


@pytest.fixture
def small_disk(tmp_path):
    with mounted(tmp_path / "small", "2m") as folder:
        yield folder
