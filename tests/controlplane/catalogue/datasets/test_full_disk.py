"""A disk that is full while an upload comes: told in words, and nothing stays behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from controlplane.catalogue.datasets.models import Dataset, DatasetVersion
from controlplane.catalogue.datasets.receiving import incoming_folder
from tests.controlplane.catalogue.datasets.sources import jsonl
from tests.controlplane.catalogue.datasets.steps import ROWS
from tests.controlplane.people import operator
from tests.disk import fill, mounted

pytestmark = pytest.mark.django_db

FEW, MANY = jsonl(ROWS), jsonl(ROWS * 20_000)
"""Of the one all bytes wait in a buffer until the upload is complete, of the other most are written as they come."""


@pytest.fixture
def small_disk(tmp_path: Path, settings) -> Iterator[Path]:
    with mounted(tmp_path / "small", "2m") as folder:
        settings.DATA_DIR = folder
        settings.FILE_UPLOAD_TEMP_DIR = incoming_folder()
        yield folder


@pytest.mark.parametrize("content", [FEW, MANY], ids=["few", "many"])
def test_a_full_disk_is_told_and_leaves_nothing(small_disk: Path, content: bytes) -> None:
    client = operator()
    fill(small_disk / "others")
    answer = client.post("/datasets/upload/", {"file": SimpleUploadedFile("rows.jsonl", content)})
    assert (answer.status_code, "The disk of the control plane is full" in answer.content.decode()) == (422, True)
    assert list(incoming_folder().iterdir()) == []
    assert not Dataset.objects.exists()
    (small_disk / "others").unlink()
    again = client.post("/datasets/upload/", {"file": SimpleUploadedFile("rows.jsonl", FEW)})
    assert again["Location"] == DatasetVersion.objects.get().get_absolute_url()
