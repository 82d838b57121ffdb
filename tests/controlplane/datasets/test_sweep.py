from __future__ import annotations

import os
from datetime import timedelta

import pytest
from django.utils import timezone

from controlplane.datasets import flow
from controlplane.datasets.locking import held
from controlplane.datasets.models import DatasetVersion
from controlplane.datasets.tasks import validate_version
from tests.controlplane.datasets.builders import checked, uploaded

pytestmark = pytest.mark.django_db


@pytest.fixture
def sent(monkeypatch, settings, django_capture_on_commit_callbacks):
    """Versions whose check the sweep queues."""
    settings.REDIS_URL = "unix:///nowhere"
    queued: list[int] = []
    monkeypatch.setattr(validate_version, "apply_async", lambda args, **options: queued.append(args[0]))

    def sweep() -> list[int]:
        queued.clear()
        with django_capture_on_commit_callbacks(execute=True):
            flow.sweep()
        return queued

    return sweep


def long_ago(**columns: object) -> None:
    DatasetVersion.objects.update(queued_at=timezone.now() - timedelta(minutes=1), **columns)


def test_a_check_that_was_just_asked_for_is_not_sent_again(sent):
    uploaded()
    assert sent() == []


def test_a_check_whose_message_was_lost_is_sent_again(sent):
    version = uploaded()
    long_ago()
    assert sent() == [version.pk]


def test_a_check_whose_worker_died_is_sent_again_and_one_at_work_is_not(sent):
    version = uploaded()
    long_ago(check_started_at=timezone.now())
    assert sent() == [version.pk]
    with held(version.folder / "lock"):
        assert sent() == []


def test_versions_that_wait_for_nothing_are_left_alone(sent):
    checked()
    long_ago()
    assert sent() == []


def test_files_that_no_row_knows_of_go_once_they_are_old(sent):
    kept = uploaded()
    orphan, half = flow.incoming_folder().parent / "987654", flow.incoming_folder() / "half"
    orphan.mkdir()
    half.write_bytes(b"x")
    sent()
    assert orphan.exists()
    assert half.exists()
    for path in (orphan, half, kept.folder):
        os.utime(path, (1, 1))
    sent()
    assert not orphan.exists()
    assert not half.exists()
    assert kept.source_path.exists()


def test_a_broker_that_is_away_does_not_spoil_the_upload(settings, django_capture_on_commit_callbacks, caplog):
    settings.REDIS_URL = "unix:///nowhere.sock"
    version = uploaded()
    with django_capture_on_commit_callbacks(execute=True):
        flow.send_to_worker(version)
    assert "sent again later" in caplog.text


def test_the_task_of_a_deleted_version_does_nothing():
    validate_version(999_999)
