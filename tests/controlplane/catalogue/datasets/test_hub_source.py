"""Datasets of the hub, fetched by the real child process from a small fake hub."""

from __future__ import annotations

import gzip
import hashlib
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from controlplane.catalogue.datasets import actions, reader_process
from controlplane.catalogue.datasets.errors import ChildFailed
from controlplane.catalogue.datasets.fetching.starting import fetch
from controlplane.catalogue.datasets.reader import files
from controlplane.catalogue.datasets.sources import HubSource
from controlplane.catalogue.datasets.work_queue import progress
from tests.fakes.fake_hub import FakeHub

pytestmark = [pytest.mark.django_db, pytest.mark.processes]

LINES = b'{"question": "1+1", "answer": "2"}\n'
README = b"""---
license: mit
configs:
- config_name: main
  default: true
  data_files:
  - split: train
    path: main/train-*
  - split: test
    path: main/test-*
- config_name: other
  data_files: other.jsonl
---
# A dataset
"""


def parquet(rows):
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows), sink)
    return sink.getvalue().to_pybytes()


FILES = {
    "README.md": README,
    "main/train-0.parquet": parquet([{"question": "a", "answer": "1"}]),
    "main/train-1.parquet": parquet([{"question": "b", "answer": "2"}]),
    "main/test-0.parquet": parquet([{"question": "c", "answer": "3"}]),
    "other.jsonl": LINES,
}


@pytest.fixture
def hub(monkeypatch):
    with FakeHub() as made:
        monkeypatch.setenv("HF_ENDPOINT", made.url)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield made


def fetched(*source, wanted=lambda: True):
    version = actions.create_from_source(None, "from hub", HubSource(*source))
    found = fetch(version, wanted)
    assert {path.name for path in version.folder.iterdir()} == {files.SOURCE, files.PROGRESS}
    return found, version.folder / files.SOURCE


def test_a_split_of_two_files_becomes_one_source_at_a_commit(hub):
    repository = hub.add("Org/Rows", FILES, kind="datasets")
    found, source = fetched("Org/Rows", "", "train")
    assert [row["question"] for row in pq.read_table(source).to_pylist()] == ["a", "b"]
    assert found["source"] == {
        "id": "Org/Rows", "config": "main", "split": "train", "revision": "main",
        "commit": repository.commit, "files": ["main/train-0.parquet", "main/train-1.parquet"],
    }  # fmt: skip
    assert found["source_sha256"] == hashlib.sha256(source.read_bytes()).hexdigest()
    assert all(repository.commit in path for path in hub.asked("/resolve/"))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("train.jsonl", LINES),
        ("train.jsonl.gz", gzip.compress(LINES)),
        ("train.json", b"[" + LINES + b"]"),
        ("train.csv", b"question,answer\n1+1,2\n"),
        ("train.tsv", b"question\tanswer\n1+1\t2\n"),
    ],
)
def test_one_file_comes_as_it_is(hub, name, content):
    hub.add("Org/One", {name: content}, kind="datasets")
    _, source = fetched("Org/One")
    assert source.read_bytes() == content


def test_a_configuration_and_a_commit_are_chosen(hub):
    repository = hub.add("Org/Rows", FILES, kind="datasets")
    found, source = fetched("Org/Rows", "other", "train", repository.commit)
    assert source.read_bytes() == LINES
    assert (found["source"]["commit"], found["source"]["config"]) == (repository.commit, "other")


def test_a_hub_with_a_bad_moment_is_asked_again(hub):
    hub.add("Org/Flaky", {"train.jsonl": LINES}, kind="datasets", failures=2)
    _, source = fetched("Org/Flaky")
    assert source.read_bytes() == LINES


def test_a_renamed_dataset_is_found_and_told(hub):
    hub.add("Org/New", {"train.jsonl": LINES}, kind="datasets", renamed_from="Org/Old")
    found, _ = fetched("Org/Old")
    assert (found["source"]["id"], found["source"]["renamed_to"]) == ("Org/Old", "Org/New")


