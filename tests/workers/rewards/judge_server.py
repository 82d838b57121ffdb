"""A judge's server on loopback that behaves as the text it is to judge says: `[500]`, `[drip]`, `[flood]` ..."""

from __future__ import annotations

import json
import re
import socketserver
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

Behaviour = Callable[["Handler"], None]


class JudgeServer(socketserver.ThreadingMixIn, HTTPServer):
    """`with JudgeServer() as server`; what was asked is in `asked`, as headers and decoded bodies."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[tuple[dict[str, str], dict[str, Any]]] = []
        self.at_once = 0
        self.most_at_once = 0
        self.lock = threading.Lock()
        self.released = threading.Event()
        """Whoever waits for it holds its connection open until the server is closed."""
        self.barrier: threading.Barrier | None = None
        self.left: dict[str, int] = {}
        """How often a text is still to be answered badly."""
        self.address = f"http://127.0.0.1:{self.server_port}/v1"
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> JudgeServer:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.released.set()
        self.shutdown()
        self._thread.join()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone is no news."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: JudgeServer

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  its name there
        """Nothing."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server = self.server
        with server.lock:
            server.asked.append((dict(self.headers), body))
            server.at_once += 1
            server.most_at_once = max(server.most_at_once, server.at_once)
        try:
            if server.barrier is not None:
                server.barrier.wait(timeout=20)
            self._answer(body["messages"][-1]["content"])
        finally:
            with server.lock:
                server.at_once -= 1

    def _answer(self, text: str) -> None:
        told = re.search(r"\[([a-z0-9]+)(?:=([^\]]*))?\]", text.partition("judged:")[2])
        name, value = (told[1], told[2] or "") if told else ("says", "Score: 5")
        if name.isdigit():
            return self._status(int(name), text)
        return getattr(self, f"_{name}")(value)

    def _status(self, status: int, text: str) -> None:
        with self.server.lock:
            left = self.server.left.get(text, 1_000 if "times" not in text else 2)
            self.server.left[text] = left - 1
        if left <= 0:
            return self._says("Score: 5")
        self.send(json.dumps({"error": f"no, with {self.headers['Authorization']}"}).encode(), status=status)

    def send(self, body: bytes, *, status: int = 200, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), "Retry-After": "0", **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def _says(self, said: str) -> None:
        content = said.replace("\\n", "\n")
        self.send(json.dumps({"choices": [{"message": {"role": "assistant", "content": content}}]}).encode())

    def _raw(self, value: str) -> None:
        self.send(value.encode())

    def _echo(self, value: str) -> None:
        self._says(f"Score: {self.headers['Authorization']}")

    def _redirect(self, value: str) -> None:
        self.send(b"", status=307, Location=f"{self.server.address}/chat/completions")

    def _hang(self, value: str) -> None:
        self.server.released.wait(60)

    def _drip(self, value: str) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "1000000")
        self.end_headers()
        while not self.server.released.wait(0.01):
            self.wfile.write(b" ")

    def _flood(self, value: str) -> None:
        self.send_response(200)
        self.end_headers()
        while not self.server.released.is_set():
            self.wfile.write(b"x" * 65_536)

    def _reset(self, value: str) -> None:
        self.close_connection = True
