"""What is kept of announcements, what is shown of hosts, and what an operator does about a host that is gone."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from controlplane.catalogue.hardware import history, inventory
from controlplane.catalogue.hardware.links import links_of
from controlplane.catalogue.hardware.models import Host
from runs.engine.hosts import announcements
from runs.engine.hosts.view import host_views
from runs.engine.models import Attempt, Lease, Run
from runs.engine.sentences import resource_words
from runs.engine.states import RunStatus
from tests.controlplane.people import operator, viewer
from tests.runs.builders import ONE_GPU, SERVER, a_host, a_run, an_attempt
from tests.runs.pages.hosts.page import page

pytestmark = pytest.mark.django_db

LONG_AGO = timedelta(minutes=5)
GPU = {"index": 0, "name": "H200", "memory_mib": 143_771, "used_mib": 600, "util_percent": 40}


def announce(name: str = "box", now: Any = None, **facts: Any) -> Host:
    return announcements.accept(name, {"boot_id": "b1", **facts}, None, now or timezone.now())


def a_lost_run(status: str = RunStatus.RUNNING) -> tuple[Host, Attempt]:
    """A claimed attempt that holds GPU 0 of a host which has gone silent."""
    host = a_host(gpus=2, announced_at=timezone.now() - LONG_AGO)
    attempt = an_attempt(status, run=a_run("lost", hardware=ONE_GPU, host=host))
    Attempt.objects.filter(pk=attempt.pk).update(host=host, claimed_at=timezone.now() - LONG_AGO)
    Lease.objects.create(attempt=attempt, host=host, resource="gpu:0")
    return host, attempt


# --- announcements -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "kept"),
    [
        ({"gpus": [3, {}, {"index": "x"}, {"index": True}, {"index": -1}]}, {"gpus": []}),
        ({"gpus": "many"}, {}),
        ({"cpu_slots": "two", "memory_mib": -4, "disk_total_mib": 7.9}, {"disk_total_mib": 7}),
        ({"converts_to_gguf": True}, {"converts_to_gguf": True}),
        ({"converts_to_gguf": "yes"}, {}),
        ({"port_range": [5, 1]}, {}),
        ({"port_range": [21000, 21003]}, {"port_range": [21000, 21003]}),
        ({"listening": [80, "x", 0, 70000, 22, 80]}, {"listening": [22, 80]}),
        ({"programs": {"vllm": ["a", 3], "trainer": "x"}}, {"programs": {"vllm": ["a"]}}),
        ({"versions": {"trl": "1.16.0", "torch": None}}, {"versions": {"trl": "1.16.0"}}),
        ({"cpu_percent": float("nan"), "gpu_error": 5}, {}),
        ({"something_new": {"a": [1, "\0b"]}}, {"something_new": {"a": [1, "b"]}}),
    ],
)
def test_an_inventory_is_kept_in_its_shapes(facts, kept):
    assert inventory.clean(facts) == kept


def test_an_inventory_that_never_ends_is_cut():
    deep: Any = "x" * 10_000
    for _ in range(50):
        deep = [deep]
    kept = inventory.clean({"deep": deep, "models": ["m"] * 10_000, "gpus": [{"index": i} for i in range(500)]})
    assert len(str(kept["deep"])) < 1000
    assert (len(kept["models"]), len(kept["gpus"])) == (inventory.MAX_ITEMS, inventory.MAX_GPUS)


def test_a_gpu_is_whole_whatever_was_told():
    [gpu] = inventory.clean({"gpus": [{"index": 1, "links": [3, {"gpu": 0, "kind": "NVLink", "lanes": "x"}]}]})["gpus"]
    assert (gpu["index"], gpu["name"], gpu["memory_mib"], gpu["power_w"]) == (1, "GPU", 0, None)
    assert gpu["links"] == [{"gpu": 0, "kind": "NVLink", "lanes": None, "path": None}]


def test_readings_of_ten_minutes_are_kept():
    start = timezone.now().replace(microsecond=0)
    for seconds in range(0, 900, 10):
        host = announce(now=start + timedelta(seconds=seconds), gpus=[GPU])
    assert len(host.history) == 61
    assert host.history[-1] == [round((start + timedelta(seconds=890)).timestamp(), 1), [40]]


def test_a_host_that_tells_often_keeps_no_more_than_is_drawn():
    kept: list[Any] = []
    for tenth in range(0, 20_000, 5):
        kept = history.add(kept, [GPU], 1000 + tenth / 10)
    assert len(kept) <= history.MAX_ENTRIES


def test_an_odd_history_is_none(subtests):
    for stored in [None, 3, [3], [[1]], [["x", []]], [[1, "x"]], [[1, [None]]]]:
        with subtests.test(stored=stored):
            assert history.lines(stored, 0, 600) == []


def test_the_line_of_use_breaks_where_nobody_knows():
    kept = [[t, [50]] for t in (10, 20, 30, 300, 310)]
    first, second = history.lines(kept, 0, 600, width=600, height=22)
    assert first == "10.0,11.0 20.0,11.0 30.0,11.0"
    assert second == "300.0,11.0 310.0,11.0"


def test_a_host_is_watched_while_its_page_is_open():
    host = announce(gpus=[])
    now = timezone.now()
    assert not announcements.is_watched(host, now)
    page()
    host.refresh_from_db()
    assert announcements.is_watched(host, now)
    assert not announcements.is_watched(host, timezone.now() + announcements.WATCHED_FOR + timedelta(seconds=1))


def test_what_a_gpu_had_in_use_before_a_run_is_not_the_runs():
    host = announce(gpus=[GPU])
    attempt = an_attempt(run=a_run("holder", hardware=ONE_GPU))
    Lease.objects.create(attempt=attempt, host=host, resource="gpu:0")
    announce(gpus=[GPU | {"used_mib": 70_600}])
    [gpu] = host_views()[0].gpus
    assert [(part["label"], part["value"]) for part in gpu.parts] == [("held by the run", 70_000), ("other", 600)]


# --- the page ----------------------------------------------------------------------------------------------


def test_links_that_are_alike_are_one_line():
    link = {"kind": "NVLink", "lanes": 18, "path": None}
    gpus = [{"index": i, "links": [link | {"gpu": j} for j in range(3) if j != i]} for i in range(3)]
    assert links_of(gpus).line == "NVLink 18 between all"
    assert links_of(gpus[:1]).line == ""
    assert links_of(gpus[:2]).line == "NVLink 18 between both"


def test_links_that_differ_are_a_table():
    a = {"index": 0, "links": [{"gpu": 1, "kind": "NVLink", "lanes": 4, "path": None}]}
    b = {"index": 1, "links": [{"gpu": 2, "kind": "PCIe", "lanes": None, "path": "SYS"}]}
    found = links_of([a, b, {"index": 2, "links": []}])
    assert found.rows[0] == (0, ("", "NVLink 4", "–"))
    assert found.rows[2] == (2, ("–", "PCIe SYS", ""))
    assert found.legend == (("SYS", "the link between CPUs"),)


def test_resources_are_said_as_people_say_them():
    assert resource_words(["gpu:1", "gpu:0", "port:21000"]) == "GPU 0, 1 and port 21000"
    assert resource_words(["cpu:0"]) == "CPU slot 0"


def test_a_host_says_all_that_it_knows():
    a_host(
        inventory={
            "boot_id": "0123456789abcdef",
            "gpus": [GPU | {"index": i, "driver": "570.10", "power_w": 512.4, "temperature_c": 61} for i in range(2)],
            "disk_free_mib": 1024,
            "disk_total_mib": 4096,
            "cpu_count": 96,
            "models": [f"/models/m{i}" for i in range(9)],
            "cuda": {"built_for": "13.0", "usable": False},
            "shm_mib": 64,
        }
    )
    shown = page()
    for words in (
        "570.10",
        "01234567",
        "96 cores",
        "and 3 more",
        "512",
        "61",
        "40",
        "13.0, torch can&#x27;t use",
        "(/dev/shm)",
    ):
        assert words in shown


def test_a_silent_driver_is_told_with_what_to_do():
    a_host(inventory={"gpu_error": "Unknown Error"})
    shown = page()
    assert "Unknown Error" in shown
    assert "nvidia-smi" in shown


def test_a_server_and_its_trainer_are_told_apart():
    host = a_host(gpus=2)
    attempt = an_attempt(run=a_run("pair", hardware=SERVER))
    Attempt.objects.update(placement={"host": "box", "gpus": [0], "server_gpus": [1]})
    for index in range(2):
        Lease.objects.create(attempt=attempt, host=host, resource=f"gpu:{index}")
    assert [gpu.holder.role for gpu in host_views()[0].gpus if gpu.holder] == ["trainer", "vLLM server"]


def test_the_queue_leads_to_who_has_what_is_waited_for():
    host = a_host(gpus=1)
    Lease.objects.create(attempt=an_attempt(run=a_run("holder")), host=host, resource="gpu:0")
    waiting = a_run("patient")
    holder = Run.objects.get(name="holder")
    Attempt.objects.filter(run=waiting).update(waits_for="waits for GPU 0", waits_how="held", waits_on=holder)
    link = f'<a href="/runs/{holder.pk}/">holder</a> <span class="muted">(olga)</span>'
    assert f"Waits for GPU 0, held by {link}." in page()


# --- giving up and removing --------------------------------------------------------------------------------


def test_a_host_out_of_reach_can_be_given_up_by_an_operator():
    host, attempt = a_lost_run()
    client, path = operator(), f"/hardware/hosts/{host.pk}/give-up/"
    assert path in page(client)
    assert path not in page()
    said = client.get(path).content.decode()
    assert "lost" in said
    assert "quarantine" in said
    assert client.post(path).status_code == 302
    attempt.refresh_from_db()
    assert (attempt.status, attempt.reason) == ("failed", "host_lost")
    assert Lease.objects.get().state == Lease.QUARANTINED


def test_an_operator_may_vouch_that_what_was_held_is_free():
    host, _ = a_lost_run()
    operator().post(f"/hardware/hosts/{host.pk}/give-up/", {"free": "1"})
    lease = Lease.objects.get()
    assert lease.state == Lease.RELEASED
    assert lease.released_by


def test_giving_up_twice_is_once():
    host, attempt = a_lost_run()
    client, path = operator(), f"/hardware/hosts/{host.pk}/give-up/"
    client.post(path)
    assert "Nothing was running" in client.post(path, follow=True).content.decode()
    assert attempt.events.filter(kind="status", data__to="failed").count() == 1


def test_a_host_in_reach_is_not_given_up():
    host, attempt = a_lost_run()
    Host.objects.update(announced_at=timezone.now())
    client, path = operator(), f"/hardware/hosts/{host.pk}/give-up/"
    assert path not in page(client)
    assert "is reachable" in client.get(path).content.decode()
    client.post(path, {"free": "1"})
    attempt.refresh_from_db()
    assert attempt.status == RunStatus.RUNNING


def test_a_host_that_is_gone_and_holds_nothing_is_removed_until_it_is_back():
    host = a_host(announced_at=timezone.now() - LONG_AGO)
    client, path = operator(), f"/hardware/hosts/{host.pk}/remove/"
    assert path in page(client)
    assert "no run holds its resources" in client.get(path).content.decode()
    assert "box was removed" in client.post(path, follow=True).content.decode()
    assert "already been removed" in client.post(path, follow=True).content.decode()
    assert "No hosts yet" in page()
    announce(gpus=[])
    assert ">reachable<" in page()
    assert Host.objects.get().pk == host.pk


def test_a_host_that_is_in_reach_or_holds_something_stays():
    host, _ = a_lost_run()
    client, path = operator(), f"/hardware/hosts/{host.pk}/remove/"
    assert "are still held" in client.get(path).content.decode()
    assert "still holds leases" in client.post(path, follow=True).content.decode()
    Host.objects.update(announced_at=timezone.now())
    assert "is reachable" in client.post(path, follow=True).content.decode()
    assert Host.objects.filter(pk=host.pk).exists()


def test_a_host_that_a_run_waits_for_stays():
    host = a_host(announced_at=timezone.now() - LONG_AGO)
    a_run("patient", host=host)
    said = operator().post(f"/hardware/hosts/{host.pk}/remove/", follow=True).content.decode()
    assert "patient is waiting for box" in said


@pytest.mark.parametrize("act", ["give-up", "remove"])
def test_viewers_give_up_and_remove_nothing(act):
    host = a_host(announced_at=timezone.now() - LONG_AGO)
    path = f"/hardware/hosts/{host.pk}/{act}/"
    assert [viewer().get(path).status_code, viewer().post(path).status_code] == [403, 403]
    assert operator().put(path).status_code == 405
    assert operator().post(f"/hardware/hosts/999/{act}/").status_code == 404


def test_what_a_run_left_in_quarantine_is_released_together():
    host, attempt = a_lost_run()
    more = Lease.objects.create(attempt=attempt, host=host, resource="gpu:1")
    Lease.objects.update(state=Lease.QUARANTINED)
    first = Lease.objects.get(resource="gpu:0")
    assert "GPU 0, 1 of box are in quarantine" in page()
    path = f"/hardware/leases/{first.pk}/release/"
    assert "gpu:1" in operator().get(path).content.decode()
    operator().post(path, {"lease": ["x", str(more.pk)]})
    assert set(Lease.objects.values_list("state", flat=True)) == {Lease.RELEASED}
