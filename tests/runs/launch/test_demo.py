"""What `manage.py demo` prepares, on its page and on the list, until its run has started."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pytest_django import Settings

from controlplane.setup.serving import demo as serving_demo
from controlplane.setup.serving.demo import Demo, DemoFailed
from controlplane.setup.serving.embedded import Installation
from runs.launch import demo
from runs.launch.demo import Stage
from tests.controlplane.people import operator, viewer
from tests.runs.builders import a_run, a_user, an_attempt

pytestmark = pytest.mark.django_db
HTMX = {"HX-Request": "true"}


@pytest.fixture(autouse=True)
def own_data_folder(settings: Settings, tmp_path: Path) -> None:
    settings.DATA_DIR = tmp_path


def the_list() -> str:
    return operator().get("/runs/").content.decode()


def test_the_page_says_which_stage_is_reached_with_the_last_word_of_the_program_at_work() -> None:
    demo.report(Stage.MODEL, "warm-up 20/400")
    client = viewer()
    assert client.get("/")["Location"] == "/demo/"
    page = client.get("/demo/").content.decode()
    assert page.count("Done: ") == 2
    assert "warm-up 20/400" in page
    assert "warm-up 20/400" in client.get("/demo/", headers=HTMX).content.decode()
    assert 'href="/demo/">See the progress' in client.get("/start/").content.decode()


def test_the_page_shows_the_start_of_the_trainer_and_becomes_the_run() -> None:
    run = a_run(demo.NAME)
    client = viewer()
    page = client.get("/demo/").content.decode()
    assert page.count("Done: ") == len(Stage) - 1
    assert f"/runs/{run.pk}/" in page
    an_attempt(run=run)
    assert client.get("/demo/", headers=HTMX)["HX-Redirect"] == f"/runs/{run.pk}/"
    assert client.get("/demo/")["Location"] == f"/runs/{run.pk}/"


def test_what_is_prepared_now_comes_before_the_run_of_an_earlier_demo() -> None:
    an_attempt(run=a_run(demo.NAME))
    demo.report(Stage.HOST)
    assert viewer().get("/demo/").status_code == 200


def test_a_stage_keeps_its_beginning_while_its_words_change() -> None:
    demo.report(Stage.INSTALL, "Resolved 60 packages")
    began = demo.current_stage()
    demo.report(Stage.INSTALL, "Downloading torch")
    now = demo.current_stage()
    assert began
    assert now
    assert now.since == began.since
    assert now.detail == "Downloading torch"


def test_the_empty_list_leads_to_what_is_being_prepared_until_that_is_done_or_was_killed() -> None:
    demo.report(Stage.MODEL)
    assert 'href="/demo/"' in the_list()
    assert "No runs yet" not in the_list()
    assert "data-again" in the_list()
    demo.finish()
    assert "No runs yet" in the_list()
    demo.report(Stage.MODEL)
    long_ago = time.time() - 2 * demo.MAX_REPORT_AGE_S
    os.utime(demo._file(), (long_ago, long_ago))
    assert "No runs yet" in the_list()
    assert viewer().get("/demo/")["Location"] == "/runs/"


class Serving:
    """Watches a program until it has ended, as the real one does between two looks at the children."""

    def __init__(self, data: Path) -> None:
        self.installation = Installation(data, 8000, "", "box", None)

    def watch_until(self, condition: Any, deadline_s: float) -> bool:
        end = time.monotonic() + deadline_s
        while not condition() and time.monotonic() < end:
            os.sched_yield()
        return time.monotonic() < end

    def use_trainer(self, python: Path) -> None:
        self.installation = Installation(self.installation.data, 8000, "", "box", python)


def installing(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What was installed and said when a missing trainer is installed by a program with this code."""
    monkeypatch.delenv("CONTROLPLANE_BOOTSTRAP", raising=False)
    monkeypatch.setenv(serving_demo.INSTALL_SECONDS, "0")
    monkeypatch.setattr(serving_demo, "INSTALLER", (sys.executable, "-c", code))
    serving, stages = Serving(tmp_path), []
    monkeypatch.setattr(demo, "report", lambda *stage: stages.append(stage))
    Demo(serving, a_user(), str, quick=True)._install()  # type: ignore[arg-type]
    return SimpleNamespace(trainer=serving.installation.trainer_python, stages=stages)


def test_a_missing_trainer_is_installed_while_the_page_shows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = installing("print('Installed 61 packages')", tmp_path, monkeypatch)
    assert done.trainer == serving_demo.TRAINER_PYTHON
    assert done.stages[-1] == (Stage.INSTALL, "Installed 61 packages")


def test_an_installation_that_fails_ends_the_demo_with_the_installers_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DemoFailed, match="no network here"):
        installing("raise SystemExit('no network here')", tmp_path, monkeypatch)
