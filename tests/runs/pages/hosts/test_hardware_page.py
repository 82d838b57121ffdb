"""The Hardware page: hosts, who holds what, quarantine."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from controlplane.catalogue.hardware.models import Host
from runs.engine.models import Attempt, Lease
from tests.controlplane.people import operator, viewer
from tests.runs.builders import ONE_GPU, a_host, a_run
from tests.runs.pages.hosts.page import page

pytestmark = pytest.mark.django_db


def a_lease(host: Host, state: str = Lease.HELD, resource: str = "gpu:0") -> Lease:
    run = a_run("holder", host=host, hardware=ONE_GPU)
    return Lease.objects.create(attempt=run.attempts.get(), host=host, resource=resource, state=state)


def test_an_empty_installation_says_how_a_host_comes():
    assert "No hosts yet" in page()


def test_it_takes_a_signed_in_user():
    assert Client().get("/hardware/").status_code == 302


def test_a_host_in_reach_is_shown_with_its_facts():
    a_host(gpus=2, cpu_slots=3)
    shown = page()
    for words in (">reachable<", "CPU slots", "GPU 0", "GPU 1", "2 × H200", "0 of 2 GPUs held"):
        assert words in shown


def test_a_silent_host_is_stale_since_its_last_word():
    last = timezone.now() - timedelta(minutes=5)
    a_host(announced_at=last)
    shown = page()
    assert "Unreachable since" in shown
    assert f"{last:%Y-%m-%d %H:%M:%S}" in shown
    assert "No host is reachable" in shown


@pytest.mark.parametrize(("state", "words"), [("checking", "trainer: checking"), ("missing", "trainer missing")])
def test_a_trainer_that_is_not_ready_is_told(state, words):
    host = a_host()
    host.inventory["trainer"] = state
    host.save()
    assert words in page()


def test_a_held_gpu_names_its_run():
    a_lease(a_host(gpus=1))
    assert "holder" in page()
    assert "1 of 1 GPU held" in page()


@pytest.mark.parametrize(
    "inventory",
    [{}, {"gpus": None}, {"gpus": [3, {}, {"index": "x"}]}, {"versions": []}, {"models": "x"}, {"cpu_slots": "two"}],
)
def test_an_odd_inventory_breaks_nothing(inventory):
    a_host(inventory=inventory)
    assert ">reachable<" in page()


def test_a_host_name_is_shown_as_text():
    a_host(inventory={"versions": {"trl": "<b>1</b>"}, "models": ["<i>x</i>"]})
    assert "<b>1</b>" not in page()
    assert "<i>x</i>" not in page()


def test_htmx_gets_the_hosts_alone():
    a_host()
    part = viewer().get("/hardware/", headers={"HX-Request": "true"}).content.decode()
    assert ">reachable<" in part
    assert "<html" not in part


def test_the_page_needs_a_fixed_number_of_queries(django_assert_max_num_queries):
    for i in range(5):
        a_host(f"h{i}", gpus=2)
    client = viewer()
    with django_assert_max_num_queries(11):
        client.get("/hardware/")


def test_a_gpu_of_a_host_out_of_reach_is_not_called_free():
    a_host(gpus=1, announced_at=timezone.now() - timedelta(hours=1))
    shown = page()
    assert "unknown: unreachable" in shown
    assert '<span class="muted">free</span>' not in shown


def test_hosts_in_reach_come_first_and_the_tiles_of_others_are_folded():
    a_host("alpha", gpus=1, announced_at=timezone.now() - timedelta(hours=1))
    a_host("beta", gpus=1)
    beta, alpha = page().split('aria-label="Host ')[1:3]
    assert (beta[:4], alpha[:5]) == ("beta", "alpha")
    assert "as last seen" in alpha
    assert "as last seen" not in beta


def test_several_hosts_fold_on_a_phone_and_one_alone_does_not():
    a_host("alpha", gpus=1)
    assert "phone-fold" not in page().partition('id="profiles"')[0]
    a_host("beta", gpus=1)
    assert page().partition('id="profiles"')[0].count("phone-fold") == 2


def test_a_quarantined_gpu_shows_a_banner_and_is_released_by_an_operator():
    lease = a_lease(a_host(gpus=1), Lease.QUARANTINED)
    assert "GPU 0 of box is in quarantine" in page()
    client, path = operator(), f"/hardware/leases/{lease.pk}/release/"
    assert "was not proved free" in client.get(path).content.decode()
    assert client.post(path).status_code == 302
    lease.refresh_from_db()
    assert lease.state == Lease.RELEASED
    assert lease.released_by


def test_a_held_lease_is_not_released_by_hand():
    lease = a_lease(a_host(gpus=1))
    operator().post(f"/hardware/leases/{lease.pk}/release/")
    lease.refresh_from_db()
    assert lease.state == Lease.HELD


def test_viewers_release_and_drain_nothing():
    host = a_host(gpus=1)
    lease = a_lease(host, Lease.QUARANTINED)
    for path in (f"/hardware/leases/{lease.pk}/release/", f"/hardware/hosts/{host.pk}/drain/"):
        assert viewer().post(path, {"draining": "1"}).status_code == 403
    assert "Release…" not in page()


def test_draining_takes_a_post_and_a_host():
    assert operator().get("/hardware/hosts/1/drain/").status_code == 405
    assert operator().post("/hardware/hosts/999/drain/").status_code == 404
    assert operator().post("/hardware/leases/999/release/").status_code == 404


def test_a_host_is_drained_and_taken_back():
    host = a_host()
    client = operator()
    for value in (True, False):
        client.post(f"/hardware/hosts/{host.pk}/drain/", {"draining": str(int(value))})
        host.refresh_from_db()
        assert host.draining is value


def test_the_queue_says_what_runs_wait_for():
    a_run("patient")
    Attempt.objects.update(waits_for="waits for GPU 0, held by first")
    a_host()
    assert "Waits for GPU 0, held by first." in page()
