"""Datasets in the artifact store (moto's server): kept once by hash, fetched when missing, gone with the last one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from django.utils import timezone

from controlplane.catalogue.datasets import actions, archiving, storing
from controlplane.catalogue.datasets.models import DatasetVersion, StoredFolder
from tests.controlplane.catalogue.datasets.steps import MAPPING, ready, worked
from tests.controlplane.catalogue.datasets.test_pages import at
from tests.controlplane.people import viewer
from tests.controlplane.platform.accounts.secret_rows import a_store
from tests.fakes import refusing_store
from tests.fakes.object_store import BUCKET, ObjectStore, object_store

pytestmark = [pytest.mark.django_db, pytest.mark.processes]


@pytest.fixture(scope="module")
def server() -> Iterator[ObjectStore]:
    with object_store() as made:
        yield made


@pytest.fixture
def bucket(server: ObjectStore) -> ObjectStore:
    for name in server.names():
        server.client.delete_object(Bucket=BUCKET, Key=f"team/{name}")
    a_store(f"{server.store.endpoint}/{BUCKET}/team?region=us-east-1", "id:secret")
    return server


def tend() -> None:
    StoredFolder.objects.update(next_at=None)
    storing.reconcile(timezone.now())


def test_a_lost_folder_comes_back_as_it_was(bucket: ObjectStore) -> None:
    version = ready()
    tend()
    before = {
        path.name: path.read_bytes() for path in version.folder.iterdir() if path.name not in storing.UNSTORED_FILES
    }
    assert "In the store" in viewer().get(at(version)).content.decode()
    shutil.rmtree(version.folder)
    assert "being fetched from the artifact store" in viewer().get(at(version, "rows/")).content.decode()
    tend()
    assert {path.name: path.read_bytes() for path in version.folder.iterdir()} == before


def test_two_versions_of_one_file_keep_it_once_and_the_last_one_takes_it_along(bucket: ObjectStore) -> None:
    first = ready()
    tend()
    second = actions.map_again(None, first)
    actions.request_import(second, MAPPING, share=0.4)
    worked(second)
    tend()
    shared, only_here = f"datasets/{first.source_sha256}", f"datasets/{first.sha256}"
    assert {shared, only_here} < set(bucket.names())
    archiving.delete_version(first)
    tend()
    assert (shared in bucket.names(), only_here in bucket.names()) == (True, False)
    archiving.delete_version(second)
    tend()
    assert (bucket.names(), StoredFolder.objects.count()) == ([], 0)


def test_a_spoilt_file_is_not_used_and_said(bucket: ObjectStore) -> None:
    version = ready()
    tend()
    bucket.client.put_object(Bucket=BUCKET, Key=f"team/datasets/{version.sha256}", Body=b"something else")
    shutil.rmtree(version.folder)
    tend()
    assert not version.rows_path.exists()
    assert "has a different hash" in viewer().get(at(version)).content.decode()


@pytest.mark.usefixtures("bucket")
def test_a_full_store_is_said_and_tried_again_later() -> None:
    version: DatasetVersion = ready()
    with refusing_store.refusing_store(refusing_store.FULL) as full:
        a_store(f"{full.endpoint}/grpo", "id:secret")
        storing.reconcile(timezone.now())
        assert "is full: There is not enough" in viewer().get(at(version)).content.decode()
        storing.reconcile(timezone.now())
        assert StoredFolder.objects.get().tries == 1  # not before its time


def test_without_a_store_nothing_is_kept() -> None:
    ready()
    tend()
    assert not StoredFolder.objects.exists()
