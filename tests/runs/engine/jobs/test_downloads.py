"""Downloading a model: its archive arrives part by part, is offered for a day, and can be fetched in parts."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from controlplane.platform.http.tokens import attempt_token
from runs.engine.jobs import archives
from runs.engine.models import Attempt, Run
from runs.engine.states import RunStatus
from runs.engine.transitions import move
from runs.housekeeping import tick
from runs.intake.host_api.ingest import accept
from tests.controlplane.people import operator, viewer
from tests.disk import mounted
from tests.runs.builders import FREE, an_attempt, event
from tests.runs.engine.jobs.test_merging import trained
from tests.runs.pages.model_pages.test_model_pages import text
from workers.contract.run.jobs import ARCHIVE

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("sent")]

WHOLE = bytes(range(256)) * 40


@pytest.fixture(autouse=True)
def data_folder(tmp_path: Path, settings: Settings) -> Path:
    settings.DATA_DIR = tmp_path
    return tmp_path


def started() -> tuple[Attempt, str]:
    """The attempt of a download, and the page of its model."""
    run, page = trained(lora=None)
    assert operator().post(f"{page}archive").status_code == 302
    return an_attempt(run=run.jobs.get()), page


def send(attempt: Attempt, offset: int, data: bytes, of: int = len(WHOLE)) -> Any:
    url = f"/api/attempts/{attempt.pk}/archive?offset={offset}&of={of}"
    headers = {"Authorization": f"Bearer {attempt_token(attempt.pk)}"}
    return Client().post(url, data, content_type="application/octet-stream", headers=headers)


def finish(attempt: Attempt) -> None:
    accept(attempt, [event(1, "result", text="Ready.", facts={"size": len(WHOLE), "sha256": "5a" * 32})])
    attempt.refresh_from_db()
    move(attempt, RunStatus.SUCCEEDED, reason="completed", actor="test", facts={"receipt": FREE})


@pytest.fixture
def offered() -> Iterator[tuple[Run, str]]:
    attempt, page = started()
    send(attempt, 0, WHOLE)
    finish(attempt)
    return attempt.run, page


def test_parts_are_stored_once_and_in_order() -> None:
    attempt, _ = started()
    assert send(attempt, 0, WHOLE[:4000]).json() == {"size": 4000}
    assert send(attempt, 9000, WHOLE[9000:]).json() == {"size": 4000}
    assert send(attempt, 0, WHOLE[:4000]).json() == {"size": 4000}
    assert archives.find(attempt.run) is None
    assert send(attempt, 3000, WHOLE[3000:]).json() == {"size": len(WHOLE)}
    assert send(attempt, 3000, WHOLE[3000:]).json() == {"size": len(WHOLE)}
    found = archives.find(attempt.run)
    assert found is not None
    assert found.path.read_bytes() == WHOLE


def test_only_a_live_download_may_send_one() -> None:
    attempt, _ = started()
    assert send(attempt, 0, WHOLE, of=10).status_code == 400
    assert send(attempt, 0, WHOLE, of=-1).status_code == 400
    assert send(an_attempt(), 0, WHOLE).status_code == 409
    finish(attempt)
    assert send(attempt, 0, WHOLE).status_code == 409


def test_the_page_offers_it_with_its_checksum_and_a_second_click_starts_nothing(offered: tuple[Run, str]) -> None:
    job, page = offered
    shown = text(viewer(), page)
    assert f'href="{page}archive/{job.pk}"' in shown
    assert "5a" * 32 in shown
    operator().post(f"{page}archive")
    assert Run.objects.filter(kind=ARCHIVE).count() == 1
    assert job.spec["job"]["card"].startswith("---")
    assert viewer().post(f"{page}archive").status_code == 403


@pytest.mark.parametrize(
    ("asked", "status", "content"),
    [
        ({}, 200, WHOLE),
        ({"Range": "bytes=4000-"}, 206, WHOLE[4000:]),
        ({"Range": "bytes=4000-4009"}, 206, WHOLE[4000:4010]),
        ({"Range": "bytes=-10"}, 206, WHOLE[-10:]),
        ({"Range": "bytes=99999999-"}, 416, b""),
        ({"Range": "bytes=4000-", "If-Range": '"another"'}, 200, WHOLE),
        ({"Range": "bytes=0-1,4-5"}, 200, WHOLE),
        ({"Range": "lines=1-2"}, 200, WHOLE),
    ],
)
def test_an_interrupted_download_goes_on(
    offered: tuple[Run, str], asked: dict[str, str], status: int, content: bytes
) -> None:
    job, page = offered
    answer = viewer().get(f"{page}archive/{job.pk}", headers=asked)
    assert (answer.status_code, answer.getvalue()) == (status, content)
    if status == 206:
        assert answer["Content-Range"].endswith(f"/{len(WHOLE)}")
        assert int(answer["Content-Length"]) == len(content)
        again = viewer().get(f"{page}archive/{job.pk}", headers={**asked, "If-Range": answer["ETag"]})
        assert (again.status_code, again.getvalue()) == (206, content)


def test_it_is_removed_after_a_day(offered: tuple[Run, str], data_folder: Path) -> None:
    job, page = offered
    tick.tick(timezone.now() + timedelta(hours=23))
    assert text(viewer(), page).count(f"archive/{job.pk}") == 1
    tick.tick(timezone.now() + timedelta(hours=25))
    assert "The archive was removed after one day." in text(viewer(), page)
    assert viewer().get(f"{page}archive/{job.pk}").status_code == 404
    assert list((data_folder / "archives").iterdir()) == []


def test_a_part_goes_with_its_job(data_folder: Path) -> None:
    attempt, _ = started()
    send(attempt, 0, WHOLE[:4000])
    archives.tidy(timezone.now())
    assert [path.name for path in (data_folder / "archives").iterdir()] == [f"{attempt.run_id}.tar.part"]
    move(attempt, RunStatus.STOPPED, reason="stopped_by_user", actor="test", facts={"receipt": FREE})
    archives.tidy(timezone.now())
    assert list((data_folder / "archives").iterdir()) == []


def test_a_file_that_goes_while_all_are_counted_disturbs_nobody(data_folder: Path) -> None:
    (data_folder / "archives").mkdir()
    for name in ("gone.tar", "gone.tar.part"):  # listed, but no longer there
        (data_folder / "archives" / name).symlink_to("nowhere")
    attempt, _ = started()
    assert send(attempt, 0, WHOLE).json() == {"size": len(WHOLE)}
    archives.tidy(timezone.now())
    assert archives.find(attempt.run) is not None


def test_what_does_not_fit_is_said_before_and_leaves_nothing(settings: Settings, tmp_path: Path) -> None:
    attempt, page = started()
    settings.ARCHIVES_MAX_BYTES = 1000
    assert "CONTROLPLANE_ARCHIVES_MAX_GB" in send(attempt, 0, WHOLE).json()["error"]["what"]
    move(attempt, RunStatus.STOPPED, reason="stopped_by_user", actor="test", facts={"receipt": FREE})
    assert (
        "Archives may take up to 0 GB on the control plane"
        in operator().post(f"{page}archive", follow=True).content.decode()
    )
    settings.ARCHIVES_MAX_BYTES = 10**9
    with mounted(tmp_path / "small", "4m") as small:
        settings.DATA_DIR = small
        assert "GB are free." in operator().post(f"{page}archive", follow=True).content.decode()


def test_a_disk_that_fills_in_the_middle_leaves_nothing(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt, _ = started()
    monkeypatch.setattr(archives, "MIN_FREE", -(10**9))
    large = b"x" * (3 << 20)
    with mounted(tmp_path / "small", "4m") as small:
        settings.DATA_DIR = small
        assert send(attempt, 0, large, of=3 * len(large)).status_code == 200
        answer = send(attempt, len(large), large, of=3 * len(large))
        assert answer.status_code == 413
        assert "The control plane's disk is full" in answer.json()["error"]["what"]
        assert list((small / "archives").iterdir()) == []
