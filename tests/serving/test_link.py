"""`manage.py link`: back in without a restart."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from pytest_django import Settings

from controlplane.platform.accounts.models import Role
from controlplane.setup.serving.claims import data_folder_lock
from tests.controlplane.people import make_user

pytestmark = pytest.mark.django_db
URL = "http://127.0.0.1:8123"


@pytest.fixture(autouse=True)
def own_data_folder(settings: Settings, tmp_path: Path) -> None:
    settings.DATA_DIR = tmp_path


def link(*arguments: str) -> str:
    out = StringIO()
    call_command("link", *arguments, stdout=out)
    return out.getvalue().strip()


def test_a_link_signs_the_first_admin_in_at_the_address_that_is_served(tmp_path: Path) -> None:
    make_user(Role.ADMIN)
    with data_folder_lock(tmp_path, "up") as lock:
        lock.describe(url=URL)
        printed = link()
    assert printed.startswith(URL)
    client = Client()
    assert client.get(printed.removeprefix(URL))["Location"] == "/"
    assert client.get("/users/").status_code == 200


def test_a_link_is_for_the_user_that_was_named_if_there_is_one(tmp_path: Path) -> None:
    user = make_user(Role.VIEWER)
    with data_folder_lock(tmp_path, "up") as lock:
        lock.describe(url=URL)
        printed = link(user.username)
        with pytest.raises(CommandError, match="no active user nobody"):
            link("nobody")
    client = Client()
    client.get(printed.removeprefix(URL))
    assert client.get("/users/").status_code == 403


def test_behind_a_proxy_a_link_leads_to_the_address_that_people_use(settings: Settings) -> None:
    settings.PUBLIC_URL = "https://grpo.example.org"
    assert link().startswith("https://grpo.example.org/")


def test_without_anything_that_serves_there_is_no_link(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="Nothing serves"):
        link()
    with data_folder_lock(tmp_path, "up") as lock:
        lock.describe(url=URL)
    with pytest.raises(CommandError, match="Nothing serves"):
        link()
