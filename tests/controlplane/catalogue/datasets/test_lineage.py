"""Versions that runs were trained on stay, and tell of those runs; what nothing needs goes with its files."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import RequestFactory
from django.utils import timezone

from controlplane.catalogue.datasets import archiving
from controlplane.catalogue.datasets.actions import map_again
from controlplane.catalogue.datasets.errors import DatasetError
from controlplane.catalogue.datasets.models import Dataset, DatasetVersion
from controlplane.catalogue.datasets.pages.lineage import lineage
from controlplane.catalogue.datasets.queries import newest_versions
from controlplane.platform.accounts.models import Role, User
from runs.engine.models import Run
from tests.controlplane.catalogue.datasets.steps import checked, ready, uploaded
from tests.runs.builders import rewards_named

pytestmark = [pytest.mark.django_db, pytest.mark.processes]


def a_run(version: DatasetVersion, name: str = "r") -> Run:
    owner = User.objects.get_or_create(username="ann", defaults={"role": Role.OPERATOR})[0]
    rewards = rewards_named("any")
    return Run.objects.create(name=name, owner=owner, spec={}, dataset_version=version, reward_version=rewards)


def test_a_version_tells_of_its_runs_and_of_what_was_made_of_it():
    first = ready()
    second = map_again(None, first)
    runs = [a_run(first, name) for name in ("one", "two")]
    told = lineage(first)
    assert (told.runs, told.run_count, told.parents) == ([runs[1], runs[0]], 2, [])
    assert (told.children, told.same_file) == ([second], [second])
    assert lineage(second).parents == [first]
    assert lineage(map_again(None, second)).parents == [second, first]


def test_a_version_that_a_run_used_is_archived_but_not_deleted():
    version = ready()
    a_run(version)
    for delete in (lambda: archiving.delete_version(version), lambda: archiving.delete_dataset(version.dataset)):
        with pytest.raises(DatasetError, match="Archive it instead"):
            delete()
    assert version.rows_path.exists()
    assert archiving.set_archived(version, True)
    version.refresh_from_db()
    assert version.archived_at is not None
    assert Run.objects.get().dataset_version == version


def test_of_a_dataset_whose_versions_are_all_archived_the_newest_is_listed():
    first = ready()
    newest = map_again(None, first)
    DatasetVersion.objects.filter(pk=first.pk).update(archived_at=timezone.now() - timedelta(days=1))
    request = RequestFactory().get("/datasets/")
    request.user = User.objects.create(username="viewer")
    assert newest_versions(request) == [newest]
    DatasetVersion.objects.filter(pk=newest.pk).update(archived_at=timezone.now())
    assert newest_versions(request) == [newest]
    DatasetVersion.objects.filter(pk=first.pk).update(archived_at=None)
    assert newest_versions(request) == [first]


def test_deleting_takes_the_files_along(django_capture_on_commit_callbacks):
    version = checked()
    with django_capture_on_commit_callbacks(execute=True):
        archiving.delete_dataset(version.dataset)
    assert not version.folder.exists()
    assert not Dataset.objects.exists()


def test_deleting_one_version_leaves_what_was_made_of_it(django_capture_on_commit_callbacks):
    first = ready()
    second = map_again(None, first)
    with django_capture_on_commit_callbacks(execute=True):
        archiving.delete_version(first)
    second.refresh_from_db()
    assert second.parent is None
    assert (second.folder / "source").read_bytes()
    assert not first.folder.exists()


def test_a_dataset_goes_with_its_last_version_and_stays_with_any_other():
    first, second = uploaded(name="two"), uploaded(name="two")
    assert not archiving.delete_version(first)
    third = uploaded(name="two")  # what came since somebody looked how many there are is not taken along
    assert not archiving.delete_version(second)
    assert list(Dataset.objects.get().versions.all()) == [third]
    assert archiving.delete_version(third)
    assert not Dataset.objects.exists()


def test_a_file_that_could_not_be_read_to_its_end_is_not_mapped_again():
    for version in (uploaded(), checked(b"\x89PNG\r\n\x1a\n")):
        with pytest.raises(DatasetError, match="wasn't read to the end"):
            map_again(None, version)
    assert DatasetVersion.objects.count() == 2
