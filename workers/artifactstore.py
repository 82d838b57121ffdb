"""Client of an S3-compatible artifact store, which has the store's keys or a function that signs each request.

A checkpoint is complete once its manifest is stored, which lists its files with their SHA-256 hashes. An upload
continues, file by file, where an interrupted one ended. A download is used only if all hashes match.
"""

import asyncio
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from workers.contract.wire.artifacts import Store, StoreRequest

MANIFEST = "manifest.json"
MAX_MANIFEST_BYTES = 4 << 20
READ_S = 60.0
_CONNECT_S = 10.0
_RETRIES = 2
_MAX_CONCURRENT_PARTS = 4
"""Maximum number of parts of a large file that are sent at once; each takes 50 MiB of memory."""
_FULL_CODES = {"InsufficientStorage", "QuotaExceeded", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded"}
DEFAULT_REGION = "us-east-1"
_SHA256 = "sha256"
"""Metadata key that holds each stored file's hash, by which a later upload recognises the file."""
SIGNED_FOR_S = 900
"""Time within which a signed request must begin."""
SIGNED_HEADERS = frozenset({f"x-amz-meta-{_SHA256}"})
"""S3 headers that this client sends with some requests and that the signature covers."""

Signer = Callable[[StoreRequest], str]
"""Function that returns the signed URL of a request."""


class StoreError(Exception):
    """Error for a store that failed or has wrong content. The message is a sentence for people."""


class Corrupted(StoreError):
    """Error for content that differs from what was stored and is therefore not used."""


class FolderChanged(Exception):
    """Error for a checkpoint that disappeared while it was being read."""


def signed_url(store: Store, request: StoreRequest) -> str:
    """Sign a request with the store's keys, and return its URL, which is valid for SIGNED_FOR_S."""
    from botocore.auth import S3SigV4QueryAuth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    url = f"{store.endpoint}{request.path}{'?' if request.query else ''}{request.query}"
    signed_request = AWSRequest(request.method, url, headers=request.headers)
    signer = S3SigV4QueryAuth(
        Credentials(store.key, store.secret), "s3", store.region or DEFAULT_REGION, expires=SIGNED_FOR_S
    )
    signer.add_auth(signed_request)
    return str(signed_request.url)


class ArtifactStore:
    """Client of one store. Its methods wait for the store, and raise StoreError.

    `sign`: a function that signs each request, for a client without the keys. Its own exceptions are raised unchanged.
    """

    def __init__(self, store: Store, *, read_s: float = READ_S, sign: Signer | None = None) -> None:
        import s3fs

        self._bucket, self._prefix = store.bucket, store.prefix
        self._root = f"{store.bucket}/{store.prefix}" if store.prefix else store.bucket
        self._title = f"The store {store.endpoint}/{store.bucket}"
        when_required = dict.fromkeys(("request_checksum_calculation", "response_checksum_validation"), "when_required")
        self._files: Any = s3fs.S3FileSystem(
            anon=sign is not None,
            key=store.key or None,
            secret=store.secret or None,
            endpoint_url=store.endpoint,
            client_kwargs={"region_name": store.region} if store.region else {},
            config_kwargs={
                "connect_timeout": _CONNECT_S,
                "read_timeout": read_s,
                "retries": {"max_attempts": _RETRIES},
                "s3": {"addressing_style": "path"},
                **when_required,  # not every S3-compatible store knows the newer checksums
            },
            max_concurrency=_MAX_CONCURRENT_PARTS,
            skip_instance_cache=True,
            use_listings_cache=False,
        )
        self._files.retries = _RETRIES
        self._unsigned: Exception | None = None
        if sign is not None:
            self._sign, self._one_by_one = sign, asyncio.Lock()
            self._files.connect()
            self._files.s3.meta.events.register("request-created.s3", self._sign_request)

    async def _sign_request(self, request: Any, **_: Any) -> None:
        url = urlsplit(request.url)
        headers = {name.lower(): value for name, value in request.headers.items() if name.lower().startswith("x-amz-")}
        store_request = StoreRequest(request.method, url.path, url.query, headers)
        try:
            async with self._one_by_one:
                request.url = await asyncio.to_thread(self._sign, store_request)
        except Exception as error:
            self._unsigned = error
            raise

    def upload(self, folder: Path, name: str) -> str:
        """Store a checkpoint's folder under `name`, and return the SHA-256 of its manifest. Raises FolderChanged if the
        folder is empty or disappears."""
        files = []
        for path in sorted(_files_in(folder)):
            try:
                size, sha256 = path.stat().st_size, _sha256(path)
                relative = path.relative_to(folder).as_posix()
                self.put(path, f"{name}/{relative}", size=size, sha256=sha256)
            except FileNotFoundError as error:
                raise FolderChanged(str(error)) from error
            files.append({"path": relative, "size": size, "sha256": sha256})
        if not files:
            raise FolderChanged(f"{folder} is empty or missing")
        manifest = json.dumps({"files": files}, separators=(",", ":"), sort_keys=True).encode()
        with self._store_errors():
            self._files.pipe_file(f"{self._root}/{name}/{MANIFEST}", manifest)
        return hashlib.sha256(manifest).hexdigest()

    def download(self, name: str, target: Path, *, manifest_sha256: str) -> None:
        """Fetch a checkpoint into `target`, which exists only once everything is verified. Raises Corrupted if the
        manifest or a file differs from what was stored."""
        manifest = f"{self._root}/{name}/{MANIFEST}"
        with self._store_errors():
            if self._files.info(manifest)["size"] > MAX_MANIFEST_BYTES:
                raise Corrupted(f"{manifest} in the store is not a manifest: it is too long.")
            content = bytes(self._files.cat_file(manifest))
        if hashlib.sha256(content).hexdigest() != manifest_sha256:
            raise Corrupted(f"{self._title} has a different manifest for {name} than was stored, so it is not used.")
        part = target.with_name(f"{target.name}.part")
        for path, sha256 in _files_of(content, manifest):
            self._get(f"{self._root}/{name}/{path}", part / path, sha256)
        shutil.rmtree(target, ignore_errors=True)
        part.replace(target)

    def put(self, path: Path, name: str, *, size: int, sha256: str) -> None:
        """Store one file, unless the store already has it."""
        target = f"{self._root}/{name}"
        with self._store_errors():
            if self._has(target, size, sha256):
                return
            self._files.put_file(str(path), target, Metadata={_SHA256: sha256})
            if not self._has(target, size, sha256):
                raise StoreError(f"{self._title} doesn't contain {path.name} as it was sent.")

    def get(self, name: str, target: Path, *, sha256: str) -> None:
        """Fetch one file to the path `target`, which exists only once the file is verified. Raises Corrupted if it
        differs from what was stored."""
        part = target.with_name(f"{target.name}.part")
        self._get(f"{self._root}/{name}", part, sha256)
        part.replace(target)

    def remove_file(self, name: str) -> None:
        """Delete one file, if it exists."""
        key = f"{self._prefix}/{name}" if self._prefix else name
        with self._store_errors():
            self._files.call_s3("delete_object", Bucket=self._bucket, Key=key)

    def remove(self, name: str) -> None:
        """Delete a checkpoint, if it exists."""
        with self._store_errors():
            names = self._files.find(f"{self._root}/{name}")
        # One by one: a request for many names has them in its body, which no signed URL covers.
        for each in names:
            self.remove_file(each.removeprefix(f"{self._root}/"))

    def _has(self, name: str, size: int, sha256: str) -> bool:
        try:
            return bool(self._files.info(name)["size"] == size and self._files.metadata(name).get(_SHA256) == sha256)
        except FileNotFoundError:
            return False

    def _get(self, source: str, target: Path, sha256: str) -> None:
        if target.is_file() and _sha256(target) == sha256:
            return  # from an interrupted download
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._store_errors():
            self._files.get_file(source, str(target))
        if _sha256(target) != sha256:
            target.unlink()
            raise Corrupted(f"{source} in the store has a different hash than when it was stored, so it is not used.")

    @contextmanager
    def _store_errors(self) -> Iterator[None]:
        """Convert the libraries' errors into StoreError, except the FileNotFoundError for a local file."""
        try:
            yield
        except StoreError:
            raise
        except Exception as error:  # s3fs and its libraries raise many types
            if error is self._unsigned:
                raise
            if isinstance(error, FileNotFoundError) and error.filename and os.path.isabs(str(error.filename)):
                raise
            raise StoreError(f"{self._title} {_sentence(error)}") from error


def _sentence(error: Exception) -> str:
    response = getattr(error.__cause__ or error, "response", None)
    response = response if isinstance(response, dict) else {}
    detail = " ".join(str(response.get("Error", {}).get("Message") or error).split())[:300] or type(error).__name__
    detail, name = detail.rstrip("."), type(error).__name__
    if isinstance(error, PermissionError):
        return f"rejects the keys: {detail}. An admin can enter other keys under Settings, Secrets."
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    if status == HTTPStatus.INSUFFICIENT_STORAGE or response.get("Error", {}).get("Code") in _FULL_CODES:
        return f"is full: {detail}. Free some space, or enlarge it."
    if isinstance(error, FileNotFoundError):
        return f"doesn't have the bucket or the file: {detail}."
    if "Timeout" in name or isinstance(error, TimeoutError):
        return f"didn't respond in time: {detail}."
    if "EndpointConnection" in name or isinstance(error, ConnectionError):
        return f"can't be reached: {detail}."
    return f"failed: {detail}."


def _files_in(folder: Path) -> list[Path]:
    """List a checkpoint's files. Symbolic links are left out, because their targets aren't part of the checkpoint."""
    paths = (Path(root) / name for root, _, names in os.walk(folder) for name in names)
    return [path for path in paths if not path.is_symlink()]


def _files_of(content: bytes, manifest: str) -> list[tuple[PurePosixPath, str]]:
    """Return the paths and hashes in a manifest, which another host has written. Raises Corrupted if it can't be
    parsed."""
    try:
        return [(_checked_path(file["path"]), str(file["sha256"])) for file in json.loads(content)["files"]]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise Corrupted(f"{manifest} in the store is not a manifest: {type(error).__name__}.") from error


def _checked_path(path: str) -> PurePosixPath:
    relative = PurePosixPath(path)
    if relative.is_absolute() or ".." in relative.parts or not relative.parts or "\0" in path:
        raise Corrupted(f"The manifest names {path[:200]!r}, which is not a path inside a checkpoint.")
    return relative


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
