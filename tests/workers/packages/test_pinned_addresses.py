"""The loop of OpenEnv's client connects to the addresses that were checked, whatever a server redirects to."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from workers.packages.inside.remote import _PinnedLoop

NAME = "judge.example"


class Answering(ThreadingHTTPServer):
    """Sends everybody to `location`, or away with a 403, and counts those who came."""

    def __init__(self, location: str = "") -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.location, self.came = location, 0


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Answering

    def do_GET(self) -> None:
        self.server.came += 1
        self.send_response(302 if self.server.location else 403)
        self.send_header("Location", self.server.location)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@contextmanager
def listening(server: Answering) -> Iterator[int]:
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def ask(url: str, host: str, ips: list[str] | None) -> None:
    async def connects() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, _PinnedLoop)
        loop.pin(host, ips)
        await connect(url, proxy=None)

    with asyncio.Runner(loop_factory=_PinnedLoop) as runner:
        runner.run(connects())


@pytest.mark.parametrize(("host", "ips"), [(NAME, ["127.0.0.1"]), ("127.0.0.1", None), ("localhost", None)])
def test_a_pinned_host_is_asked_at_its_address(host: str, ips: list[str] | None) -> None:
    server = Answering()
    with listening(server) as port, pytest.raises(InvalidStatus, match="403"):
        ask(f"ws://{host}:{port}/ws", host, ips)
    assert server.came == 1


@pytest.mark.parametrize("elsewhere", ["127.0.0.7", "[::ffff:127.0.0.1]", "2130706433", "0x7f000001", "localhost"])
def test_a_redirect_leads_to_no_other_address(elsewhere: str) -> None:
    inner = Answering()
    with listening(inner) as port:
        outer = Answering(f"ws://{elsewhere}:{port}/secret")
        with listening(outer) as first, pytest.raises(OSError, match="No request is sent to"):
            ask(f"ws://{NAME}:{first}/ws", NAME, ["127.0.0.1"])
    assert (outer.came, inner.came) == (1, 0)
