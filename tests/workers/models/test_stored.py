"""What a host announces of the models that lie on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.workers.models.test_inspection import a_model
from workers.models.stored import stored_models


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def test_folders_in_the_roots_are_named_by_their_path_with_their_facts(tmp_path: Path) -> None:
    folder = a_model(tmp_path / "models" / "tiny")
    (tmp_path / "models" / "notes").mkdir()
    [model] = stored_models((tmp_path / "models", tmp_path / "absent"))
    facts = {"model_type": "qwen2", "parameters": 872, "dtype": "BF16", "bytes": 1760}
    assert model == {"model": str(folder), **facts}


def test_whole_copies_in_the_cache_are_named_by_their_id(cache: Path) -> None:
    a_model(cache / "models--org--tiny" / "snapshots" / "abc")
    (cache / "models--org--tiny" / "refs").mkdir()
    (cache / "models--org--tiny" / "refs" / "main").write_text("abc")
    (cache / "models--org--partial" / "snapshots" / "abc").mkdir(parents=True)
    assert [model["model"] for model in stored_models(())] == ["org/tiny"]


def test_a_model_that_cannot_be_used_says_why(tmp_path: Path) -> None:
    (a_model(tmp_path / "models" / "cut") / "model.safetensors").write_bytes(b"1234")
    [model] = stored_models((tmp_path / "models",))
    assert "model.safetensors" in model["problem"]


def test_a_changed_model_is_read_again(tmp_path: Path) -> None:
    folder = a_model(tmp_path / "models" / "tiny")
    assert stored_models((tmp_path / "models",))[0]["model_type"] == "qwen2"
    config = (folder / "config.json").read_text().replace("qwen2", "llama")
    (folder / "config.json").write_text(config)
    assert stored_models((tmp_path / "models",))[0]["model_type"] == "llama"
