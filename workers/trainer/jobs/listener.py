"""The OpenAI-compatible HTTP endpoint of a served model: a key, bounded bodies, bounded waiting.

Requests beyond what the engine answers at once wait, at most MOST_WAITING of them. A client that hangs up ends its
answer.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import select
import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from workers.trainer.configuration.spec import TrainerError
from workers.trainer.jobs.asking import Answered, AskError, Engine, Use
from workers.trainer.jobs.openai_shapes import BadRequest, Request, Shape, read_request

BODY_LIMIT = 1 << 20
MOST_CONNECTIONS = 64
MOST_WAITING = 16
READ_S = 30.0
"""For a request to arrive, and for a client to take a part of its answer."""


class Listener:
    """Listens while its context is open."""

    def __init__(self, server: _Server, address: str) -> None:
        self._server = server
        self.address = address

    @classmethod
    @contextlib.contextmanager
    def open(cls, host: str, port: int, engine: Engine, use: Use, *, digest: str) -> Iterator[Listener]:
        """`port` 0: any that is free. `digest`: the SHA-256 of the key, in hex."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            server = _Server(host, port, family, _Desk(engine, use, digest))
        except OSError as error:
            raise TrainerError(f"The address {host}, port {port}, can't be listened on: {error.strerror}.") from error
        thread = threading.Thread(target=server.serve_forever, name="http", daemon=True)
        thread.start()
        shown = f"[{host}]" if ":" in host else host
        try:
            yield cls(server, f"http://{shown}:{server.server_address[1]}")
        finally:
            server.shutdown()
            server.server_close()
            thread.join(timeout=5)


