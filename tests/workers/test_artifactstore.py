"""Manifests that another host has written: none leads out of the checkpoint's folder, and each is refused in words."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from workers.artifactstore import ArtifactStore, Corrupted
from workers.contract.wire.artifacts import Store

NAME = "r1/1/checkpoints/checkpoint-1"
CONTENT = b"x"


class Files(dict[str, bytes]):
    """What the store has, as s3fs gives it."""

    def info(self, name: str) -> dict[str, int]:
        return {"size": len(self[name])}

    def cat_file(self, name: str) -> bytes:
        return self[name]

    def get_file(self, name: str, target: str) -> None:
        Path(target).write_bytes(self[name])


def download(folder: Path, manifest: bytes, *paths: str) -> Path:
    store = ArtifactStore(Store("http://127.0.0.1:1", "bucket", key="key", secret="secret"))
    stored = dict.fromkeys(paths, CONTENT) | {"manifest.json": manifest}
    store._files = Files({f"bucket/{NAME}/{path}": content for path, content in stored.items()})
    store.download(NAME, folder / "checkpoint-1", manifest_sha256=hashlib.sha256(manifest).hexdigest())
    return folder / "checkpoint-1"


def listing(*paths: str) -> bytes:
    sha256 = hashlib.sha256(CONTENT).hexdigest()
    return json.dumps({"files": [{"path": path, "size": 1, "sha256": sha256} for path in paths]}).encode()


def test_a_manifest_brings_its_files(tmp_path: Path) -> None:
    folder = download(tmp_path, listing("a", "global_step1/b"), "a", "global_step1/b")
    assert [(folder / name).read_bytes() for name in ("a", "global_step1/b")] == [CONTENT] * 2


@pytest.mark.parametrize("path", ["../x", "/etc/x", "a/../../x", "..", "", ".", "a/..", "a\0b"])
def test_a_path_stays_in_the_folder(tmp_path: Path, path: str) -> None:
    with pytest.raises(Corrupted, match="not a path inside a checkpoint"):
        download(tmp_path, listing("a", path), "a", path)
    assert list(tmp_path.rglob("*")) == []


@pytest.mark.parametrize(
    "manifest",
    [b"{}", b"[]", b"null", b"\xff", b'{"files":5}', b'{"files":[5]}', b'{"files":[{"path":5}]}', b"[" * 100_000],
    ids=range(8),
)
def test_what_is_no_manifest_is_refused(tmp_path: Path, manifest: Any) -> None:
    with pytest.raises(Corrupted, match="is not a manifest"):
        download(tmp_path, manifest)
