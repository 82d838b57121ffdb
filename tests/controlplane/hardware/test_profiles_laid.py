"""The migration that puts the profiles of the set-ups in the place of the first four."""

from __future__ import annotations

from importlib import import_module

import pytest
from django.apps import apps

from controlplane.hardware.migrations._first_shipped import FIRST
from controlplane.hardware.models import HardwareProfile
from controlplane.hardware.shipped import SHIPPED, by_slug
from tests.runs.builders import a_run, a_user

pytestmark = pytest.mark.django_db

migration = import_module("controlplane.hardware.migrations.0005_profiles_of_set_ups")
ALL = {profile.name for profile in SHIPPED}


@pytest.fixture(autouse=True)
def before() -> None:
    """The table as migration 0002 leaves it."""
    HardwareProfile.objects.all().delete()
    for name, description, spec in FIRST:
        HardwareProfile.objects.create(name=name, description=description, spec={"profile": name, **spec})


def laid() -> set[str]:
    migration.lay(apps, None)
    migration.name_strategy(apps, None)
    return set(HardwareProfile.objects.values_list("name", flat=True))


def test_where_nothing_was_changed_the_new_ones_are_there_and_nothing_else():
    assert laid() == ALL
    cpu = HardwareProfile.objects.get(name="CPU")
    assert (cpu.spec, cpu.description) == (by_slug("cpu").columns()["spec"], by_slug("cpu").description)


def test_a_run_keeps_its_frozen_copy_and_its_row_goes_on():
    run = a_run(hardware=dict(FIRST[1][2]))
    run.profile = HardwareProfile.objects.get(name=FIRST[1][0])
    run.save(update_fields=["profile"])
    frozen = dict(run.spec)
    laid()
    run.refresh_from_db()
    assert run.profile.name == by_slug("one-gpu-colocate").name
    assert run.spec == frozen


def test_what_somebody_changed_stays_beside_the_new_one():
    HardwareProfile.objects.filter(name=FIRST[2][0]).update(description="ours")
    assert laid() == ALL | {FIRST[2][0]}


def test_what_somebody_owns_stays():
    HardwareProfile.objects.filter(name=FIRST[2][0]).update(owner=a_user())
    assert laid() == ALL | {FIRST[2][0]}


def test_a_changed_cpu_profile_keeps_its_name_and_its_numbers():
    HardwareProfile.objects.filter(name="CPU").update(spec={"profile": "CPU", "cpu_slots": 2})
    assert laid() == ALL
    assert HardwareProfile.objects.get(name="CPU").spec == {"profile": "CPU", "cpu_slots": 2}


def test_what_was_deleted_stays_deleted():
    HardwareProfile.objects.filter(name=FIRST[1][0]).delete()
    assert laid() == ALL - {by_slug("one-gpu-colocate").name}


def test_a_name_that_somebody_took_is_left_to_them():
    taken = by_slug("dual-gpu").name.upper()
    HardwareProfile.objects.create(name=taken, spec={"cpu_slots": 3})
    names = laid()
    assert taken in names
    assert by_slug("dual-gpu").name not in names


def test_processes_that_shared_a_training_go_on_by_ddp():
    HardwareProfile.objects.create(name="ours", spec={"profile": "ours", "cpu_slots": 1, "processes": 2})
    laid()
    assert HardwareProfile.objects.get(name="ours").spec["strategy"] == "ddp"
