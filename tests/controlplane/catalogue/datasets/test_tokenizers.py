"""Tokenizers that hosts bring: kept by their checksum, whole or not at all, and by that host alone."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone

from controlplane.catalogue.datasets import tokenizers
from controlplane.catalogue.datasets.models import Tokenizer
from controlplane.catalogue.hardware import host_commands
from controlplane.catalogue.hardware.models import Host, ModelInspection
from runs.pages.hosts import tokenizer_views
from tests.host_tokens import host_token
from workers.contract.wire.tokenizers import TOKENIZER_LIMIT, NoTokenizer, head_of, sizes_in

pytestmark = pytest.mark.django_db

FILES = {"tokenizer.json": b'{"model": {}}', "tokenizer_config.json": b"{}", "chat_template.jinja": b"{{ messages }}\n"}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(settings, "DATA_DIR", tmp_path)
    return tmp_path / "tokenizers"


def body_of(files: dict[str, bytes]) -> bytes:
    return head_of({name: len(content) for name, content in files.items()}) + b"".join(
        files[name] for name in sorted(files)
    )


def answered(body: bytes = b"", *, host: str = "box", model: str = "Org/Model", **told: Any) -> ModelInspection:
    files = {"sha256": hashlib.sha256(body).hexdigest(), "note": ""} | told
    answer = {"ok": True, "chat_template": True, "tokenizer_files": files}
    row = Host.objects.get_or_create(name=host)[0]
    return ModelInspection.objects.create(host=row, model=model, answer=answer, answered_at=timezone.now())


def send(asked: ModelInspection, body: bytes, *, host: str = "box", token: str | None = None) -> HttpResponse:
    headers = {"Authorization": f"Bearer {host_token(host) if token is None else token}"}
    path = f"/api/hosts/{host}/inspections/{asked.pk}/tokenizer"
    return Client(enforce_csrf_checks=True).post(path, body, content_type="application/octet-stream", headers=headers)


def test_what_a_host_brings_is_kept_by_its_checksum(folder: Path) -> None:
    asked = answered(body_of(FILES))
    assert tokenizers.is_missing(asked)
    answer = send(asked, body_of(FILES))
    known = Tokenizer.objects.get()
    assert answer.json() == {"ok": True, "sha256": known.sha256}
    assert (known.model, known.has_chat_template, known.bytes) == ("Org/Model", True, len(body_of(FILES)))
    assert {path.name: path.read_bytes() for path in known.folder.iterdir()} == FILES
    assert not tokenizers.is_missing(asked)
    assert tokenizers.choices() == [known] == [tokenizers.of_model("Org/Model")]
    assert list(folder.iterdir()) == [known.folder]


def test_the_same_again_is_nothing(folder: Path) -> None:
    asked = answered(body_of(FILES))
    send(asked, body_of(FILES))
    kept = Tokenizer.objects.get().created_at
    again = answered(body_of(FILES), host="other", model="Org/Sister")
    assert not tokenizers.is_missing(again)
    assert send(again, b"nonsense", host="other").status_code == 200
    assert Tokenizer.objects.get().created_at == kept
    assert tokenizers.of_model("Org/Sister") == Tokenizer.objects.get()


def test_one_whose_files_were_lost_is_wanted_and_kept_again() -> None:
    asked = answered(body_of(FILES))
    send(asked, body_of(FILES))
    known = Tokenizer.objects.get()
    for path in known.folder.iterdir():
        path.unlink()
    known.folder.rmdir()
    assert tokenizers.choices() == []
    assert tokenizers.is_missing(asked)
    assert send(asked, body_of(FILES)).status_code == 200
    assert tokenizers.choices() == [known]


BROKEN = {
    "another body than was named": body_of({**FILES, "tokenizer.json": b'{"model": []}'}),
    "cut off": body_of(FILES)[:-3],
    "something behind it": body_of(FILES) + b"x",
    "no head": b"",
    "a head that is none": b"[1]\n",
    "a head without an end": head_of({"tokenizer.json": 3}).strip() + b"{}" * 2000,
    "a name that leads out": b'{"files": [["../x", 1]]}\nx',
    "a file twice": b'{"files": [["tokenizer.json", 0], ["tokenizer.json", 1]]}\nx',
    "a size below nothing": b'{"files": [["tokenizer.json", -1]]}\n',
}


def test_a_body_that_is_not_the_named_one_leaves_nothing(folder: Path, subtests: pytest.Subtests) -> None:
    for name in BROKEN:
        with subtests.test(name=name):
            answer = send(answered(body_of(FILES)), BROKEN[name])
            assert answer.status_code == 400
            assert set(answer.json()["error"]) == {"what", "where", "fix"}
            assert list(folder.iterdir()) == []
            assert not Tokenizer.objects.exists()


def test_more_than_the_limit_is_refused_by_its_first_line() -> None:
    with pytest.raises(NoTokenizer, match="64 MiB"):
        sizes_in(head_of({"tokenizer.json": TOKENIZER_LIMIT}))


def test_only_the_host_that_was_asked_brings_it() -> None:
    asked, body = answered(body_of(FILES)), body_of(FILES)
    Host.objects.create(name="other")
    assert send(asked, body, token="").status_code == 401
    assert send(asked, body, token="wrong").status_code == 403
    assert send(asked, body, token=host_token("other")).status_code == 403
    assert send(asked, body, host="other").status_code == 403
    assert not Tokenizer.objects.exists()


@pytest.mark.parametrize("sha256", ["", None, "../../etc", "A" * 64, 7])
def test_an_answer_that_names_no_tokenizer_brings_none(sha256: object, folder: Path) -> None:
    asked = answered(sha256=sha256)
    assert not tokenizers.is_missing(asked)
    assert send(asked, body_of(FILES)).status_code == 403
    assert not folder.exists()


def test_the_host_is_told_whether_its_tokenizer_is_wanted() -> None:
    named = {"sha256": hashlib.sha256(body_of(FILES)).hexdigest()}
    host = Host.objects.create(name="box")
    asked = ModelInspection.objects.create(host=host, model="m")
    headers = {"Authorization": f"Bearer {host_token('box')}"}
    for answer, wants in (({"ok": True, "tokenizer_files": named}, True), ({"ok": False}, True)):
        told = Client().post(f"/api/inspections/{asked.pk}", {"answer": answer}, "application/json", headers=headers)
        assert told.json() == {"ok": True, "want_tokenizer": wants}  # the first answer stays


def test_what_a_dead_process_left_is_taken_away(folder: Path) -> None:
    stale, fresh = folder / "incoming-1", folder / "incoming-2"
    stale.mkdir(parents=True)
    fresh.mkdir()
    os.utime(stale, (0, 0))
    send(answered(body_of(FILES)), body_of(FILES))
    assert sorted(path.name for path in folder.iterdir()) == sorted([Tokenizer.objects.get().sha256, fresh.name])


def test_a_host_is_asked_again_only_for_a_tokenizer_that_is_not_here(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[list[Any]] = []
    monkeypatch.setattr(host_commands, "send", lambda host, task, arguments: sent.append(arguments))
    known = answered(body_of(FILES))
    asked = tokenizer_views.ask(known.host, "Org/Model")
    assert sent == [[asked.pk, "Org/Model", ""]]
    send(known, body_of(FILES))
    assert tokenizer_views.ask(known.host, "Org/Model") == known
    assert len(sent) == 1


def test_the_hosts_word_on_a_tokenizer_that_can_not_count_is_kept() -> None:
    assert tokenizers.note(answered(note="Only sentencepiece.")) == "Only sentencepiece."
    assert tokenizers.note(ModelInspection(answer=None)) == ""
