"""What a host says of a model that only the hub has, and where it asks nobody."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.client import HTTPMessage
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.fake_hub import FakeHub, files_of
from tests.workers.models.test_inspection import PLAIN, TENSORS, a_model, safetensors
from workers.models import hub as asking
from workers.models.hub import Hub
from workers.models.inspection import inspect
from workers.models.tokenizer_files import collect
from workers.outbound import Response


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def fake() -> Iterator[FakeHub]:
    with FakeHub() as fake:
        yield fake


@pytest.fixture
def files(tmp_path: Path) -> dict[str, bytes]:
    return files_of(a_model(tmp_path / "source", **PLAIN))


def ask(fake: FakeHub, model: str, token: str | None = None) -> dict[str, Any]:
    return inspect(model, (), Hub(fake.url, token))


def sharded(folder: Path, **config: Any) -> dict[str, bytes]:
    made = a_model(folder, **PLAIN | config)
    (made / "model.safetensors").unlink()
    safetensors(made / "a.safetensors", TENSORS)
    safetensors(made / "b.safetensors", {"model.layers.1.self_attn.v_proj.weight": ("BF16", [8, 8])})
    weight_map = dict.fromkeys(TENSORS, "a.safetensors") | {"model.layers.1.self_attn.v_proj.weight": "b.safetensors"}
    index = {"metadata": {"total_parameters": 936}, "weight_map": weight_map}
    (made / "model.safetensors.index.json").write_text(json.dumps(index))
    return files_of(made)


def test_the_hub_tells_the_same_facts_as_a_copy_would(fake: FakeHub, files: dict[str, bytes], tmp_path: Path) -> None:
    fake.add("Org/Model", {**files, "pytorch_model.bin": b"left where it is"})
    told, local = ask(fake, "Org/Model"), inspect(str(tmp_path / "source"), (tmp_path,))
    assert (told["ok"], told["hub"], told["source"], told["gated"]) == (True, True, "hub", False)
    assert told["bytes"] == sum(map(len, files.values()))
    assert told["free_bytes"] > 0
    apart = {"hub", "source", "path", "bytes"}
    assert {name: told[name] for name in local.keys() - apart} == {name: local[name] for name in local.keys() - apart}


def test_the_revision_that_is_asked_for_is_inspected(fake: FakeHub, files: dict[str, bytes], tmp_path: Path) -> None:
    older = files_of(a_model(tmp_path / "older", **PLAIN | {"max_position_embeddings": 77}))
    fake.add("Org/Model", files, revisions={"refs/pr/1": older})
    hub = Hub(fake.url)
    assert inspect("Org/Model", (), hub, revision="refs/pr/1")["context_length"] == 77
    assert inspect("Org/Model", (), hub)["context_length"] != 77
    assert "no revision v9 on" in inspect("Org/Model", (), hub, revision="v9")["error"]
    assert "has no revision" in inspect("Org/Model", (), hub, revision="../../main")["error"]
    assert "has no revision" in inspect(str(tmp_path / "older"), (tmp_path,), hub, revision="main")["error"]
    assert collect("Org/Model", (), hub, revision="v9").note.endswith(f"no revision v9 on {fake.url}.")


def test_of_a_sharded_model_the_first_header_and_the_index_are_read(fake: FakeHub, tmp_path: Path) -> None:
    fake.add("Org/Model", sharded(tmp_path / "m", num_hidden_layers=2))
    told = ask(fake, "Org/Model")
    assert (told["parameters"], told["linear_modules"]) == (936, ["q_proj", "v_proj"])
    assert len(fake.asked("/blobs/")) == 1


def test_a_config_that_lies_is_noticed_on_the_hub_already(fake: FakeHub, tmp_path: Path) -> None:
    fake.add("Org/Wide", files_of(a_model(tmp_path / "wide", **PLAIN | {"hidden_size": 64})))
    fake.add("Org/Deep", sharded(tmp_path / "deep", num_hidden_layers=80))
    assert "the embedding is 100 × 8" in ask(fake, "Org/Wide")["error"]
    assert "it says 80 layers, but there are 2" in ask(fake, "Org/Deep")["error"]


def test_a_gated_model_is_told_apart_from_a_missing_one(fake: FakeHub, files: dict[str, bytes]) -> None:
    fake.add("Org/Gated", files, token="right")
    closed = ask(fake, "Org/Gated")
    assert (closed["ok"], closed["gated"]) == (False, True)
    assert f"Accept its terms at {fake.url}/Org/Gated, and give the host a token" in closed["error"]
    assert "the account of this host's token may not download it" in ask(fake, "Org/Gated", "wrong")["error"]
    opened = ask(fake, "Org/Gated", "right")
    assert (opened["ok"], opened["gated"]) == (True, True)
    assert {token for _, path, token in fake.requests if path.startswith("/blobs/")} == {None}
    assert "There is no model Org/Nothing" in ask(fake, "Org/Nothing")["error"]


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["config.json", "pytorch_model.bin"], "pickles"),
        (["config.json", "m.gguf"], "GGUF"),
        (["README.md"], "no config"),
    ],
)
def test_a_repository_without_weights_to_train_is_refused(fake: FakeHub, names: list[str], says: str) -> None:
    fake.add("Org/Model", dict.fromkeys(names, b"{}"))
    assert says in ask(fake, "Org/Model")["error"]


def test_a_hub_that_is_away_says_nothing_against_the_model() -> None:
    told = inspect("Org/Model", (), Hub("http://127.0.0.1:9"))
    assert (told["ok"], told["hub"], told["unreachable"]) == (True, True, True)
    assert "http://127.0.0.1:9" in told["why"]
    assert not told["why"].endswith(".")  # it stands within sentences


@pytest.mark.parametrize("endpoint", ["", "nonsense", "http://[", "ftp://x", "http://127.0.0.1:99999"])
def test_an_endpoint_that_is_none_is_a_hub_that_is_away(endpoint: str) -> None:
    assert inspect("Org/Model", (), Hub(endpoint))["unreachable"] is True


def test_a_failing_hub_is_away(fake: FakeHub, files: dict[str, bytes]) -> None:
    fake.add("Org/Model", files, failures=1)
    assert "status 500" in ask(fake, "Org/Model")["why"]


def test_answers_that_are_too_large_or_no_json_are_refused(
    fake: FakeHub, files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.add("Org/Broken", {**files, "config.json": b"<html>"})
    assert "config.json is not valid JSON" in ask(fake, "Org/Broken")["error"]
    fake.add("Org/Large", {**files, "config.json": b'{"a": "' + b"x" * 5_000_000 + b'"}'})
    monkeypatch.setattr(asking, "JSON_LIMIT", 1 << 20)
    assert "larger than 1 MiB" in ask(fake, "Org/Large")["error"]


def test_a_header_that_comes_too_slowly_is_done_without(
    fake: FakeHub, files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "HEADER_TIMEOUT_S", 0.5)
    fake.add("Org/Model", files, stall_after=4)
    told = ask(fake, "Org/Model")
    assert (told["ok"], told["parameters"], told["hidden"]) == (True, None, 8)


def test_a_host_that_is_kept_off_the_hub_says_so(fake: FakeHub) -> None:
    hub = Hub.of(None, {"HF_ENDPOINT": fake.url, "HF_HUB_OFFLINE": "1"})
    assert "HF_HUB_OFFLINE" in inspect("Org/Model", (), hub)["error"]
    assert fake.requests == []


def test_a_copy_that_is_whole_is_used_and_one_that_is_not_is_asked_for(
    fake: FakeHub, files: dict[str, bytes], tmp_path: Path
) -> None:
    fake.add("Org/Model", files)
    folder = tmp_path / "cache" / "models--Org--Model"
    made = a_model(folder / "snapshots" / "abc", **PLAIN)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("abc")
    assert ask(fake, "Org/Model")["source"] == "cache"
    assert fake.requests == []
    (made / "model.safetensors").unlink()
    assert ask(fake, "Org/Model")["source"] == "hub"


def test_the_token_is_the_hosts_own_else_of_whoever_signed_in_there(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("signed in\n")
    (tmp_path / "own").write_text("own\n")
    (tmp_path / "odd").write_text("sch\u00f6n")
    env = {"HF_HOME": str(tmp_path)}
    assert Hub.of(tmp_path / "own", env).token == "own"
    assert Hub.of(tmp_path / "nothing", env).token == "signed in"
    assert Hub.of(tmp_path / "odd", {"HF_HOME": "/nowhere"}).token is None


@pytest.mark.parametrize(
    ("location", "says"),
    [
        ("http://hub.example/x", "redirects from https to http"),
        ("/x", "more than 5 times"),
        ("https://[", "Invalid IPv6"),
    ],
)
def test_a_redirect_leads_from_https_to_https_and_somewhere(
    monkeypatch: pytest.MonkeyPatch, location: str, says: str
) -> None:
    headers = HTTPMessage()
    headers["Location"] = location
    monkeypatch.setattr(asking.outbound, "send", lambda *_, **__: Response(302, headers, b""))
    assert says in inspect("Org/Model", (), Hub("https://hub.example"))["why"]


def test_the_hub_is_reached_through_the_environments_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", "mirror.example")
    urls = ("https://huggingface.co/x", "https://mirror.example/x", "http://127.0.0.1/x")
    assert [asking._proxy_for(url) for url in urls] == ["http://proxy.example:3128", "", ""]
