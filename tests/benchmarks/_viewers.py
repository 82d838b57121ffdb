"""Many viewers of one run, from a process of its own: how late lines come to them, and what each costs the web.

`python -m tests.benchmarks._viewers` is that process: it reads orders as JSON lines and answers each with one. A viewer
here is no more than the bytes of a websocket, so that a thousand of them don't slow down what they measure.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import socket
import struct
import subprocess
import sys
import time
from typing import Any

import psutil

from controlplane.setup.serving.processes import BASE_DIR as ROOT
from tests.benchmarks import _page_figures
from tests.benchmarks._figures import percentile
from tests.stack import Stack

FIRST = 20
"""Viewers before the others are counted: they pay for what all share (code, threads, connections)."""
AT_ONCE = 40
"""Handshakes under way."""
SETTLE_S = 3.0
"""Until the run counts as watched, and everybody has caught up."""
TEXT, PING = 0x1, 0x9


class Viewers:
    """Asks the other process. As a context, with so many viewers in it."""

    def __init__(self, stack: Stack, run: str, viewers: int = 0) -> None:
        self._viewers = viewers
        self._web = psutil.Process(stack.fleet.pids()["web"])
        argv = [sys.executable, "-m", "tests.benchmarks._viewers"]
        self._process = subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        cookie = "; ".join(f"{name}={value}" for name, value in stack.cookies("viewer").items())
        place = {"port": stack.installation.port, "path": f"/ws/runs/{run}/?after=0", "cookie": cookie}
        self._ask(place)

    def __enter__(self) -> Viewers:
        self.open(self._viewers)
        self.watch(SETTLE_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()  # closes its input, which ends it

    @staticmethod
    def measure(stack: Stack, run: str, viewers: int, seconds: float) -> dict[str, Any]:
        with Viewers(stack, run, FIRST) as crowd:
            before = crowd.web_bytes()
            crowd.open(viewers - FIRST)
            crowd.watch(SETTLE_S)
            cpu = crowd.web_cpu_s()
            seen = crowd.watch(seconds)
            cpu = crowd.web_cpu_s() - cpu
            each = (crowd.web_bytes() - before) / (viewers - FIRST)
            crowd.open(1, slow=True)
            crowd.watch(SETTLE_S)
            beside = crowd.watch(seconds)
        return _page_figures.viewers(viewers, seconds, seen=seen, beside=beside, cpu_s=cpu, each_bytes=each)

    def open(self, count: int, *, slow: bool = False) -> None:
        opened = self._ask({"open": count, "slow": slow})
        if opened["problems"]:
            raise RuntimeError(f"{len(opened['problems'])} of {count} viewers were not let in: {opened['problems'][0]}")

    def watch(self, seconds: float) -> dict[str, Any]:
        return self._ask({"watch": seconds})

    def frame_s(self) -> list[float]:
        """Seconds from line to frame of every row that every viewer got since it was last asked to watch."""
        return list(self._ask({"look": True})["frame_s"])

    def web_bytes(self) -> int:
        return int(self._web.memory_info().rss)

    def web_cpu_s(self) -> float:
        times = self._web.cpu_times()
        return float(times.user + times.system)

    def _ask(self, order: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer


class Seen:
    """What all viewers of this process got."""

    def __init__(self) -> None:
        self.rows_of: dict[bytes, list[tuple[int, float]]] = {}
        """Steps, and when they were written."""
        """A frame is the same bytes for everybody: it is read once."""
        self.latencies: list[float] = []
        self.frames = self.missed = self.lost = 0

    def take(self, payload: bytes, after: int) -> int:
        """The last step that a viewer has, who had `after`."""
        now = time.time()
        rows = self.rows_of.get(payload)
        if rows is None:
            message = json.loads(payload)
            rows = [(row[2], row[1]) for row in message.get("rows", ()) if row[3] == "train"]
            self.rows_of[payload] = rows
        if not rows:
            return after
        self.frames += 1
        self.latencies += [now - written for step, written in rows if step > after]
        first, last = rows[0][0], rows[-1][0]
        self.missed += max(0, first - after - 1)
        return max(after, last)

    def clear(self) -> None:
        self.rows_of, self.latencies, self.frames = {}, [], 0


class Viewer(asyncio.Protocol):
    """A websocket's bytes: the handshake, frames in, pongs out."""

    def __init__(self, seen: Seen, request: bytes, slow: bool) -> None:
        self._seen = seen
        self._request = request
        self._slow = slow
        self._buffer = bytearray()
        self._last = 0
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not self.opened.done():
            head, found, _ = self._buffer.partition(b"\r\n\r\n")
            if not found:
                return
            del self._buffer[: len(head) + 4]
            if b" 101 " not in head.split(b"\r\n")[0]:
                self._transport.close()
                self.opened.set_exception(ConnectionError(head.split(b"\r\n")[0].decode()))
                return
            self.opened.set_result(None)
            if self._slow:
                self._transport.pause_reading()
                asyncio.get_running_loop().call_later(1, self._sip)
        while frame := self._frame():
            self._take(*frame)

    def connection_lost(self, error: Exception | None) -> None:
        # A slow one is left by the server when it answers no ping, and that is as it should be.
        self._seen.lost += not self._slow
        if not self.opened.done():
            self.opened.set_exception(ConnectionError("closed"))

    def _sip(self) -> None:
        """One byte a second."""
        with contextlib.suppress(OSError):
            os.read(self._transport.get_extra_info("socket").fileno(), 1)
            asyncio.get_running_loop().call_later(1, self._sip)

    def _frame(self) -> tuple[int, bytes] | None:
        buffer = self._buffer
        if len(buffer) < 2:
            return None
        size, start = buffer[1] & 0x7F, 2
        if size > 125:
            start = 4 if size == 126 else 10
            if len(buffer) < start:
                return None
            size = int.from_bytes(buffer[2:start])
        if len(buffer) < start + size:
            return None
        payload = bytes(buffer[start : start + size])
        kind = buffer[0] & 0x0F
        del buffer[: start + size]
        return kind, payload

    def _take(self, kind: int, payload: bytes) -> None:
        if kind == TEXT:
            self._last = self._seen.take(payload, self._last)
        elif kind == PING:
            # What a client sends is masked; with zeros it stays as it is.
            self._transport.write(struct.pack("!BBI", 0x8A, 0x80 | len(payload), 0) + payload)


