"""What runs take: as hosts measure it, on the pages, in the list and over the API."""

from __future__ import annotations

import pytest
from django.utils import timezone

from controlplane.catalogue.hardware.models import Host
from runs.engine import disk
from runs.engine.models import Run, RunDisk
from runs.engine.records import SampleStore
from runs.engine.states import RunStatus
from tests.controlplane.people import operator, viewer
from tests.runs.builders import a_host, a_run, an_attempt
from tests.runs.pages.hosts.test_host_announcements import announce
from tests.runs.pages.run_list.test_list import names, text

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("sent")]

MIB = 2**20


def ended(name: str) -> Run:
    return an_attempt(RunStatus.STOPPED, run=a_run(name)).run


def test_what_a_host_measures_is_kept_by_run_until_it_measures_again() -> None:
    run = ended("one")
    announce(run_sizes={run.pk: 5 * MIB, "gone": 7, "\0": 1, "r2": "many", "r3": -1})
    announce()  # without: nothing is new
    assert list(RunDisk.objects.values_list("run", "host__name", "bytes")) == [(run.pk, "box", 5 * MIB)]
    announce(run_sizes={})
    assert not RunDisk.objects.exists()


def test_hosts_that_share_a_folder_count_once() -> None:
    run = ended("one")
    first, second = (a_host(name, inventory={"runs_folder": "same"}) for name in ("h1", "h2"))
    for host in (first, second):
        disk.store_measurement(host, {run.pk: 5 * MIB})
    assert disk.of_run(run).parts == ["5\N{NO-BREAK SPACE}MiB on h2"]


def test_the_pages_say_what_runs_take_and_offer_to_delete_them() -> None:
    run, other = ended("one"), ended("two")
    host = a_host("h1", inventory={"disk_total_mib": 1000, "disk_free_mib": 600, "cpu_slots": 1})
    disk.store_measurement(host, {run.pk: 5 * MIB, other.pk: 100 * MIB})
    SampleStore.objects.create(run=run, size=3 * MIB)
    tab = operator().get(f"/runs/{run.pk}/checkpoints/").content.decode()
    assert "on h1, measured" in tab
    assert f"/deleted/run/?id={run.pk}" in tab
    assert f"/deleted/run/?id={run.pk}" not in viewer().get(f"/runs/{run.pk}/checkpoints/").content.decode()
    asked = operator().get("/deleted/run/", {"id": [run.pk, other.pk]}).content.decode()
    assert "Together they use 105\N{NO-BREAK SPACE}MiB on h1, 3\N{NO-BREAK SPACE}MiB in the database." in asked
    page = operator().get("/hardware/").content.decode()
    assert "2 runs take 105\N{NO-BREAK SPACE}MiB" in page
    assert page.index(">two</a>") < page.index(">one</a>")


def test_the_list_has_a_column_of_it_and_sorts_by_it() -> None:
    runs = [ended(name) for name in ("small", "big", "unknown")]
    host = a_host("h1")
    disk.store_measurement(host, {runs[0].pk: MIB, runs[1].pk: 2048 * MIB})
    assert names(columns="figure.disk", sort="-figure.disk", archived="all") == ["big", "small", "unknown"]
    assert "2\N{NO-BREAK SPACE}GiB" in text(viewer(), columns="figure.disk")
    assert Host.objects.get().disks.count() == 2
    assert "2147483648" in viewer().get("/runs/csv", {"columns": "figure.disk"}).content.decode()
    assert timezone.now() >= RunDisk.objects.latest("measured_at").measured_at
