"""Stands in for the control plane's API for hosts: keeps what it is told, answers as it is told to.

Runs in the test's own process, on a port of its own. `stop()` closes the port and `start()` opens the same one again;
`silent` accepts every connection and answers nothing.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from workers.artifactstore import signed_url
from workers.contract.wire.artifacts import Store, StoreRequest
from workers.contract.wire.documents import from_dict

TOKEN = "t0ken-that-must-not-leak"


class FakeControl:
    def __init__(self, dataset: bytes = b"") -> None:
        self.dataset = dataset
        self.corpora: dict[str, bytes] = {}
        self.sources: dict[str, bytes] = {}
        """By the sha256 that is asked for."""
        self.go = True
        self.why = ""
        self.stop_mode: str | None = None
        self.claim_stop: str | None = None
        self.watched = True
        self.host_watched = False
        self.secrets: dict[str, str] = {}
        self.warm: dict[str, str] | None = None
        """What a warm server that asks is told: WarmNews."""
        self.spec_sha256 = ""
        self.refuse: dict[str, int] = {}
        """Last part of the path -> status to answer with."""
        self.refuse_lines_with: str | None = None
        """A batch that has this text in it gets 400."""
        self.claims: list[dict[str, Any]] = []
        self.lines: dict[int, dict[str, Any]] = {}
        self.samples: list[dict[str, Any]] = []
        self.logs: dict[str, bytes] = {}
        self.archive = b""
        self.archive_room = 1 << 40
        """A larger archive is refused."""
        self.lost_answers = 0
        """So many of the next requests are answered by nothing, once they have done their work."""
        self.seen = True
        """The last sync was the supervisor's own."""
        self.reaped: list[dict[str, Any]] = []
        self.not_launched: list[dict[str, Any]] = []
        self.deleted: list[dict[str, Any]] = []
        self.store_answer: dict[str, Any] | None = None
        """The artifact store. None: a control plane without stores."""
        self.stored: list[dict[str, Any]] = []
        self.announced: list[dict[str, Any]] = []
        self.inspections: dict[str, dict[str, Any]] = {}
        self.requests: list[str] = []
        self.unauthorized = 0
        self.silent = threading.Event()
        self.released = threading.Event()
        self._ack = 0
        self._lock = threading.Lock()
        self._server: ThreadingHTTPServer | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.dataset).hexdigest()

    def start(self) -> FakeControl:
        control = self

        class Handler(_Handler):
            owner = control

        ThreadingHTTPServer.allow_reuse_address = True
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def close(self) -> None:
        self.released.set()
        self.stop()

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        with self._lock:
            return [line for _, line in sorted(self.lines.items()) if line["kind"] == kind]

    @property
    def ended(self) -> dict[str, Any] | None:
        found = self.of_kind("ended")
        return found[0]["data"] if found else None

    def phases(self) -> list[str]:
        return [line["data"]["phase"] for line in self.of_kind("phase")]

    def train_steps(self) -> list[int]:
        return [line["step"] for line in self.of_kind("train")]

    # --- answers ----------------------------------------------------------------------------------------------

    def answer(self, path: str, query: dict[str, list[str]], body: bytes) -> tuple[int, Any]:
        parts = path.strip("/").split("/")
        self.requests.append(path)
        if parts[-1] in self.refuse:
            return self.refuse[parts[-1]], {"error": {"what": "refused", "where": path, "fix": ""}}
        if len(parts) == 5 and parts[3] == "logs":
            return 200, self._log(parts[4], int(query["offset"][0]), body)
        if parts[-1] == "dataset":
            return 200, self.dataset
        files = {"corpora": self.corpora, "sources": self.sources}.get(parts[3]) if len(parts) == 5 else None
        if files is not None:
            return (200, files[parts[4]]) if parts[4] in files else (404, {"error": {"what": "gone"}})
        if parts[-1] == "archive":
            return self._archive(int(query["offset"][0]), int(query["of"][0]), body)
        try:
            data = json.loads(body)
        except ValueError:
            return 400, {"error": {"what": "no JSON", "where": "body", "fix": ""}}
        if parts[1] == "inspections":
            self.inspections[parts[2]] = data["answer"]
            return 200, {"ok": True}
        return getattr(self, f"_{parts[-1]}")(data)

    def _claim(self, data: dict[str, Any]) -> tuple[int, Any]:
        self.claims.append(data)
        stop = self.claim_stop
        answer = {"go": self.go, "why": self.why, "ack": self._ack, "stop": stop, "secrets": self.secrets}
        return 200, {**answer, "spec_sha256": self.spec_sha256}

    def _sync(self, data: dict[str, Any]) -> tuple[int, Any]:
        if self.refuse_lines_with and self.refuse_lines_with in json.dumps(data):
            return 400, {"error": {"what": "bad line", "where": "lines", "fix": ""}}
        self.seen = data["seen"]
        self.store(data["lines"])
        warm = {"warm": self.warm} if self.warm is not None and data.get("turns_after") is not None else {}
        return 200, {"ack": self._ack, "stop": self.stop_mode, "watched": self.watched, **warm}

    def _samples(self, data: dict[str, Any]) -> tuple[int, Any]:
        with self._lock:
            fresh = data["lines"][max(0, len(self.samples) - data["first_line"] + 1) :]
            self.samples += fresh
        return 200, {"ack": len(self.samples)}

    def _log(self, name: str, offset: int, body: bytes) -> dict[str, int]:
        with self._lock:
            have = self.logs.get(name, b"")
            if offset <= len(have):
                self.logs[name] = have + body[len(have) - offset :]
        return {"size": len(self.logs.get(name, b""))}

    def _archive(self, offset: int, of: int, body: bytes) -> tuple[int, Any]:
        if of > self.archive_room:
            return 413, {"error": {"what": "There is no room.", "where": "of", "fix": ""}}
        if offset <= len(self.archive):
            self.archive += body[len(self.archive) - offset :]
        return 200, {"size": len(self.archive)}

    def _reaped(self, data: dict[str, Any]) -> tuple[int, Any]:
        if self.refuse_lines_with and self.refuse_lines_with in json.dumps(data):
            return 400, {"error": {"what": "bad line", "where": "lines", "fix": ""}}
        self.store(data["lines"])
        self.reaped.append(data)
        return 200, {"ok": True}

    def _not_launched(self, data: dict[str, Any]) -> tuple[int, Any]:
        self.not_launched.append(data)
        return 200, {"ok": True}

    def _deleted(self, data: dict[str, Any]) -> tuple[int, Any]:
        self.deleted.append(data)
        return 200, {"ok": True}

    def _store(self, data: dict[str, Any]) -> tuple[int, Any]:
        if self.store_answer is None:
            return 404, {"error": {"what": "no such page", "where": "path", "fix": ""}}
        return 200, {**self.store_answer, "store": {**self.store_answer["store"], "key": "", "secret": ""}}

    def _signature(self, data: dict[str, Any]) -> tuple[int, Any]:
        assert self.store_answer is not None
        store = from_dict(Store, self.store_answer["store"])
        return 200, {"url": signed_url(store, from_dict(StoreRequest, data))}

    def _stored(self, data: dict[str, Any]) -> tuple[int, Any]:
        self.stored.append({**data, "after_the_end": self.ended is not None})
        return 200, {"ok": True}

    def _announce(self, data: dict[str, Any]) -> tuple[int, Any]:
        self.announced.append(data)
        return 200, {"ok": True, "want_schema": len(self.announced) == 1, "watched": self.host_watched}

    def store(self, lines: list[dict[str, Any]]) -> None:
        with self._lock:
            for line in lines:
                if line["seq"] == self._ack + 1:
                    self.lines[line["seq"]] = line
                    self._ack = line["seq"]


class _Handler(BaseHTTPRequestHandler):
    owner: FakeControl
    protocol_version = "HTTP/1.1"
    timeout = 30

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.owner.silent.is_set():
            self.owner.released.wait(60)
            self.close_connection = True
            return
        if self.owner._server is None:
            self.close_connection = True
            return
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        url = urlsplit(self.path)
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self.owner.unauthorized += 1
            status, answer = 401, {"error": {"what": "who?", "where": self.path, "fix": ""}}
        else:
            status, answer = self.owner.answer(url.path, parse_qs(url.query), body)
        if self.owner.lost_answers:
            self.owner.lost_answers -= 1
            self.close_connection = True
            return
        data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: object) -> None:
        return
