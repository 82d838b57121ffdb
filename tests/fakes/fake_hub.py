"""A small Hugging Face hub on loopback: the routes that huggingface_hub asks, and what goes wrong there.

    with FakeHub() as hub:
        hub.add("Org/Public", {"config.json": b"{}", "model.safetensors": weights})
        hub.add("Org/Gated", files, token="right")     # its files: 401 without a token, 403 with another
        hub.add("Org/Slow", files, bytes_per_s=50_000)
        hub.add("Org/Stalls", files, stall_after=1_000)
        hub.add("Org/Flaky", files, failures=1)        # that many answers are 500s before it works
        hub.add("Org/Rows", files, kind="datasets")    # a dataset; Parquet lies with the weights
        hub.add("Org/New", files, renamed_from="Org/Old")

    hub.accounts["right"] = Account("olga", orgs=("Org",))   # whose token may push; see fake_hub_pushes

Any other name is missing. As with the real one, weights lie on another host (127.0.0.2 here), to which the token must
not travel; `hub.requests` has every request as (method, path, Authorization).
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qs, unquote, urlsplit

from tests.fakes.fake_hub_pushes import Account, PushHandler

CHUNK = 16_384
_API = re.compile(r"/api/(?P<kind>models|datasets)/(?P<id>.+?)(/(?P<what>revision|tree)/(?P<revision>[^/]+))?")
_RESOLVE = re.compile(r"/(?P<id>.+?)/resolve/(?P<revision>[^/]+)/(?P<name>.+)")
_BLOB = re.compile(r"/blobs/(?P<id>.+)/(?P<oid>[0-9a-f]{64})")


@dataclass
class Repository:
    name: str
    files: dict[str, bytes]
    token: str | None = None
    """What opens the files of a gated repository; None: they are open."""
    bytes_per_s: float | None = None
    stall_after: int | None = None
    """Each weight file stops after so many bytes, and the connection stays open."""
    failures: int = 0
    sizes: dict[str, int] = field(default_factory=dict)
    """Sizes to claim instead of the true ones."""
    kind: str = "models"
    renamed_from: str = ""
    """Asked for by this name, the hub sends on to the other."""
    private: bool = False
    revisions: dict[str, dict[str, bytes]] = field(default_factory=dict)
    """The files at other branches and tags."""

    @property
    def address(self) -> str:
        """As it stands in the paths of its files."""
        return self.name if self.kind == "models" else f"{self.kind}/{self.name}"

    @property
    def commit(self) -> str:
        parts = [name.encode() + content for name, content in sorted(self.files.items())]
        return hashlib.sha1(self.name.encode() + b"\0".join(parts)).hexdigest()

    def at(self, revision: str) -> Repository | None:
        """The repository at a branch, a tag or a commit."""
        if revision in ("main", self.commit):
            return self
        others = {name: replace(self, files=files, revisions={}) for name, files in self.revisions.items()}
        return next((other for name, other in others.items() if revision in (name, other.commit)), None)

    def blob(self, name: str) -> dict[str, Any]:
        """What the hub tells of one file; weights are in its large file storage."""
        content = self.files[name]
        size = self.sizes.get(name, len(content))
        blob = {"oid": hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest(), "size": size}
        if is_large(name):
            blob["lfs"] = {"sha256": hashlib.sha256(content).hexdigest(), "size": size, "pointerSize": 134}
        return blob


def is_large(name: str) -> bool:
    return name.endswith((".safetensors", ".bin", ".gguf", ".parquet"))


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


class FakeHub:
    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.requests: list[tuple[str, str, str | None]] = []
        self.accounts: dict[str, Account] = {}
        """By token."""
        self.uploaded: dict[str, bytes] = {}
        """What has reached the large file storage, by sha256."""
        self.closing = threading.Event()
        self._servers = [_Server((address, 0), self) for address in ("127.0.0.1", "127.0.0.2")]
        self._threads = [threading.Thread(target=server.serve_forever, args=(0.05,)) for server in self._servers]

    def __enter__(self) -> FakeHub:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.closing.set()
        for server in self._servers:
            server.shutdown()
            server.server_close()
        for thread in self._threads:
            thread.join()

    def add(self, name: str, files: dict[str, bytes], **behaviour: Any) -> Repository:
        repository = Repository(name, files, **behaviour)
        self.repositories[repository.address] = repository
        return repository

    def moved(self, address: str) -> Repository | None:
        """The repository that had this address before."""
        for repository in self.repositories.values():
            old = repository.renamed_from
            if old and address == repository.address.removesuffix(repository.name) + old:
                return repository
        return None

    @property
    def url(self) -> str:
        return _address(self._servers[0])

    @property
    def storage_url(self) -> str:
        return _address(self._servers[1])

    def asked(self, part: str = "") -> list[str]:
        """Requests so far, as "METHOD path"."""
        return [f"{method} {path}" for method, path, _ in self.requests if part in path]


def _address(server: ThreadingHTTPServer) -> str:
    host, port = server.server_address[:2]
    return f"http://{host!s}:{port}"


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], hub: FakeHub) -> None:
        self.hub = hub
        super().__init__(address, _Handler)

    def handle_error(self, *_: object) -> None:
        """A client that goes away in mid-answer is what some tests are about."""


class _Handler(PushHandler, BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def hub(self) -> FakeHub:
        return cast(_Server, self.server).hub

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._route()

    def do_GET(self) -> None:
        if not self.answers_a_push():
            self._route()

    def _route(self) -> None:
        split = urlsplit(self.path)
        self.hub.requests.append((self.command, split.path, self.headers.get("Authorization")))
        for pattern, answer in ((_BLOB, self._blob), (_API, self._api), (_RESOLVE, self._resolve)):
            match = pattern.fullmatch(split.path)
            if match is None:
                continue
            found = match.groupdict()
            address = unquote(found["id"])
            if found.get("kind", "models") != "models":
                address = f"{found['kind']}/{address}"
            repository = self.hub.repositories.get(address)
            if repository is None and (moved := self.hub.moved(address)) is not None:
                self._send(307, {"Location": self.path.replace(moved.renamed_from, moved.name, 1)})
            elif repository is None:
                self._error(404, "RepoNotFound", "Repository not found")
            elif (at := repository.at(unquote(found.get("revision") or "main"))) is None:
                self._error(404, "RevisionNotFound", f"Invalid rev id: {found['revision']}")
            elif repository.failures:
                repository.failures -= 1
                self._error(500, None, "Internal Error")
            else:
                answer(at, found, parse_qs(split.query))
            return
        self._error(404, None, "Not found")

    def _api(self, repository: Repository, found: dict[str, str], query: dict[str, list[str]]) -> None:
        """The listing is open even where the files are not, as on the real hub."""
        if found["what"] == "tree":
            return self._json([self._entry(repository, name) for name in sorted(repository.files)])
        siblings: list[dict[str, Any]] = []
        for name in sorted(repository.files):
            blob = repository.blob(name)
            details = {"size": blob["size"], "blobId": blob["oid"], **({"lfs": blob["lfs"]} if "lfs" in blob else {})}
            siblings.append({"rfilename": name, **(details if query.get("blobs") else {})})
        self._json(
            {
                "id": repository.name,
                "sha": repository.commit,
                "private": repository.private,
                "gated": "manual" if repository.token else False,
                "siblings": siblings,
            }
        )

    def _entry(self, repository: Repository, name: str) -> dict[str, Any]:
        entry = {"type": "file", "path": name, **repository.blob(name)}
        if lfs := entry.get("lfs"):
            entry["lfs"] = {"oid": lfs["sha256"], "size": lfs["size"], "pointerSize": lfs["pointerSize"]}
        return entry

    def _resolve(self, repository: Repository, found: dict[str, str], query: dict[str, list[str]]) -> None:
        given = self.headers.get("Authorization")
        if repository.token and given != f"Bearer {repository.token}":
            words = f"Access to {repository.name} is restricted."
            return self._error(403 if given else 401, "GatedRepo", words)
        name = unquote(found["name"])
        if name not in repository.files:
            return self._error(404, "EntryNotFound", "Entry not found", commit=repository.commit)
        blob = repository.blob(name)
        if "lfs" not in blob:
            return self._file(repository, repository.files[name], {"ETag": f'"{blob["oid"]}"'})
        sha256 = blob["lfs"]["sha256"]
        headers = {
            "Location": f"{self.hub.storage_url}/blobs/{repository.address}/{sha256}",
            "X-Repo-Commit": repository.commit,
            "X-Linked-Size": str(blob["size"]),
            "X-Linked-ETag": f'"{sha256}"',
        }
        self._send(302, headers)

    def _blob(self, repository: Repository, found: dict[str, str], query: dict[str, list[str]]) -> None:
        for name, content in repository.files.items():
            if hashlib.sha256(content).hexdigest() == found["oid"]:
                claimed = repository.sizes.get(name, len(content))
                paced = repository if is_large(name) else None
                return self._file(repository, content, {"ETag": f'"{found["oid"]}"'}, paced=paced, size=claimed)
        self._error(404, "EntryNotFound", "Entry not found")

    def _file(
        self,
        repository: Repository,
        content: bytes,
        headers: dict[str, str],
        *,
        paced: Repository | None = None,
        size: int | None = None,
    ) -> None:
        size = len(content) if size is None else size
        start, end, status = 0, size, 200
        if match := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or ""):
            start, end, status = int(match[1]), min(int(match[2] or size - 1) + 1, size), 206
            if start >= size:
                return self._send(416, {"Content-Range": f"bytes */{size}"})
            headers = {**headers, "Content-Range": f"bytes {start}-{end - 1}/{size}"}
        headers = {**headers, "X-Repo-Commit": repository.commit, "Accept-Ranges": "bytes"}
        self._send(status, headers, length=end - start)
        if self.command == "GET":
            self._body(content, start, end, paced)

    def _body(self, content: bytes, start: int, end: int, paced: Repository | None) -> None:
        at = start
        while at < end:
            stop = min(at + CHUNK, end)
            if at >= len(content):  # a size that was only claimed
                self.close_connection = True
                return
            if paced and paced.stall_after is not None:
                stop = min(stop, paced.stall_after)
                if stop <= at:
                    self.hub.closing.wait()
                    self.close_connection = True
                    return
            self.wfile.write(content[at:stop])
            if paced and paced.bytes_per_s and self.hub.closing.wait((stop - at) / paced.bytes_per_s):
                self.close_connection = True
                return
            at = stop

    def _json(self, value: Any, *, status: int = 200) -> None:
        content = json.dumps(value).encode()
        self._send(status, {"Content-Type": "application/json"}, length=len(content))
        if self.command != "HEAD":
            self.wfile.write(content)

    def _error(self, status: int, code: str | None, words: str, *, commit: str | None = None) -> None:
        headers = {"X-Error-Message": words}
        if code:
            headers["X-Error-Code"] = code
        if commit:
            headers["X-Repo-Commit"] = commit
        self._send(status, headers)

    def _send(self, status: int, headers: dict[str, str], *, length: int = 0) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()
