"""What may be named as a source, and what the worker brings from the server's own folders."""

from __future__ import annotations

import hashlib
import os

import pytest

from controlplane.catalogue.datasets import actions, reader_process
from controlplane.catalogue.datasets.errors import SourceRefused
from controlplane.catalogue.datasets.fetching.starting import fetch
from controlplane.catalogue.datasets.models import Dataset, DatasetVersion
from controlplane.catalogue.datasets.sources import HubSource, PathSource, server_path

LINES = b'{"question": "1+1", "answer": "2"}\n'


@pytest.fixture
def root(settings, tmp_path):
    folder = tmp_path / "allowed"
    folder.mkdir()
    settings.DATASET_ROOTS = (str(folder),)
    return folder


@pytest.mark.parametrize(
    "name",
    [
        "http://169.254.169.254/latest", "https://huggingface.co/datasets/openai/gsm8k", "file:///etc/passwd",
        "../../etc/passwd", "a/b/c", "", "-rf", "a b", "owner/..", "hf://datasets/x", "owner//name", "x\n", "x" * 200,
    ],
)  # fmt: skip
def test_only_a_plain_id_is_a_dataset_of_the_hub(name):
    with pytest.raises(SourceRefused):
        HubSource(name)


@pytest.mark.parametrize("field", ["config", "split", "revision"])
@pytest.mark.parametrize("value", ["../x", "a\nb", "; rm -rf /", "x" * 300, "file:///x"])
def test_the_other_fields_are_words_as_well(field, value):
    with pytest.raises(SourceRefused):
        HubSource("owner/name", **{field: value})


def test_a_hub_source_of_every_usual_shape_is_taken():
    made = HubSource("openai/gsm8k", "main", "train", "refs/convert/parquet")
    assert made.title == "openai/gsm8k · main · train"
    assert HubSource("gsm8k").as_dict() == {"id": "gsm8k", "config": "", "split": "train", "revision": "main"}


@pytest.mark.parametrize("text", ["file:///etc/passwd", "http://127.0.0.1/x", "gopher://x", "FILE:/etc/passwd"])
def test_addresses_are_no_paths(root, text):
    with pytest.raises(SourceRefused, match="not a URL"):
        server_path(text)


def test_without_allowed_folders_no_path_is_read(settings):
    settings.DATASET_ROOTS = ()
    with pytest.raises(SourceRefused, match="CONTROLPLANE_DATASET_ROOTS"):
        server_path("/etc/passwd")


@pytest.mark.parametrize(
    "outside", ["/etc/passwd", "{root}/../secret", "{root}/link", "{root}/folder/x", "{root}x/y", "/", "/" * 5000]
)
def test_what_lies_elsewhere_is_refused_and_not_told_of(root, outside):
    (root.parent / "secret").write_text("x")
    (root / "link").symlink_to(root.parent / "secret")
    (root / "folder").symlink_to(root.parent)
    with pytest.raises(SourceRefused, match="Only these folders"):
        server_path(outside.format(root=root))


@pytest.mark.parametrize("text", ["relative/x", "{root}/a\0b", "{root}/a\nb", ""])
def test_what_is_no_whole_path_is_refused(root, text):
    with pytest.raises(SourceRefused):
        server_path(text.format(root=root))


def test_a_link_inside_is_followed(root):
    (root / "rows.jsonl").write_bytes(LINES)
    (root / "link").symlink_to("rows.jsonl")
    assert server_path(str(root / "link")) == root / "rows.jsonl"


@pytest.mark.django_db
class TestPaths:
    def test_a_file_of_the_server_is_copied_and_hashed(self, root):
        (root / "rows.jsonl").write_bytes(LINES)
        version = actions.create_from_source(None, "from path", PathSource(str(root / "rows.jsonl")))
        assert (version.status, version.source_kind) == (DatasetVersion.FETCHING, DatasetVersion.PATH)
        found = fetch(version, lambda: True)
        assert found["source_sha256"] == hashlib.sha256(LINES).hexdigest()
        (root / "rows.jsonl").write_bytes(b"changed")
        assert (version.folder / "source").read_bytes() == LINES
        assert sorted(path.name for path in version.folder.iterdir()) == ["progress.json", "source"]

    def test_a_folder_of_shards_is_joined_in_the_order_of_names(self, root):
        for name, content in (("b.jsonl", b"2"), ("a.jsonl", b"1"), ("c.txt", b"no"), ("d.jsonl", b"3")):
            (root / name).write_bytes(content)
        (root / "e.jsonl").symlink_to("/etc/passwd")
        version = actions.create_from_source(None, "from folder", PathSource(str(root)))
        fetch(version, lambda: True)
        assert (version.folder / "source").read_bytes() == b"1\n2\n3"

    def test_a_path_that_became_a_link_in_between_is_refused(self, root):
        (root / "rows.jsonl").write_bytes(LINES)
        version = actions.create_from_source(None, "swapped", PathSource(str(root / "rows.jsonl")))
        (root / "rows.jsonl").unlink()
        (root / "rows.jsonl").symlink_to("/etc/passwd")
        with pytest.raises(actions.DatasetError, match="can't be opened"):
            fetch(version, lambda: True)
        assert not (version.folder / "source").exists()

    def test_a_pipe_does_not_hold_the_worker_up(self, root):
        os.mkfifo(root / "pipe.jsonl")
        with pytest.raises(SourceRefused, match="no such file"):
            actions.create_from_source(None, "pipe", PathSource(str(root / "pipe.jsonl")))
        assert not Dataset.objects.exists()

    def test_a_file_over_the_limit_is_refused(self, root, settings):
        (root / "rows.jsonl").write_bytes(LINES)
        settings.DATASET_MAX_BYTES = len(LINES) - 1
        version = actions.create_from_source(None, "large", PathSource(str(root / "rows.jsonl")))
        with pytest.raises(actions.DatasetError, match="larger than"):
            fetch(version, lambda: True)


def test_a_link_to_a_name_that_is_no_text_is_refused(root):
    odd = os.fsencode(root) + b"/\xff.jsonl"
    with open(odd, "wb") as file:
        file.write(LINES)
    os.symlink(odd, root / "link.jsonl")
    with pytest.raises(SourceRefused, match="not valid UTF-8"):
        server_path(str(root / "link.jsonl"))


@pytest.mark.django_db
def test_only_a_fetch_from_the_hub_gets_the_control_planes_token(monkeypatch, root):
    seen = {}

    def fetched(folder, kind, arguments, *, environment, **more):
        seen[kind] = environment
        return {"found": None, "bytes": 1, "sha256": "0" * 64}

    monkeypatch.setattr(reader_process, "run_for_json", fetched)
    monkeypatch.setenv("HF_TOKEN", "for the hub")
    monkeypatch.setenv("REDIS_URL", "unix:///secret")
    (root / "rows.jsonl").write_bytes(LINES)
    for name, source in (("hub", HubSource("Org/Rows")), ("path", PathSource(str(root / "rows.jsonl")))):
        fetch(actions.create_from_source(None, name, source), lambda: True)
    hub, path = seen[DatasetVersion.HUB], seen[DatasetVersion.PATH]
    assert (hub["HF_TOKEN"], "REDIS_URL" in hub, path) == ("for the hub", False, {})
