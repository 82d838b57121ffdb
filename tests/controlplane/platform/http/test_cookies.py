from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.test import Client

from controlplane.setup.serving.processes import BASE_DIR as ROOT
from tests.controlplane.people import viewer

NAMES = "from controlplane import settings as s; print(s.SESSION_COOKIE_NAME, s.CSRF_COOKIE_NAME)"


def cookies_of(data: Path) -> set[str]:
    env = {**os.environ, "CONTROLPLANE_DATA": str(data)}
    done = subprocess.run([sys.executable, "-c", NAMES], env=env, cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.processes
def test_two_installations_on_a_machine_have_cookies_of_their_own(tmp_path: Path) -> None:
    one, two = cookies_of(tmp_path / "one"), cookies_of(tmp_path / "two")
    assert len(one | two) == 4
    assert cookies_of(tmp_path / "one") == one


@pytest.mark.django_db
def test_cookies_are_sent_encrypted_only_where_pages_are() -> None:
    for secure in (False, True):
        response = Client().get("/sign-in/", secure=secure)
        assert response.cookies
        assert {bool(cookie["secure"]) for cookie in response.cookies.values()} == {secure}


@pytest.mark.django_db
def test_no_cache_on_the_way_keeps_a_page() -> None:
    assert "private" in Client().get("/sign-in/")["Cache-Control"]
    assert viewer().get("/runs/")["Cache-Control"] == "private"


@pytest.mark.django_db
def test_a_part_of_a_page_is_never_taken_for_the_page_after_a_step_back() -> None:
    assert "HX-Request" in viewer().get("/runs/", headers={"HX-Request": "true"})["Vary"]
