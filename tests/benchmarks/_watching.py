"""What is seen from beside real supervisors: when each line was known to be stored, and when a page got it."""

from __future__ import annotations

import asyncio
import bisect
import contextlib
import json
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import websockets

from tests.stack import Stack
from workers.contract.wire.names import EventKind, FileName

POLL_S = 0.04
"""A supervisor writes its ack at most every 100 ms; the file's own time says when."""


class Acks:
    """Of several attempt folders, each value that `outbox.ack` has had and when it was written."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._seen: dict[Path, list[tuple[int, float]]] = {folder: [] for folder in folders}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="acks")

    def __enter__(self) -> Acks:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def row_s(self, folder: Path, since: float, until: float) -> list[float]:
        """Seconds from a metric line's own time to the ack that covers it, which is after the commit."""
        seen = self._seen[folder]
        waits = []
        for text in (folder / FileName.OUTBOX).read_bytes().splitlines():
            line = json.loads(text)
            if line["kind"] != EventKind.TRAIN or not since <= line["t"] < until:
                continue
            place = bisect.bisect_left(seen, (line["seq"], 0.0))
            if place < len(seen):
                waits.append(seen[place][1] - line["t"])
        return waits

    def _watch(self) -> None:
        while not self._stopped.wait(POLL_S):
            for folder, seen in self._seen.items():
                with contextlib.suppress(FileNotFoundError, ValueError), open(folder / FileName.ACK) as file:
                    written = os.fstat(file.fileno()).st_mtime
                    acked = int(file.read())
                    if not seen or acked > seen[-1][0]:
                        seen.append((acked, written))


class Page:
    """One viewer of a run's page, and of the list: seconds from line to frame, and of GET requests."""

    def __init__(self, stack: Stack, run: str) -> None:
        self._stack = stack
        self._run = run
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=self._frames), threading.Thread(target=self._gets)]
        self._frame_s: list[tuple[float, float]] = []
        self.get_s: list[float] = []
        self.problems: list[str] = []

    def __enter__(self) -> Page:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def frame_s(self, since: float) -> list[float]:
        return [wait for written, wait in self._frame_s if written >= since]

    def _frames(self) -> None:
        try:
            asyncio.run(self._follow())
        except (OSError, websockets.WebSocketException) as error:
            self.problems.append(f"the page's socket: {error!r}")

    async def _follow(self) -> None:
        stack = self._stack
        url = f"{stack.url.replace('http', 'ws', 1)}/ws/runs/{self._run}/?after=0"
        headers = {"Cookie": "; ".join(f"{name}={value}" for name, value in stack.cookies("viewer").items())}
        async with websockets.connect(url, origin=stack.url, additional_headers=headers, max_size=None) as ws:
            while not self._stopped.is_set():
                with contextlib.suppress(TimeoutError):
                    text = await asyncio.wait_for(ws.recv(), 0.5)
                    now = time.time()
                    rows = json.loads(text).get("rows", ())
                    self._frame_s += [(row[1], now - row[1]) for row in rows if row[3] == EventKind.TRAIN]

    def _gets(self) -> None:
        """The list of runs and the run's page, one of them every five seconds."""
        with self._stack.client("viewer") as web:
            number = 0
            while not self._stopped.wait(5 if number else 0):
                path = ("/runs/", f"/runs/{self._run}/")[number % 2]
                begin = time.monotonic()
                status = web.get(path).status_code
                self.get_s.append(time.monotonic() - begin)
                number += 1
                if status != 200:
                    self.problems.append(f"{path} answered {status}")
