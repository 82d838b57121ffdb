"""How a host holds code: as it tells, on its card, and an admin's word where nothing holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from controlplane.catalogue.hardware.models import Host
from controlplane.catalogue.hardware.sandboxes import NO_SANDBOX_WARNING, problem, sandbox_of
from runs.engine.hosts import announcements
from runs.engine.models import Attempt
from runs.engine.scheduling import dispatching
from tests.controlplane.people import admin, operator, viewer
from tests.runs.builders import a_host, a_run, rewards_named
from tests.runs.pages.hosts.page import page
from workers.sandbox.outcomes import Backend, Job
from workers.sandbox.pool import Sandbox

pytestmark = pytest.mark.django_db

NONE = {"backend": None, "tried": {"bubblewrap": "not installed", "landlock": "the kernel has none"}}
HOLDS = {"backend": "landlock", "tried": {"bubblewrap": "user namespaces are refused", "landlock": ""}}


def told(sandbox: Any, **columns: Any) -> Host:
    a_host(**columns)
    return announcements.accept("box", {**Host.objects.get().inventory, "sandbox": sandbox}, None, timezone.now())


def test_what_a_host_tells_is_kept() -> None:
    found = sandbox_of(told(HOLDS))
    assert (found.reported, found.backend, found.runs_code, found.reach) == (True, "landlock", True, "")
    assert found.lacks == (("bubblewrap", "user namespaces are refused"),)


@pytest.mark.parametrize(
    "nonsense", [None, "bubblewrap", {}, {"backend": "bubblewrap"}, {"backend": "bubblewrap", "tried": []}, 7, [HOLDS]]
)
def test_what_is_no_answer_is_none_and_runs_no_code(nonsense: Any) -> None:
    host = told(nonsense)
    assert not sandbox_of(host).reported
    assert "has not yet reported" in problem(host)


@pytest.mark.parametrize("backend", [7, None, "", ["bubblewrap"]])
def test_a_backend_that_is_no_name_holds_nothing(backend: Any) -> None:
    host = told({"backend": backend, "tried": {"bubblewrap": "", "x": 7}})
    assert "has no sandbox" in problem(host)


def test_the_backend_is_on_the_hosts_card() -> None:
    told(HOLDS)
    assert "landlock" in page()
    assert "bubblewrap: user namespaces are refused" in page()


def test_a_host_without_one_says_so_and_why() -> None:
    told(NONE)
    shown = page()
    assert "no sandbox" in shown
    assert "landlock: the kernel has none" in shown
    assert "Allow it" not in shown
    assert "Allow it" not in page(operator())
    assert "Allow it" in page(admin())


def test_an_admin_allows_code_all_the_same_and_the_page_says_who() -> None:
    host = told(NONE)
    a_run(reward_version=rewards_named("code", [{"name": "tests", "function": "math_equivalent"}]))
    dispatching.dispatch_ready()
    assert Attempt.objects.get().status == "queued"
    client = admin()
    asked = client.get(f"/hardware/hosts/{host.pk}/unsandboxed/").content.decode()
    for consequence in ("read every file", "environment of this user’s processes", "empty every file", "the network"):
        assert consequence in asked
    assert not Host.objects.get().unsandboxed_allowed
    assert client.post(f"/hardware/hosts/{host.pk}/unsandboxed/", {"allowed": "1"}).status_code == 302
    assert Attempt.objects.get().status == "starting"
    shown = page()
    assert f"Code that models write runs on {host.name} without a sandbox." in shown
    assert NO_SANDBOX_WARNING in shown
    assert f"{Host.objects.get().unsandboxed_by.username} allowed it" in shown
    client.post(f"/hardware/hosts/{host.pk}/unsandboxed/", {"allowed": "0"})
    assert not Host.objects.get().unsandboxed_allowed


LOOKS_AROUND = """
import socket
def looks(path):
    done = []
    for name, do in {"reads": lambda: open(path).read(), "empties": lambda: open(path, "w"),
                     "calls": lambda: socket.socket()}.items():
        try:
            do()
        except OSError:
            continue
        done.append(name)
    return done
"""


@pytest.mark.processes
def test_code_without_a_sandbox_can_what_the_page_says(tmp_path: Path) -> None:
    kept = tmp_path / "checkpoint"
    kept.write_text("weights")
    with Sandbox(Backend.BARE) as sandbox:
        [outcome] = sandbox.run([Job(LOOKS_AROUND, "looks", (str(kept),))])
    assert outcome.value == ["reads", "empties"]  # a kernel with seccomp gives it no socket of its own
    assert kept.read_text() == ""


def test_nobody_else_does() -> None:
    host = told(NONE)
    for client in (viewer(), operator()):
        assert client.post(f"/hardware/hosts/{host.pk}/unsandboxed/", {"allowed": "1"}).status_code == 403
    assert not Host.objects.get().unsandboxed_allowed


def test_an_announcement_takes_no_permission_away() -> None:
    told(NONE, unsandboxed_allowed=True)
    assert announcements.accept("box", {"sandbox": NONE}, None, timezone.now()).unsandboxed_allowed
