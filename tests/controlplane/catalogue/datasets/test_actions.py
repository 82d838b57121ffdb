"""What becomes of an upload before anything reads it: numbered, named, bounded, or gone without a trace."""

from __future__ import annotations

import errno
import hashlib
import os
from io import BytesIO

import pytest
from django.core.files.uploadedfile import TemporaryUploadedFile
from django.db import IntegrityError

from controlplane.catalogue.datasets import actions, reader_process, sources
from controlplane.catalogue.datasets.errors import ChildFailed, DatasetError, NameTaken, NoSpace, TooLarge
from controlplane.catalogue.datasets.models import Dataset, DatasetVersion
from controlplane.catalogue.datasets.receiving import incoming_folder, shown_name
from controlplane.platform.accounts.models import User
from tests.controlplane.catalogue.datasets.sources import jsonl
from tests.controlplane.catalogue.datasets.steps import ROWS, uploaded

pytestmark = pytest.mark.django_db


def nothing_is_left(name: str) -> bool:
    return not Dataset.objects.filter(name=name).exists() and not list(incoming_folder().iterdir())


def test_versions_of_one_name_are_numbered_and_know_who_made_them():
    ann = User.objects.create_user("ann")
    assert [uploaded(name="one").number, uploaded(name="one").number] == [1, 2]
    third = actions.create_from_upload(ann, "one", BytesIO(b"{}"), "x")
    assert (third.number, third.created_by, Dataset.objects.count()) == (3, ann, 1)


def test_a_new_name_that_is_taken_leaves_the_dataset_as_it_is():
    uploaded(name="taken")
    for make in (
        lambda: actions.create_from_upload(None, "taken", BytesIO(b"{}"), "x", must_be_new=True),
        lambda: actions.create_from_source(None, "taken", sources.HubSource("a/b"), must_be_new=True),
    ):
        with pytest.raises(NameTaken, match="already a dataset"):
            make()
    assert DatasetVersion.objects.count() == 1
    assert list(incoming_folder().iterdir()) == []


def test_a_file_over_the_limit_by_one_byte_leaves_nothing(settings):
    settings.DATASET_MAX_BYTES = 10
    actions.create_from_upload(None, "fits", BytesIO(b"x" * 10), "x")
    with pytest.raises(TooLarge):
        actions.create_from_upload(None, "over", BytesIO(b"x" * 11), "x")
    assert nothing_is_left("over")


def test_an_empty_file_is_refused():
    with pytest.raises(DatasetError, match="empty"):
        uploaded(b"", name="none")
    assert nothing_is_left("none")


def test_an_upload_that_breaks_off_leaves_nothing():
    class Breaks:
        def read(self, size: int = -1) -> bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(NoSpace, match="no space left"):
        actions.create_from_upload(None, "full", Breaks(), "x")
    assert nothing_is_left("full")


def test_a_database_that_refuses_leaves_no_file(monkeypatch):
    def refuses(*args: object, **fields: object) -> None:
        raise IntegrityError

    monkeypatch.setattr(DatasetVersion, "save", refuses)
    with pytest.raises(NameTaken, match="right now"):
        uploaded(name="refused")
    assert nothing_is_left("refused")


def test_a_folder_that_can_not_be_made_leaves_no_row(monkeypatch):
    def full(*args: object) -> None:
        raise NoSpace("no space left")

    monkeypatch.setattr(actions, "make_folder", full)
    with pytest.raises(NoSpace):
        actions.create_from_source(None, "no folder", sources.HubSource("a/b"))
    assert nothing_is_left("no folder")


def test_what_lies_in_the_folder_of_a_version_that_never_was_goes():
    first = uploaded()
    stale = first.folder.parent / str(first.pk + 1)
    stale.mkdir(exist_ok=True)
    (stale / "rows.parquet").write_bytes(b"of nobody")
    second = uploaded()
    assert second.folder == stale
    assert [path.name for path in stale.iterdir()] == ["source"]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("../../etc/passwd", "passwd"),
        ("/abs/x.jsonl", "x.jsonl"),
        ("C:\\data\\CON", "CON"),
        ("a\nb\x00c.jsonl", "abc.jsonl"),
        ("evil\u202etxt.jsonl", "eviltxt.jsonl"),
        ("x" * 300, "x" * 255),
        ("; rm -rf ~ #.jsonl", "; rm -rf ~ #.jsonl"),
        ("", "upload"),
        ("..", ".."),
    ],
)
def test_a_file_name_is_only_ever_text(name, shown):
    assert shown_name(name) == shown


@pytest.mark.parametrize("links", [True, False], ids=["hard links", "no hard links"])
def test_an_upload_that_lies_on_disk_is_taken_from_there(monkeypatch, links):
    class Stored(TemporaryUploadedFile):
        sha256 = hashlib.sha256(jsonl(ROWS)).hexdigest()

    def refused(*names):
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    if not links:
        monkeypatch.setattr(os, "link", refused)
    with Stored("upload", "", 0, None) as file:
        file.write(jsonl(ROWS))
        file.flush()
        file.size = file.tell()
        version = actions.create_from_upload(None, f"on disk, {links}", file, "rows.jsonl")
        assert (version.folder / "source").stat().st_nlink == 1 + links
    assert (version.folder / "source").read_bytes() == jsonl(ROWS)
    assert version.source_sha256 == Stored.sha256


@pytest.mark.processes
def test_the_reading_process_sees_no_secrets(monkeypatch, tmp_path):
    monkeypatch.setenv("REDIS_URL", "unix:///secret")
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.setenv("PYTHONPATH", "/packages")
    seen = {}

    def popen(command, **options):
        seen.update(options, command=command)
        raise ChildFailed("server", "not begun")

    monkeypatch.setattr(reader_process.subprocess, "Popen", popen)
    with pytest.raises(ChildFailed):
        reader_process.ask(tmp_path, "find", {})
    assert set(seen["env"]) == {"PATH", "PYTHONPATH", "LANG"}
    assert isinstance(seen["command"], list)
    assert "shell" not in seen