class _Desk:
    """What all requests share."""

    def __init__(self, engine: Engine, use: Use, digest: str) -> None:
        self.engine, self.use = engine, use
        self.created = int(time.time())
        self.places = threading.BoundedSemaphore(engine.at_once + MOST_WAITING)
        self._digest = digest.encode()

    def allows(self, authorization: str) -> bool:
        kind, _, key = authorization.partition(" ")
        given = hashlib.sha256(key.strip().encode(errors="replace")).hexdigest().encode()
        return hmac.compare_digest(given, self._digest) and kind.lower() == "bearer"


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 32

    def __init__(self, host: str, port: int, family: socket.AddressFamily, desk: _Desk) -> None:
        self.address_family = family
        self.desk = desk
        self._connections = threading.BoundedSemaphore(MOST_CONNECTIONS)
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)  # HTTPServer's own asks the resolver for this host's name

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._connections.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._connections.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is nothing to report."""


class _Refusal(Exception):
    def __init__(self, status: int, text: str, kind: str = "invalid_request_error") -> None:
        super().__init__(text)
        self.status, self.text, self.kind = status, text, kind


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version, sys_version = "grpo", ""
    protocol_version = "HTTP/1.1"
    timeout = READ_S

    def do_GET(self) -> None:
        self._guard(self._get)

    def do_POST(self) -> None:
        self._guard(self._post)

    def log_message(self, _form: str, *args: Any) -> None:
        """Addresses and requests are not logged."""

    # --- routes -------------------------------------------------------------------------------------------------------

    def _get(self) -> None:
        if self.path == "/health":
            self._send(200, {"status": "ok"})
            return
        self._check_key()
        if self.path != "/v1/models":
            raise _Refusal(404, f"There is no {self.path[:100]}. There are /v1/models and two for POST.")
        desk = self.server.desk
        card = {"object": "model", "created": desk.created, "owned_by": "grpo"}
        self._send(200, {"object": "list", "data": [{"id": name, **card} for name in desk.engine.models]})

    def _post(self) -> None:
        self._check_key()
        desk, shape = self.server.desk, Shape.of(self.path)
        if shape is None:
            raise _Refusal(404, f"There is no {self.path[:100]}. There are /v1/chat/completions and /v1/completions.")
        try:
            request = read_request(shape, self._body(), desk.engine.models)
        except BadRequest as error:
            raise _Refusal(400, str(error)) from None
        if not desk.places.acquire(blocking=False):
            raise _Refusal(429, f"{MOST_WAITING} requests wait already. Try again later.", "rate_limit_error")
        try:
            with desk.use.one():
                self._answer(request)
        finally:
            desk.places.release()

    def _answer(self, request: Request) -> None:
        desk = self.server.desk
        if request.stream:
            self._stream(request)
            return
        try:
            with desk.engine.turn(self._gone):
                if request.top is not None:
                    document = request.scored(desk.engine.score(request.asked, request.top, self._gone))
                else:
                    document = request.whole(desk.engine.answers(request.asked, self._gone))
        except AskError as error:
            raise _Refusal(400, str(error)) from None
        desk.use.count_request()
        self._send(200, document)

    def _stream(self, request: Request) -> None:
        desk, pieces = self.server.desk, _Pieces(self, request)
        try:
            with desk.engine.turn(self._gone):
                done = desk.engine.answer(request.asked[0], pieces.add, self._gone)
        except AskError as error:
            if not pieces.begun:
                raise _Refusal(400, str(error)) from None
            pieces.fail(str(error))
            return
        desk.use.count_request()
        pieces.end(done)

    # --- requests and answers -----------------------------------------------------------------------------------------

    def _guard(self, route: Any) -> None:
        try:
            route()
        except _Refusal as refusal:
            self.close_connection = True  # what is left of its body was not read
            self._send(refusal.status, {"error": {"message": refusal.text, "type": refusal.kind, "code": None}})
        except OSError:
            self.close_connection = True  # the client is gone
        except Exception as error:  # a thread's border: the client learns it, the log has the traceback
            self.close_connection = True
            with contextlib.suppress(OSError):
                self._send(500, {"error": {"message": type(error).__name__, "type": "server_error", "code": None}})
            raise

    def _check_key(self) -> None:
        if not self.server.desk.allows(self.headers.get("Authorization", "")):
            raise _Refusal(
                401, "The key is missing or wrong. Send `Authorization: Bearer KEY`.", "authentication_error"
            )

    def _body(self) -> bytes:
        try:
            length = int(self.headers.get("Content-Length", ""))
        except ValueError:
            raise _Refusal(411, "Send a Content-Length.") from None
        if not 0 <= length <= BODY_LIMIT:
            raise _Refusal(413, f"The body has {length:,} bytes; at most {BODY_LIMIT:,} are read.")
        return self.rfile.read(length)

    def _gone(self) -> bool:
        """Whether the client has hung up."""
        try:
            readable = bool(select.select([self.connection], [], [], 0)[0])
            return readable and not self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except (OSError, ValueError):
            return True

    def _send(self, status: int, answer: dict[str, Any]) -> None:
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)


class _Pieces:
    """An answer on its way to a client, as a stream of events."""

    def __init__(self, handler: _Handler, request: Request) -> None:
        self._handler, self._request = handler, request
        self.begun = False
        """Whether something of the answer was sent, so that its status can't change."""

    def add(self, text: str) -> None:
        if text:
            self._event(self._request.piece(text, first=not self.begun))

    def end(self, done: Answered) -> None:
        for part in self._request.last(done, first=not self.begun):
            self._event(part)
        self._write(b"data: [DONE]\n\n")
        self._write(b"")

    def fail(self, text: str) -> None:
        self._event({"error": {"message": text, "type": "server_error", "code": None}})
        self._write(b"")

    def _event(self, part: dict[str, Any]) -> None:
        if not self.begun:
            self._begin()
        self._write(b"data: " + json.dumps(part).encode() + b"\n\n")

    def _begin(self) -> None:
        self.begun = True
        handler = self._handler
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream; charset=utf-8")
        handler.send_header("Cache-Control", "no-store")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()

    def _write(self, data: bytes) -> None:
        self._handler.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
