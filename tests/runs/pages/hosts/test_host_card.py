"""A host's card: which states, words and buttons stand on it, and for whom."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from django.utils.html import strip_tags

from controlplane.catalogue.hardware.models import Host
from controlplane.platform.accounts.models import Role
from runs.engine.hosts.view import GpuView, Holder, host_views
from runs.engine.models import Lease
from runs.pages.hosts.host_card import GpuTile, host_card
from tests.runs.builders import ONE_GPU, a_host, a_run, a_user

pytestmark = pytest.mark.django_db

AWAY = timedelta(minutes=5)
NO_SANDBOX = {"backend": None, "tried": {"bubblewrap": "not installed"}}
LANDLOCK = {"backend": "landlock", "tried": {"bubblewrap": "user namespaces are refused"}}


def a_card(host: Host, role: str = Role.ADMIN) -> dict[str, Any]:
    return host_card(host_views([host])[0], a_user(role, role))


def with_inventory(**facts: Any) -> Host:
    host = a_host(gpus=1)
    host.inventory |= facts
    host.save()
    return host


def texts(card: dict[str, Any], label: str) -> list[str]:
    return [
        strip_tags(text) for column in card["facts"] for fact in column if fact.label == label for text in fact.texts
    ]


def a_lease(host: Host, resource: str = "gpu:0", state: str = Lease.HELD) -> Lease:
    run = a_run("holder", host=host, hardware=ONE_GPU)
    return Lease.objects.create(attempt=run.attempts.get(), host=host, resource=resource, state=state)


def test_a_host_says_with_which_others_it_shares_its_runs() -> None:
    for name, folder in (("a", "f1"), ("b", "f1"), ("c", "f2"), ("d", "")):
        host = a_host(name)
        host.inventory["runs_folder"] = folder
        host.save()
    user = a_user(Role.ADMIN, Role.ADMIN)
    shown = {view.name: texts(host_card(view, user), "Runs folder") for view in host_views()}
    assert shown == {"a": ["shared with b"], "b": ["shared with a"], "c": [], "d": []}


def test_a_gpu_proved_free_since_the_last_announcement_is_idle() -> None:
    host = with_inventory(gpus=[{"index": 0, "name": "H200", "memory_mib": 143_771, "used_mib": 115_000}])
    host.idle_mib = {"0": 20}
    host.save()
    lease = a_lease(host)
    lease.state, lease.released_at = Lease.RELEASED, timezone.now()
    lease.save()
    assert [(gpu.used_mib, gpu.busy) for gpu in host_views([host])[0].gpus] == [(20, False)]
    host.announced_at = timezone.now()
    host.save()
    assert [(gpu.used_mib, gpu.busy) for gpu in host_views([host])[0].gpus] == [(115_000, True)]


@pytest.mark.parametrize(
    ("facts", "columns", "chips"),
    [
        ({"trainer": "ready"}, {}, ["reachable"]),
        ({}, {"draining": True}, ["reachable", "trainer: checking", "accepts no new runs"]),
        ({"trainer": "missing"}, {}, ["reachable", "trainer missing"]),
        ({"trainer": "ready", "sandbox": NO_SANDBOX}, {}, ["reachable", "no sandbox"]),
        (
            {"trainer": "ready", "sandbox": NO_SANDBOX},
            {"unsandboxed_allowed": True},
            ["reachable", "code runs without a sandbox"],
        ),
        ({"trainer": "ready", "sandbox": LANDLOCK}, {"unsandboxed_allowed": True}, ["reachable"]),
    ],
)
def test_chips_name_the_states(facts: dict[str, Any], columns: dict[str, Any], chips: list[str]) -> None:
    host = with_inventory(**facts)
    for name, value in columns.items():
        setattr(host, name, value)
    assert [label for _, label in a_card(host)["chips"]] == chips


@pytest.mark.parametrize(
    ("gpus", "facts", "hardware"),
    [
        (2, {}, "2 × H200, 2 free"),
        (0, {}, "CPU host, 1 slot"),
        (0, {"gpu_error": "Unknown Error"}, "GPUs unknown"),
    ],
)
def test_the_hardware_is_named(gpus: int, facts: dict[str, Any], hardware: str) -> None:
    host = a_host(gpus=gpus)
    host.inventory |= facts
    assert a_card(host)["hardware"] == hardware


def test_a_host_out_of_reach_can_be_removed_or_marked_as_lost() -> None:
    host = a_host(gpus=1, announced_at=timezone.now() - AWAY)
    assert [button.label for button in a_card(host)["buttons"]] == ["Remove…"]
    a_lease(host)
    assert [button.label for button in a_card(host)["buttons"]] == ["Mark host as lost…"]
    assert "No new runs can be launched on it; its current runs continue." in a_card(host)["stale"]
    assert a_card(host, Role.VIEWER)["buttons"] == []


def test_a_host_that_never_connected_says_so() -> None:
    assert a_card(a_host(announced_at=None))["stale"].startswith("Never connected.")
    assert a_card(a_host("other"))["stale"] == ""


def test_quarantined_resources_of_a_run_are_one_notice() -> None:
    host = a_host(gpus=2)
    lease = a_lease(host, state=Lease.QUARANTINED)
    [notice] = a_card(host)["quarantines"]
    assert (notice.title, notice.text) == (
        "GPU 0 of box is in quarantine.",
        "it was not proved free, so no run gets it.",
    )
    Lease.objects.create(attempt=lease.attempt, host=host, resource="gpu:1", state=Lease.QUARANTINED)
    [notice] = a_card(host, Role.VIEWER)["quarantines"]
    assert notice.title == "GPU 0, 1 of box are in quarantine."
    assert notice.button is None


def test_only_an_admin_gets_the_button_that_allows_code_without_a_sandbox() -> None:
    host = with_inventory(sandbox=NO_SANDBOX)
    [notice] = a_card(host)["notices"]
    assert (notice.grade, notice.lines) == ("warn", ("bubblewrap: not installed",))
    assert notice.button is not None
    assert notice.button.label == "Allow it…"
    [notice] = a_card(host, Role.OPERATOR)["notices"]
    assert notice.button is None


def test_the_sandbox_is_named_with_what_does_not_work() -> None:
    assert texts(a_card(with_inventory(sandbox=LANDLOCK)), "Sandbox") == [
        "landlock",
        "bubblewrap: user namespaces are refused",
    ]


def test_facts_that_were_not_reported_are_no_empty_lines() -> None:
    card = a_card(a_host(gpus=1, cpu_slots=0, inventory={"gpus": [{"index": 0}]}))
    labels = [fact.label for column in card["facts"] for fact in column]
    facts = ["Memory", "Disk", "CPU", "CPU slots", "GPU-hour", "Served models", "Sandbox", "Boot", "Versions", "Models"]
    assert labels == facts
    assert [texts(card, label) for label in labels] == [
        ["–"],
        ["–"],
        ["–"],
        ["none"],
        ["no price", "Set…"],
        ["listen on 127.0.0.1", "Change…"],
        ["not reported yet"],
        ["not reported"],
        ["not reported"],
        ["none found"],
    ]


def test_slots_beside_gpus_are_facts_and_alone_they_are_tiles() -> None:
    host = a_host(gpus=1, cpu_slots=2)
    assert texts(a_card(host), "CPU slots") == ["0 free", "1 free"]
    assert a_card(host)["slots"] == ()
    assert len(a_card(a_host("small", cpu_slots=2))["slots"]) == 2


def test_of_many_models_six_are_listed() -> None:
    card = a_card(with_inventory(models=[f"/models/m{i}" for i in range(9)]))
    assert texts(card, "Models") == [*(f"/models/m{i}" for i in range(6)), "and 3 more"]
    assert "9 models" in card["summary"]


def test_what_a_host_says_is_escaped_in_the_summary() -> None:
    assert "&lt;b&gt;" in a_card(with_inventory(versions={"torch": "<b>2</b>"}))["summary"]


@pytest.mark.parametrize(
    ("quarantined", "used_mib", "css"),
    [
        (None, 0, "gpu-tile"),
        (None, 9000, "gpu-tile busy"),
        (False, 9000, "gpu-tile held"),
        (True, 9000, "gpu-tile quarantined"),
    ],
)
def test_a_gpus_tile_shows_who_holds_it(quarantined: bool | None, used_mib: int, css: str) -> None:
    holder = None if quarantined is None else Holder(1, "r1", "run", timezone.now(), quarantined)
    gpu = GpuView(0, "H200", "", 10_000, used_mib, None, None, None, holder)
    assert GpuTile(gpu).css == css