class Crowd:
    """All viewers of this process."""

    def __init__(self, place: dict[str, Any]) -> None:
        self.seen = Seen()
        self.viewers: list[Viewer] = []
        self._port = place["port"]
        lines = [
            f"GET {place['path']} HTTP/1.1",
            f"Host: 127.0.0.1:{self._port}",
            f"Origin: http://127.0.0.1:{self._port}",
            "Connection: Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Version: 13",
            f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}",
            f"Cookie: {place['cookie']}",
        ]
        self._request = ("\r\n".join(lines) + "\r\n\r\n").encode()
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def open(self, count: int, slow: bool) -> dict[str, Any]:
        opened = await asyncio.gather(*(self._open(slow) for _ in range(count)), return_exceptions=True)
        return {"problems": [str(each) for each in opened if isinstance(each, BaseException)]}

    async def _open(self, slow: bool) -> None:
        async with self._turns:
            connection = socket.socket()
            if slow:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(connection, ("127.0.0.1", self._port))
            _, viewer = await loop.create_connection(lambda: Viewer(self.seen, self._request, slow), sock=connection)
            await asyncio.wait_for(viewer.opened, 60)
            self.viewers.append(viewer)

    async def watch(self, seconds: float) -> dict[str, Any]:
        self.seen.clear()
        await asyncio.sleep(seconds)
        seen = self.seen
        found = seen.latencies or [float("nan")]
        return {
            "p50_ms": round(percentile(found, 0.5) * 1000, 1),
            "p95_ms": round(percentile(found, 0.95) * 1000, 1),
            "frames": seen.frames,
            "lost": seen.lost,
            "missed": seen.missed,
        }


async def main() -> None:
    loop = asyncio.get_running_loop()
    crowd: Crowd | None = None
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        order = json.loads(line)
        answer: dict[str, Any] = {}
        if crowd is None:
            crowd = Crowd(order)
        elif "open" in order:
            answer = await crowd.open(order["open"], order["slow"])
        elif "watch" in order:
            answer = await crowd.watch(order["watch"])
        else:
            answer = {"frame_s": crowd.seen.latencies}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
