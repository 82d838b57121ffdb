"""A small real HTTP proxy before the control plane, that misbehaves for some requests as it is told.

    with FaultProxy(stack.url) as proxy:
        proxy.on(attempt_id, "sync", "error_500", "cut_after_commit")   the next two of that attempt, one fault each

A fault is used up by one request. Threads of its own; nothing outlives `with`.
"""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import NamedTuple
from urllib.parse import urlsplit

import httpx

HOP = frozenset({"connection", "transfer-encoding", "content-length", "host", "keep-alive"})
PATIENCE_S = 20.0


class Answer(NamedTuple):
    status: int
    kind: str
    body: bytes


class Request(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class FaultProxy:
    def __init__(self, target: str) -> None:
        logging.getLogger("httpx").setLevel(logging.WARNING)  # a heartbeat is no news
        self.target = target
        self.upstream = httpx.Client(base_url=target, timeout=PATIENCE_S, trust_env=False)
        self.used: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        """Faults that have happened, by attempt and road."""
        self.lock = threading.Lock()
        self.kept: dict[str, Request] = {}
        """Requests that come late: forwarded after the next one of their path."""
        self.earlier: dict[str, Answer] = {}
        """Of each path, the first answer that the control plane gave."""
        self._faults: defaultdict[tuple[str, str], deque[str]] = defaultdict(deque)
        self._port = 0
        self._server: ThreadingHTTPServer | None = None

    def __enter__(self) -> FaultProxy:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shut()
        self.upstream.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def open(self) -> None:
        handler = type("Handler", (_Handler,), {"proxy": self})
        self._server = _Server(("127.0.0.1", self._port), handler)
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def shut(self) -> None:
        """Connections are refused until it is opened again, and those that are there are cut."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def on(self, attempt_id: str, road: str, *faults: str) -> None:
        """`road` is the last word of the path: claim, dataset, sync, samples, reaped, or a log's name; `attempt_id`
        may be "" for any."""
        assert set(faults) <= set(FAULTS), faults
        with self.lock:
            self._faults[attempt_id, road].extend(faults)

    def waiting(self) -> dict[tuple[str, str], list[str]]:
        """Faults that no request has met yet."""
        with self.lock:
            return {key: list(faults) for key, faults in self._faults.items() if faults}

    def fault_for(self, path: str) -> str:
        parts = urlsplit(path).path.strip("/").split("/")
        attempt = parts[2] if parts[:2] == ["api", "attempts"] else ""
        with self.lock:
            for key in ((attempt, parts[-1]), ("", parts[-1])):
                if self._faults[key]:
                    self.used[key].append(self._faults[key][0])
                    return self._faults[key].popleft()
        return ""

    def forward(self, request: Request) -> Answer:
        answer = self.upstream.request(
            request.method, request.path, headers=request.headers, content=request.body, timeout=PATIENCE_S
        )
        return Answer(answer.status_code, answer.headers.get("Content-Type", ""), answer.content)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self.connections: set[socket.socket] = set()

    def process_request(self, request: socket.socket, client_address: object) -> None:  # type: ignore[override]
        self.connections.add(request)
        super().process_request(request, client_address)  # type: ignore[arg-type]

    def server_close(self) -> None:
        super().server_close()
        for connection in self.connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: FaultProxy

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError, httpx.HTTPError):
            super().handle()

    def do_POST(self) -> None:
        self.serve()

    def do_GET(self) -> None:
        self.serve()

    def serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name: value for name, value in self.headers.items() if name.lower() not in HOP}
        request = Request(self.command, self.path, headers, body)
        fault = self.proxy.fault_for(self.path)
        if fault:
            FAULTS[fault](self, request)
            return
        self.answer(self.proxy.forward(request), request)
        with self.proxy.lock:
            late = self.proxy.kept.pop(request.path, None)
        if late is not None:
            self.proxy.forward(late)

    def answer(self, answer: Answer, request: Request | None = None) -> None:
        if request is not None:
            self.proxy.earlier.setdefault(request.path, answer)
        self.head(answer, len(answer.body))
        self.wfile.write(answer.body)

    def head(self, answer: Answer, length: int) -> None:
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.kind)
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def cut(self) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, *args: object) -> None:
        """Nothing: a heartbeat is no news."""


def _says(status: int, kind: str, body: bytes) -> Callable[[_Handler, Request], None]:
    """An answer of its own; the control plane hears nothing."""
    return lambda handler, request: handler.answer(Answer(status, kind, body))


def _says_after_commit(body: bytes) -> Callable[[_Handler, Request], None]:
    """The control plane has it; what comes back is something else."""

    def fault(handler: _Handler, request: Request) -> None:
        handler.proxy.forward(request)
        handler.answer(Answer(200, "application/json", body))

    return fault


def _cut_before(handler: _Handler, request: Request) -> None:
    handler.cut()


def _cut_after_commit(handler: _Handler, request: Request) -> None:
    handler.proxy.forward(request)
    handler.cut()


def _silent_after_commit(handler: _Handler, request: Request) -> None:
    """Until the client gives up."""
    handler.proxy.forward(request)
    handler.connection.settimeout(PATIENCE_S)
    handler.connection.recv(1)
    handler.cut()


def _half(handler: _Handler, request: Request) -> None:
    answer = handler.proxy.forward(request)
    handler.head(answer, len(answer.body))
    handler.wfile.write(answer.body[: len(answer.body) // 2])
    handler.cut()


def _drip(handler: _Handler, request: Request) -> None:
    answer = handler.proxy.forward(request)
    handler.head(answer, len(answer.body))
    for at in range(0, len(answer.body), 4):
        handler.wfile.write(answer.body[at : at + 4])
        time.sleep(0.02)


def _twice(handler: _Handler, request: Request) -> None:
    handler.proxy.forward(request)
    handler.answer(handler.proxy.forward(request), request)


def _stale_answer(handler: _Handler, request: Request) -> None:
    """The control plane has it; the answer is one to an earlier request."""
    now = handler.proxy.forward(request)
    handler.answer(handler.proxy.earlier.get(request.path, now))


def _late(handler: _Handler, request: Request) -> None:
    """Cut now, and forwarded after the next request of its path."""
    with handler.proxy.lock:
        handler.proxy.kept[request.path] = request
    handler.cut()


PAGE = b"<html><body><h1>Bad Gateway</h1></body></html>"
FAULTS: dict[str, Callable[[_Handler, Request], None]] = {
    "error_500": _says(500, "text/html", PAGE),
    "bad_gateway": _says(502, "text/html", PAGE),
    "busy_503": _says(503, "application/json", json.dumps({"error": {"what": "The database is away."}}).encode()),
    "garbage": _says(200, "text/html", PAGE),
    "empty": _says(200, "application/json", b""),
    "cut_before": _cut_before,
    "cut_after_commit": _cut_after_commit,
    "silent_after_commit": _silent_after_commit,
    "garbage_after_commit": _says_after_commit(b"\x00\xff\x17"),
    "other_shape": _says_after_commit(b'{"hello": "world"}'),
    "wrong_types": _says_after_commit(b'{"ack": "many", "stop": 7, "watched": [], "go": "yes", "size": null}'),
    "a_list": _says_after_commit(b"[1, 2]"),
    "half": _half,
    "drip": _drip,
    "twice": _twice,
    "stale_answer": _stale_answer,
    "late": _late,
}
FAILING = tuple(name for name in FAULTS if name not in ("drip", "twice", "stale_answer"))
"""After these the client has to ask again."""
