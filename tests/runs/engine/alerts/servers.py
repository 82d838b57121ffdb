"""Real servers on loopback for alerts to meet: one that answers as it is told to, and one for mail."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def answering(status: str, body: str = "", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n" + body).encode()


@dataclass
class Hook:
    """`heard`: each request as it came, head and body."""

    url: str
    port: int
    heard: list[bytes] = field(default_factory=list)


@contextlib.contextmanager
def hook(
    answer: bytes | Callable[[socket.socket], None] = OK, *, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> Iterator[Hook]:
    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(OSError), _spoken(self.request) as connection:
                server.heard.append(_request(connection))
                if callable(answer):
                    answer(connection)
                else:
                    connection.sendall(answer)

    def _spoken(connection: socket.socket) -> socket.socket:
        return tls.wrap_socket(connection, server_side=True) if tls else connection

    with _serving(Handler) as port:
        server = Hook(f"{'https' if tls else 'http'}://{host}:{port}/services/T000/B000/a-secret-part", port)
        yield server


def _request(connection: socket.socket) -> bytes:
    got = b""
    while b"\r\n\r\n" not in got:
        got += connection.recv(65536)
    head, _, body = got.partition(b"\r\n\r\n")
    length = sum(int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length"))
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


def dripping(connection: socket.socket) -> None:
    """A byte every now and then, without an end."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    with contextlib.suppress(OSError):
        while True:
            connection.sendall(b"x")
            time.sleep(0.05)


def flooding(connection: socket.socket) -> None:
    """Headers without an end."""
    with contextlib.suppress(OSError):
        connection.sendall(b"HTTP/1.1 200 OK\r\n")
        while True:
            connection.sendall(b"X-More: " + b"x" * 1000 + b"\r\n")


def silent(connection: socket.socket) -> None:
    """Accepts, and says nothing until whoever asked has gone."""
    with contextlib.suppress(OSError):
        connection.recv(1)


@dataclass
class Post:
    port: int
    mails: list[str] = field(default_factory=list)


@contextlib.contextmanager
def mail_server(refuses: str = "") -> Iterator[Post]:
    """Enough of SMTP for a client to hand over mails. `refuses`: the answer to every recipient."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self._say("220 ready")
            while line := self.rfile.readline():
                word = line.split(b" ")[0].strip().upper()
                if word == b"DATA":
                    self._say("354 go on")
                    post.mails.append(b"".join(iter(self.rfile.readline, b".\r\n")).decode())
                    self._say("250 kept")
                elif word == b"RCPT" and refuses:
                    self._say(refuses)
                else:
                    self._say("221 bye" if word == b"QUIT" else "250 ok")

        def _say(self, text: str) -> None:
            with contextlib.suppress(OSError):
                self.wfile.write(f"{text}\r\n".encode())

    with _serving(Handler) as port:
        post = Post(port)
        yield post


@contextlib.contextmanager
def _serving(handler: type[socketserver.BaseRequestHandler]) -> Iterator[int]:
    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        block_on_close = False
        allow_reuse_address = True

    with Server(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()
