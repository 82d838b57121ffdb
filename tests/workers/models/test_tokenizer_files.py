"""The tokenizer that a host finds beside a model: in a folder or on the hub, bounded, as it is."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.fake_hub import FakeHub, files_of
from tests.workers.models.test_inspection import PLAIN, a_model
from workers.contract.wire.tokenizers import sizes_in
from workers.models import tokenizer_files
from workers.models.hub import Hub
from workers.models.tokenizer_files import TokenizerFiles, collect


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def fake() -> Iterator[FakeHub]:
    with FakeHub() as fake:
        yield fake


def test_a_folders_files_are_taken_as_they_are(tmp_path: Path) -> None:
    folder = a_model(tmp_path / "m")
    (folder / "chat_template.jinja").write_bytes(b"{{ 1 }}\r\n")
    found = collect(str(folder), (tmp_path,))
    names = ["chat_template.jinja", "tokenizer.json", "tokenizer_config.json"]
    assert dict(found.files) == {name: (folder / name).read_bytes() for name in names}
    body = b"".join(found.body())
    assert found.summary() == {
        "sha256": hashlib.sha256(body).hexdigest(), "bytes": len(body), "names": names, "note": ""
    }  # fmt: skip
    head, _, rest = body.partition(b"\n")
    assert list(sizes_in(head + b"\n")) == names
    assert rest == b"".join(found.files[name] for name in names)


def test_the_same_files_have_the_same_checksum_wherever_they_are(fake: FakeHub, tmp_path: Path) -> None:
    folder = a_model(tmp_path / "m", **PLAIN)
    fake.add("Org/Model", files_of(folder))
    told = collect("Org/Model", (), Hub(fake.url))
    assert told == collect(str(folder), (tmp_path,))
    assert not fake.asked("model.safetensors")


def test_a_gated_models_files_come_with_the_hosts_token(fake: FakeHub, tmp_path: Path) -> None:
    fake.add("Org/Gated", files_of(a_model(tmp_path / "m", **PLAIN)), token="right")
    assert collect("Org/Gated", (), Hub(fake.url, "right")).files
    refused = collect("Org/Gated", (), Hub(fake.url))
    assert (refused.files, "gated" in refused.note) == ({}, True)


def test_sentencepiece_alone_is_said_in_words(tmp_path: Path) -> None:
    folder = a_model(tmp_path / "m")
    (folder / "tokenizer.json").rename(folder / "tokenizer.model")
    found = collect(str(folder), (tmp_path,))
    assert list(found.files) == ["tokenizer_config.json"]
    assert "only SentencePiece's file" in found.note


def test_too_large_files_are_left_where_they_are(
    fake: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokenizer_files, "FILES_LIMIT", 50)
    folder = a_model(tmp_path / "m", **PLAIN)
    fake.add("Org/Model", files_of(folder))
    lying = fake.add("Org/Lying", files_of(folder))
    monkeypatch.setattr(type(lying), "blob", lambda self, name: {"oid": "0" * 40, "size": 1})
    for found in (collect(str(folder), (tmp_path,)), collect("Org/Lying", (), Hub(fake.url))):
        assert (found.files, found.sha256) == ({}, "")
        assert "larger" in found.note or "limit is 50" in found.note


def test_a_link_out_of_the_roots_brings_nothing(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("key")
    folder = a_model(tmp_path / "models" / "m")
    (folder / "chat_template.jinja").symlink_to(secret)
    found = collect(str(folder), (tmp_path / "models",))
    assert found.files == {}
    assert "link" in found.note


def test_a_hub_that_is_away_is_a_note_and_no_error(fake: FakeHub, tmp_path: Path) -> None:
    fake.add("Org/Flaky", files_of(a_model(tmp_path / "m", **PLAIN)), failures=9)
    found = collect("Org/Flaky", (), Hub(fake.url))
    assert (found.summary()["sha256"], found.files) == ("", {})
    assert "could not be fetched" in found.note


def test_what_is_told_can_travel_as_json() -> None:
    assert json.loads(json.dumps(TokenizerFiles({}, "why").summary()))["note"] == "why"
