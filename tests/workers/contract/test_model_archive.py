"""A model's files as a tar: what goes in, and that any part of its bytes can be read again."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from pathlib import Path

import pytest

from workers.contract.wire.model_archive import ArchiveError, ModelArchive

FILES = {"model.safetensors": b"w" * 5000, "config.json": b"{}", "tokenizer.json": b"[]", "chat_template.jinja": b"x"}
LEFT_OUT = ("optimizer.pt", "scheduler.pt", "rng_state.pth", "training_args.bin", "trainer_state.json", "README.md")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "checkpoint-3"
    made.mkdir()
    for name, content in {**FILES, **dict.fromkeys(LEFT_OUT, b"not of the model")}.items():
        (made / name).write_bytes(content)
    (made / "secret.json").symlink_to("/etc/passwd")
    return made


def archive(folder: Path) -> ModelArchive:
    return ModelArchive(folder, name="sums-step-3", card="# A card\n")


def whole(made: ModelArchive, part: int) -> bytes:
    return b"".join(made.read(at, part) for at in range(0, made.size, part))


def test_it_holds_the_models_own_files_and_the_card(folder: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(archive(folder).read(0, 1 << 20))) as tar:
        names = tar.getnames()
        card = tar.extractfile("sums-step-3/README.md")
        weights = tar.extractfile("sums-step-3/model.safetensors")
        assert card is not None
        assert weights is not None
        assert (card.read(), weights.read()) == (b"# A card\n", FILES["model.safetensors"])
    assert names == sorted(f"sums-step-3/{name}" for name in [*FILES, "README.md"])


def test_its_bytes_are_the_same_at_any_part_and_any_time(folder: Path) -> None:
    first = archive(folder)
    for path in folder.iterdir():
        if not path.is_symlink():
            os.utime(path, (1, 1))
            path.chmod(0o600)
    sums = {hashlib.sha256(whole(archive(folder), part)).hexdigest() for part in (97, 4096, 1 << 20)}
    assert sums == {hashlib.sha256(whole(first, 1000)).hexdigest()}
    assert len(whole(first, 97)) == first.size


def test_what_is_no_model_or_changes_is_said(folder: Path) -> None:
    made = archive(folder)
    (folder / "model.safetensors").write_bytes(b"short")
    with pytest.raises(ArchiveError, match=r"model\.safetensors was truncated while it was read"):
        whole(made, 4096)
    (folder / "model.safetensors").unlink()
    with pytest.raises(ArchiveError, match="no safetensors weights"):
        archive(folder)
