"""CONTROLPLANE_DATABASE_URL: what it may say, and what is said of one that can't be used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from controlplane.platform import plaintext
from controlplane.platform.database import CONNECTIONS_VARIABLE, URL_VARIABLE, DatabaseUnusable, databases
from controlplane.platform.environment import EnvironmentUnusable, whole_number
from controlplane.setup.serving.processes import BASE_DIR as ROOT

SECRET = "hunter-2-secret"
READABLE = [
    ("postgresql://ann:pw@db.example:5433/grpo", ("ann", "pw", "db.example", "5433", "grpo")),
    ("postgres://ann@db/grpo", ("ann", "", "db", "", "grpo")),
    ("postgresql://a%40b:p%2F%3A%40%23%25@db/g%20rpo", ("a@b", "p/:@#%", "db", "", "g rpo")),
    ("postgresql://ann@[::1]:5432/grpo", ("ann", "", "::1", "5432", "grpo")),
    ("postgresql:///grpo?host=/run/postgresql&user=ann&password=pw", ("ann", "pw", "/run/postgresql", "", "grpo")),
    ("postgresql://ann@/grpo?host=%2Frun%2Fpostgresql&port=5433", ("ann", "", "/run/postgresql", "5433", "grpo")),
    ("postgresql:///grpo", ("", "", "", "", "grpo")),
]
UNUSABLE = [
    f"mysql://ann:{SECRET}@db/grpo",
    f"ann:{SECRET}@db/grpo",
    f"postgresql://ann:{SECRET}@db",
    f"postgresql://ann:{SECRET}@db/",
    f"postgresql://ann:{SECRET}@db/a/b",
    f"postgresql://ann:{SECRET}@db:port/grpo",
    f"postgresql://ann:{SECRET}@db:70000/grpo",
    f"postgresql://ann:{SECRET}@[db/grpo",
    f"postgresql://ann:{SECRET}/with@db/grpo",
    f"postgresql://ann:12#{SECRET}@db/grpo",
    f"postgresql://ann:12?{SECRET}=x@db/grpo",
    f"postgresql://ann@db/grpo?{SECRET}=1",
]


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setenv(plaintext.ALLOW, "allow")

    def read(url: str) -> dict[str, Any]:
        monkeypatch.setenv(URL_VARIABLE, url)
        return databases(tmp_path)["default"]

    return read


def test_without_it_the_database_is_a_file_in_the_data_folder(address: Any, tmp_path: Path) -> None:
    assert address("")["NAME"] == tmp_path / "controlplane.sqlite3"


def test_an_address_is_taken_apart(address: Any, subtests: pytest.Subtests) -> None:
    for url, found in READABLE:
        with subtests.test(url=url):
            chosen = address(url)
            assert tuple(chosen[part] for part in ("USER", "PASSWORD", "HOST", "PORT", "NAME")) == found


def test_an_address_that_cannot_be_used_is_named_and_never_shown(address: Any, subtests: pytest.Subtests) -> None:
    for url in UNUSABLE:
        with subtests.test(url=url):
            with pytest.raises(DatabaseUnusable, match=URL_VARIABLE) as raised:
                address(url)
            assert SECRET not in str(raised.value)
            assert raised.value.__cause__ is None


def test_options_of_the_address_come_before_ours(address: Any) -> None:
    options = address("postgresql://db/grpo?sslmode=require&options=&connect_timeout=2")["OPTIONS"]
    assert (options["sslmode"], options["options"], options["connect_timeout"]) == ("require", "", "2")


def test_the_most_connections_of_a_process_can_be_chosen(address: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CONNECTIONS_VARIABLE, "3")
    assert address("postgresql://db/grpo")["OPTIONS"]["most"] == 3
    monkeypatch.setenv(CONNECTIONS_VARIABLE, "0")
    with pytest.raises(EnvironmentUnusable, match=CONNECTIONS_VARIABLE):
        address("postgresql://db/grpo")


@pytest.mark.parametrize(("given", "found"), [("", 5), ("0", 0), ("12", 12)])
def test_a_number_may_be_chosen(given: str, found: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTROLPLANE_MAX_RUNNING", given)
    assert whole_number("CONTROLPLANE_MAX_RUNNING", 5, minimum=0) == found


@pytest.mark.parametrize(
    ("variable", "given"), [("CONTROLPLANE_MAX_RUNNING", "-1"), ("CONTROLPLANE_MAX_QUEUED", "abc")]
)
def test_a_start_with_a_limit_that_is_no_number_is_one_clear_line(variable: str, given: str, tmp_path: Path) -> None:
    chosen = {variable: given, "CONTROLPLANE_DATA": str(tmp_path), "CONTROLPLANE_BOOTSTRAP": "off"}
    argv = [sys.executable, "manage.py", "check"]
    done = subprocess.run(argv, cwd=ROOT, env={**os.environ, **chosen}, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, f"{variable} must be a whole number of at least 0.\n")


def test_a_start_with_an_unusable_address_is_one_clear_line(tmp_path: Path) -> None:
    chosen = {URL_VARIABLE: f"postgresql://ann:{SECRET}@db:port/grpo", "CONTROLPLANE_DATA": str(tmp_path)}
    argv = [sys.executable, "manage.py", "check"]
    env = {**os.environ, **chosen, "CONTROLPLANE_BOOTSTRAP": "off"}
    done = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith(URL_VARIABLE)
    assert "Traceback" not in done.stderr
    assert SECRET not in done.stderr


def test_a_start_without_its_database_is_one_clear_line(tmp_path: Path) -> None:
    chosen = {URL_VARIABLE: f"postgresql://ann:{SECRET}@/grpo?host={tmp_path}", "CONTROLPLANE_DATA": str(tmp_path)}
    argv = [sys.executable, "manage.py", "up", "--port", "0"]
    env = {**os.environ, **chosen, "CONTROLPLANE_BOOTSTRAP": "off"}
    done = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 1
    assert "The database can't be reached" in done.stderr
    assert "Traceback" not in done.stderr
    assert SECRET not in done.stderr
