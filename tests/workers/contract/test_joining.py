"""Versions of hosts that are served, and names."""

from __future__ import annotations

import tomllib

import pytest

from controlplane.setup.serving.processes import BASE_DIR as ROOT
from workers.contract.wire.joining import HOST_NAME, VERSION, is_loopback, version_problem

SERVED = [("1.4.0", "1.4.9"), ("1.3.2", "1.4.0"), ("1.5.0", "1.4.0"), ("1.4.0rc1", "1.4.0"), ("1.4", "1.5.0")]
REFUSED = [
    ("1.2.9", "1.4.0", "Update the host."),
    ("1.6.0", "1.4.0", "Update the control plane."),
    ("2.4.0", "1.4.0", "Update the control plane."),
    ("0.9.0", "1.0.0", "Update the host."),
    ("new", "1.4.0", "can't be read"),
    ("1.4.0\n", "1.4.0", "can't be read"),
]


def test_the_version_is_that_of_the_project() -> None:
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == VERSION


@pytest.mark.parametrize(("host", "control"), SERVED)
def test_hosts_within_one_minor_version_are_served(host: str, control: str) -> None:
    assert version_problem(host, control) == ""


def test_others_are_refused_in_words(subtests: pytest.Subtests) -> None:
    for host, control, words in REFUSED:
        with subtests.test(host=host):
            assert words in version_problem(host, control)


def test_addresses_of_the_machine_itself() -> None:
    loopback = ["localhost", "127.0.0.1", "127.8.0.1", "::1", "[::1]", "a.localhost", "localhost."]
    assert [is_loopback(name) for name in loopback] == [True] * len(loopback)
    others = ["", "0.0.0.0", "10.0.0.1", "localhost.example", "::", "redis"]
    assert [is_loopback(name) for name in others] == [False] * len(others)


def test_names_of_hosts_hold_no_pattern_of_redis() -> None:
    assert all(HOST_NAME.fullmatch(name) for name in ("gpu1", "a.b-c_d"))
    assert not any(HOST_NAME.fullmatch(name) for name in ("gpu*", "a b", "gpu?", "[a]", "", "gpu\n", "x" * 65))
