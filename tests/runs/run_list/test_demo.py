"""The list while `manage.py demo` prepares its run, and the address that leads to the run."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from pytest_django import Settings

from runs.run_list import demo
from tests.controlplane.people import operator, viewer
from tests.runs.builders import a_run

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def own_data_folder(settings: Settings, tmp_path: Path) -> None:
    settings.DATA_DIR = tmp_path


def the_list() -> str:
    return operator().get("/runs/").content.decode()


def test_the_empty_list_says_what_is_being_prepared() -> None:
    demo.report("Making a tiny language model: warm-up 20/400")
    assert "Making a tiny language model: warm-up 20/400" in the_list()
    assert "No runs yet" not in the_list()
    assert "data-again" in the_list()


def test_the_list_is_as_ever_once_the_demo_has_its_run_or_was_killed() -> None:
    demo.report("Making a tiny language model")
    demo.done()
    assert "No runs yet" in the_list()
    demo.report("Making a tiny language model")
    long_ago = time.time() - 2 * demo.FRESH_S
    os.utime(demo._line(), (long_ago, long_ago))
    assert "No runs yet" in the_list()


def test_the_demos_address_leads_to_its_newest_run_and_to_the_list_before_there_is_one() -> None:
    client = viewer()
    assert client.get("/demo/")["Location"] == "/runs/"
    a_run(demo.NAME)
    newest = a_run(demo.NAME)
    assert client.get("/demo/")["Location"] == f"/runs/{newest.pk}/"
