"""Rewards that run code go where code is held, or where an admin lets it run unheld."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controlplane.catalogue.hardware.models import Host
from controlplane.catalogue.hardware.sandboxes import HostSandbox
from runs.engine import sentences
from runs.engine.hosts.view import host_views
from runs.engine.models import Attempt
from runs.engine.scheduling import dispatching, leasing
from runs.engine.spec import LaunchRequest
from runs.launch import preflight
from runs.launch.new_run import drafting
from runs.launch.preflight.finding import Grade
from tests.controlplane.people import viewer
from tests.runs.builders import a_host, a_run, rewards_named
from tests.runs.conftest import Sent
from tests.runs.launch.preflight.test_preflight import BOX, FINE
from workers.contract.run.hardware import HardwareSpec
from workers.contract.run.spec import RewardSpec
from workers.rewards.library import LIBRARY
from workers.rewards.reward import Cost

CODE = RewardSpec("tests", "math_equivalent")
HOLDS = {"backend": "landlock", "tried": {"bubblewrap": "not installed", "landlock": ""}}
NONE = {"backend": None, "tried": {"bubblewrap": "not installed", "landlock": "the kernel has none"}}
database = pytest.mark.django_db


def host_that(sandbox: dict[str, Any] | None, **columns: Any) -> Host:
    host = a_host(**columns)
    if sandbox is not None:
        host.inventory["sandbox"] = sandbox
        host.save()
    return host


def launched(*functions: str) -> tuple[str, bool | None]:
    """Of a run with these rewards, after a walk through the queue: what it waits for, and whether code is unheld."""
    version = rewards_named("code", [{"name": name, "function": name} for name in functions])
    a_run(reward_version=version)
    dispatching.dispatch_ready()
    attempt = Attempt.objects.select_related("run").get()
    if attempt.status == "queued":
        return str(sentences.waiting(attempt)), None
    return "", attempt.placement["unsandboxed"]


def test_every_reward_that_runs_code_is_known_as_one() -> None:
    assert LIBRARY["math_equivalent"].cost == Cost.SANDBOX
    assert leasing.need_of(HardwareSpec("cpu"), [CODE]).sandbox
    assert not leasing.need_of(HardwareSpec("cpu"), [RewardSpec("format", "think_tags")]).sandbox
    assert not leasing.need_of(HardwareSpec("cpu"), [RewardSpec("old", "gone_from_the_library")]).sandbox


@database
@pytest.mark.parametrize(
    ("sandbox", "columns", "waits", "unheld"),
    [
        (HOLDS, {}, "", False),
        (HOLDS, {"unsandboxed_allowed": True}, "", False),
        (NONE, {"unsandboxed_allowed": True}, "", True),
        (NONE, {}, "host box has no sandbox for code that rewards run", None),
        (None, {}, "host box has not yet reported its sandbox", None),
        (None, {"unsandboxed_allowed": True}, "host box has not yet reported its sandbox", None),
    ],
)
def test_a_run_with_code_starts_where_it_is_held_or_allowed(
    sent: Sent, sandbox: Any, columns: Any, waits: str, unheld: bool | None
) -> None:
    host_that(sandbox, **columns)
    said, found = launched("think_tags", "math_equivalent")
    assert waits in said
    assert bool(said) == bool(waits)
    assert found == unheld


@database
@pytest.mark.parametrize("sandbox", [None, NONE])
def test_a_run_without_code_starts_anywhere_and_is_never_called_unheld(sent: Sent, sandbox: Any) -> None:
    host_that(sandbox, unsandboxed_allowed=True)
    assert launched("think_tags") == ("", False)


@database
def test_of_two_hosts_the_one_that_holds_code_gets_it(sent: Sent) -> None:
    host_that(NONE, name="a")
    host_that(HOLDS, name="b")
    assert launched("math_equivalent") == ("", False)
    assert Attempt.objects.get().host.name == "b"


@database
def test_a_run_that_can_not_start_for_want_of_a_sandbox_keeps_nothing_from_others(sent: Sent) -> None:
    host_that(NONE)
    launched("math_equivalent")
    a_run("behind it")
    dispatching.dispatch_ready()
    assert Attempt.objects.get(run__name="behind it").status == "starting"


@database
@pytest.mark.parametrize("allowed", [True, False])
def test_the_runs_page_says_where_nothing_holds_its_code(sent: Sent, allowed: bool) -> None:
    host_that(NONE if allowed else HOLDS, unsandboxed_allowed=allowed)
    launched("math_equivalent")
    page = viewer().get(f"/runs/{Attempt.objects.get().run_id}/").content.decode()
    assert ("without a sandbox" in page) == allowed


# --- before the launch -------------------------------------------------------------------------------------------


def box(name: str = "box", *, backend: str = "", known: bool = True, allowed: bool = False) -> Any:
    lacks = () if backend else (("bubblewrap", "not installed"), ("landlock", "the kernel has none"))
    return replace(BOX, name=name, sandbox=HostSandbox(known, backend, lacks if known else (), allowed))


def found(*hosts: Any, rewards: tuple[RewardSpec, ...] = (CODE,), **more: Any) -> list[tuple[str, str]]:
    draft = replace(FINE, hosts=hosts, rewards=rewards, **more)
    return [(finding.grade, finding.cause) for finding in preflight.hosts.check_sandbox(draft)]


def test_a_host_that_holds_code_needs_no_word() -> None:
    assert found(box(backend="bubblewrap")) == []


def test_no_code_needs_no_sandbox() -> None:
    assert found(box(), rewards=(RewardSpec("format", "think_tags"),)) == []


def test_a_host_without_a_sandbox_stops_the_launch_and_is_named_with_why() -> None:
    [(grade, cause)] = found(box())
    assert grade == Grade.STOP
    assert cause == (
        "box has no sandbox for the code that tests runs: bubblewrap: not installed; landlock: the kernel has none."
    )


def test_what_is_allowed_is_warned_of() -> None:
    [(grade, cause)] = found(box(allowed=True))
    assert (grade, "an admin allows code there" in cause) == (Grade.WARN, True)


def test_a_host_that_has_not_told_yet_is_waited_for() -> None:
    [(grade, cause)] = found(box(known=False), rewards=(CODE, RewardSpec("style", "python")))
    assert (grade, cause) == (
        Grade.NOTE,
        "box has not reported yet whether it has a sandbox for the code that tests and style run.",
    )


def test_of_several_hosts_those_without_are_named() -> None:
    assert found(box("a", backend="landlock"), box("b")) == [(Grade.NOTE, "Without a sandbox for tests: b.")]
    assert found(box("a", backend="landlock"), box("b"), host_chosen=True) == []
    assert [grade for grade, _ in found(box("a"), box("b"))] == [Grade.STOP, Grade.STOP]


@database
def test_a_draft_knows_of_each_host_how_it_holds_code() -> None:
    views = host_views([host_that(HOLDS, name="a"), host_that(None, name="b", unsandboxed_allowed=True)])
    draft = drafting.draft_of(LaunchRequest(), hosts=views)
    told = [(host.name, host.sandbox.reported, host.sandbox.backend, host.sandbox.allowed) for host in draft.hosts]
    assert told == [("a", True, "landlock", False), ("b", False, "", True)]
