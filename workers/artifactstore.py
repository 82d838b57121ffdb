"""An S3-compatible store. A checkpoint is whole by its manifest of files with their SHA-256, written last.

An upload goes on file by file where an earlier one ended. A download is used only if all of it has the right hashes.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from http import HTTPStatus
from pathlib import Path, PurePosixPath
from typing import Any

from workers.contract.wire.artifacts import Store

MANIFEST = "manifest.json"
LONGEST_MANIFEST = 4 << 20
READ_S = 60.0
"""How long a store may take for one answer."""
_CONNECT_S = 10.0
_RETRIES = 2
_PARTS_AT_ONCE = 4
"""Of a large file; each part takes 50 MiB of memory."""
_INSUFFICIENT = "InsufficientStorage"
_FULL = {_INSUFFICIENT, "QuotaExceeded", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded"}
"""What stores call it: S3 itself is never full."""
_SHA256 = "sha256"
"""The name of the metadata of each stored file, by which a later upload knows it."""


class StoreError(Exception):
    """The store failed, or holds something else; a sentence for people."""


class Spoilt(StoreError):
    """The store holds something else than what was stored: it is not used."""


class FolderChanged(Exception):
    """The checkpoint went away while it was read."""


class ArtifactStore:
    """For processes and threads that may wait; each call raises StoreError."""

    def __init__(self, store: Store, *, read_s: float = READ_S) -> None:
        import s3fs

        self._bucket, self._prefix = store.bucket, store.prefix
        self._at = f"{store.bucket}/{store.prefix}" if store.prefix else store.bucket
        self._named = f"The store {store.endpoint}/{store.bucket}"
        when_required = dict.fromkeys(("request_checksum_calculation", "response_checksum_validation"), "when_required")
        self._files: Any = s3fs.S3FileSystem(
            key=store.key,
            secret=store.secret,
            endpoint_url=store.endpoint,
            client_kwargs={"region_name": store.region} if store.region else {},
            config_kwargs={
                "connect_timeout": _CONNECT_S,
                "read_timeout": read_s,
                "retries": {"max_attempts": _RETRIES},
                "s3": {"addressing_style": "path"},
                **when_required,  # not every S3-compatible store knows the newer checksums
            },
            max_concurrency=_PARTS_AT_ONCE,
            skip_instance_cache=True,
            use_listings_cache=False,
        )
        self._files.retries = _RETRIES

    def upload(self, folder: Path, name: str) -> str:
        """Store a checkpoint's folder under `name`; return the SHA-256 of its manifest. Raises FolderChanged."""
        files = []
        for path in sorted(_files_in(folder)):
            try:
                size, sha256 = path.stat().st_size, _sha256(path)
                relative = path.relative_to(folder).as_posix()
                self._put(path, f"{self._at}/{name}/{relative}", size, sha256)
            except FileNotFoundError as error:
                raise FolderChanged(str(error)) from error
            files.append({"path": relative, "size": size, "sha256": sha256})
        if not files:
            raise FolderChanged(f"{folder} is empty or gone")
        manifest = json.dumps({"files": files}, separators=(",", ":"), sort_keys=True).encode()
        with self._told():
            self._files.pipe_file(f"{self._at}/{name}/{MANIFEST}", manifest)
        return hashlib.sha256(manifest).hexdigest()

    def download(self, name: str, target: Path, *, manifest_sha256: str) -> None:
        """Fetch a checkpoint; `target` exists only once all of it was compared."""
        content = self._read(f"{self._at}/{name}/{MANIFEST}")
        if hashlib.sha256(content).hexdigest() != manifest_sha256:
            raise Spoilt(f"{self._named} holds another manifest of {name} than the one that was stored: not used.")
        part = target.with_name(f"{target.name}.part")
        for file in json.loads(content)["files"]:
            self._get(f"{self._at}/{name}/{file['path']}", part / _inside(file["path"]), file["sha256"])
        shutil.rmtree(target, ignore_errors=True)
        part.replace(target)

    def put(self, path: Path, name: str, *, size: int, sha256: str) -> None:
        """Store one file, unless it is there."""
        self._put(path, f"{self._at}/{name}", size, sha256)

    def get(self, name: str, to: Path, *, sha256: str) -> None:
        """Fetch one file; `to` exists only once it was compared."""
        part = to.with_name(f"{to.name}.part")
        self._get(f"{self._at}/{name}", part, sha256)
        part.replace(to)

    def remove_file(self, name: str) -> None:
        """What isn't there is removed already."""
        with self._told():
            self._files.call_s3("delete_object", Bucket=self._bucket, Key=self._key(name))

    def remove(self, name: str) -> None:
        """What isn't there is removed already."""
        with self._told():
            if self._files.exists(f"{self._at}/{name}"):
                self._files.rm(f"{self._at}/{name}", recursive=True)

    def _key(self, name: str) -> str:
        return f"{self._prefix}/{name}" if self._prefix else name

    def _put(self, path: Path, to: str, size: int, sha256: str) -> None:
        with self._told():
            if self._has(to, size, sha256):
                return
            self._files.put_file(str(path), to, Metadata={_SHA256: sha256})
            if not self._has(to, size, sha256):
                raise StoreError(f"{self._named} doesn't hold {path.name} as it was sent.")

    def _has(self, to: str, size: int, sha256: str) -> bool:
        try:
            return bool(self._files.info(to)["size"] == size and self._files.metadata(to).get(_SHA256) == sha256)
        except FileNotFoundError:
            return False

    def _get(self, source: str, to: Path, sha256: str) -> None:
        if to.is_file() and _sha256(to) == sha256:
            return  # of a download that was cut off
        to.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._told():
            self._files.get_file(source, str(to))
        if _sha256(to) != sha256:
            to.unlink()
            raise Spoilt(f"{source} in the store has another hash than when it was stored: it is not used.")

    def _read(self, path: str) -> bytes:
        with self._told():
            if self._files.info(path)["size"] > LONGEST_MANIFEST:
                raise Spoilt(f"{path} in the store is no manifest: it is too long.")
            return bytes(self._files.cat_file(path))

    def _told(self) -> _Told:
        return _Told(self._named)


