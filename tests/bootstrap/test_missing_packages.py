"""What `manage.py test` says is missing before it starts."""

from __future__ import annotations

import sys

import pytest

from controlplane.setup.management.commands import test as command


def test_optional_packages_that_are_not_installed_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "OPTIONAL_PACKAGES", ("json", "no_such_package"))
    assert command._missing_packages(sys.executable) == ["no_such_package"]


def test_an_interpreter_that_is_not_there_is_left_to_the_trainers_tests() -> None:
    assert command._missing_packages("/nowhere/python") == []