def test_a_gated_dataset_opens_with_the_token_which_stays_with_the_hub(hub, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "right")
    hub.add("Org/Gated", FILES, kind="datasets", token="right")
    _, source = fetched("Org/Gated")
    assert pq.read_table(source).num_rows == 2
    assert {token for _, path, token in hub.requests if path.startswith("/blobs/")} == {None}


@pytest.mark.parametrize(
    ("source", "told", "kind"),
    [
        (("Org/Missing",), "no dataset Org/Missing", "source"),
        (("Org/Gated",), "is gated", "source"),
        (("Org/Rows", "", "train", "v9"), "no revision v9", "refused"),
        (("Org/Rows", "wrong"), "no configuration", "refused"),
        (("Org/Rows", "main", "holdout"), "no split", "refused"),
        (("Org/Script",), "dataset scripts are never run", "refused"),
        (("Org/Broken",), "status 500", "source"),
        (("Org/Lies",), "the connection broke", "source"),
    ],
)
def test_what_can_not_be_had_is_told_in_words(hub, settings, source, told, kind):
    settings.DATASET_HUB_SILENCE_S = 1
    hub.add("Org/Rows", FILES, kind="datasets")
    hub.add("Org/Gated", FILES, kind="datasets", token="right")
    hub.add("Org/Script", {"rows.py": b"raise SystemExit", "README.md": b"# x"}, kind="datasets")
    hub.add("Org/Broken", FILES, kind="datasets", failures=100)
    hub.add("Org/Lies", {"train.parquet": b"x" * 100}, kind="datasets", sizes={"train.parquet": 200})
    with pytest.raises(ChildFailed) as failed:
        fetched(*source)
    assert told in str(failed.value)
    assert failed.value.kind == kind


@pytest.mark.parametrize("readme", [b"---\nconfigs: [*x\n---\n", b"---\n" + b"[" * 10_000 + b"\n---\n"])
def test_a_readme_that_can_not_be_read_is_told(hub, readme):
    hub.add("Org/Odd", {"README.md": readme, "train.jsonl": LINES}, kind="datasets")
    with pytest.raises(ChildFailed, match="README"):
        fetched("Org/Odd")


def test_a_split_over_the_limit_is_not_begun(hub, settings):
    settings.DATASET_MAX_BYTES = 10
    hub.add("Org/Large", {"train.jsonl": LINES}, kind="datasets")
    with pytest.raises(ChildFailed, match="this installation accepts at most"):
        fetched("Org/Large")
    assert not hub.asked("train.jsonl")


def test_a_fetch_that_nobody_wants_any_more_ends_in_the_middle(hub):
    hub.add("Org/Slow", {"train.parquet": b"x" * 10**6}, kind="datasets", stall_after=50_000)
    version = actions.create_from_source(None, "slow", HubSource("Org/Slow"))
    version.check_started_at = version.queued_at
    with pytest.raises(reader_process.ResultUnwanted):
        fetch(version, lambda: not hub.asked("/blobs/"))
    assert progress(version).of == 10**6
    told = json.loads((version.folder / files.PROGRESS).read_text())
    assert (told["stage"], told["of"]) == ("fetching", 10**6)


def test_the_child_has_no_secrets_of_ours(hub, monkeypatch):
    monkeypatch.setenv("REDIS_URL", "unix:///secret")
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    seen = {}
    real = reader_process.subprocess.Popen

    def popen(command, **options):
        seen.update(options["env"])
        return real(command, **options)

    monkeypatch.setattr(reader_process.subprocess, "Popen", popen)
    hub.add("Org/One", {"train.jsonl": LINES}, kind="datasets")
    fetched("Org/One")
    assert "REDIS_URL" not in seen
    assert seen["HTTPS_PROXY"] == "http://127.0.0.1:9"