class _Told:
    """Turns what the libraries raise into a StoreError; a missing local file stays what it is."""

    def __init__(self, named: str) -> None:
        self._named = named

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None or isinstance(error, StoreError) or not isinstance(error, Exception):
            return
        if isinstance(error, FileNotFoundError) and error.filename and os.path.isabs(str(error.filename)):
            return
        raise StoreError(f"{self._named} {_words(error)}") from error


def _words(error: Exception) -> str:
    answer = _answer(error)
    said = " ".join(str(answer.get("Error", {}).get("Message") or error).split())[:300] or type(error).__name__
    said, code = said.rstrip("."), _code(answer)
    name = type(error).__name__
    if isinstance(error, PermissionError):
        return f"refuses the keys: {said}. An admin can enter others under Settings, Secrets."
    if code in _FULL:
        return f"is full: {said}. Free some of it, or let it grow."
    if isinstance(error, FileNotFoundError):
        return f"does not have the bucket or the file: {said}."
    if "Timeout" in name or isinstance(error, TimeoutError):
        return f"did not answer in time: {said}."
    if "EndpointConnection" in name or isinstance(error, ConnectionError):
        return f"can't be reached: {said}."
    return f"failed: {said}."


def _answer(error: Exception) -> dict[str, Any]:
    """The store's, if it has given one."""
    answer = getattr(error.__cause__ or error, "response", None)
    return answer if isinstance(answer, dict) else {}


def _code(answer: dict[str, Any]) -> str:
    status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return _INSUFFICIENT if status == HTTPStatus.INSUFFICIENT_STORAGE else str(answer.get("Error", {}).get("Code", ""))


def _files_in(folder: Path) -> list[Path]:
    """Links are left out: what they lead to is not the checkpoint's."""
    found = (Path(root) / name for root, _, names in os.walk(folder) for name in names)
    return [path for path in found if not path.is_symlink()]


def _inside(path: str) -> PurePosixPath:
    relative = PurePosixPath(path)
    if relative.is_absolute() or ".." in relative.parts or not relative.parts:
        raise Spoilt(f"The manifest names {path!r}, which is no path inside a checkpoint.")
    return relative


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
