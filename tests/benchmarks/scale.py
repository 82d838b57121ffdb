"""A thousand live runs on one machine: on SQLite with one web process, and on PostgreSQL with two.

Every run trains a step a second with 20 metrics. One generator speaks for the supervisors, with each attempt's own
token; real runs are launched and stopped beside the load. Some pages are watched by websockets, and the list of 10,000
runs is loaded. Everything else is real: the web with its middleware, Valkey, the tick, the store.

A row's time goes from its line to the answer that confirms it; a watched one's until its frame has arrived.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import math
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import websockets

from tests import postgres
from tests.benchmarks import _stored
from tests.benchmarks._clicks import Click, click
from tests.benchmarks._cpu import CpuWatch
from tests.benchmarks._crowd import COUNT, HOST, Generator, announce, one_ms, submit
from tests.benchmarks._product import Product, until
from tests.benchmarks._store import kept
from tests.stack import Stack
from workers.contract.wire.names import SCHEMA

STORES = ("sqlite", "postgresql")
WEB_WORKERS = {"sqlite": 1, "postgresql": 2}
DURABLE = {"fsync": "on", "full_page_writes": "on"}
"""A test's server may lose what it has at a power cut; this one is timed."""
SETTLE_S = 8.0
"""Until pages count as watched, and every run has found its pace."""


def main(argv: list[str] | None = None) -> dict[str, Any]:
    options = _options(argv or [])
    logging.getLogger("httpx").setLevel(logging.WARNING)
    return {store: _measured(store, options) for store in options.store or STORES} | {"about": {"runs": options.runs}}


def _options(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench scale", description=__doc__)
    parser.add_argument("--store", action="append", choices=STORES, help="only this one; may be repeated")
    parser.add_argument("--runs", type=int, default=1000, help="live runs")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long they are measured")
    parser.add_argument("--watched", type=int, default=10, help="of them with an open page")
    parser.add_argument("--listed", type=int, default=10_000, help="ended runs in the list")
    parser.add_argument("--clicks", type=int, default=3, help="launches and stops beside the load")
    return parser.parse_args(argv)


def _measured(store: str, options: argparse.Namespace) -> dict[str, Any]:
    if store == "postgresql" and (reason := postgres.missing()):
        return {"skipped": reason}
    with _product(store) as (product, server):
        _stored.many_runs(product.stack, product.page, options.listed)
        with contextlib.closing(Generator()) as generator:
            return Scale(product, generator, server).measure(options)


@contextlib.contextmanager
def _product(store: str) -> Iterator[tuple[Product, int | None]]:
    """And the pid of the database's server, if it has one."""
    with contextlib.ExitStack() as stack:
        # The generator's host announces itself once.
        settings, pid = {"GRPO_CPU_SLOTS": "4", "CONTROLPLANE_HOST_STALE_AFTER_S": "3600"}, None
        if store == "postgresql":
            server = stack.enter_context(postgres.running(DURABLE))
            settings["CONTROLPLANE_DATABASE_URL"] = server.url("scale")
            pid = server.process.pid if server.process is not None else None
        product = Product(web_workers=WEB_WORKERS[store], **settings)
        stack.callback(product.close)
        yield product, pid


class Scale:
    def __init__(self, product: Product, generator: Generator, server: int | None) -> None:
        self.product = product
        self.generator = generator
        self.server = server

    def measure(self, options: argparse.Namespace) -> dict[str, Any]:
        begin = time.monotonic()
        runs = self._start(options.runs)
        started_s = time.monotonic() - begin
        with Watched(self.product.stack, runs[: options.watched]) as watched, Pages(self.product, runs[-1]) as pages:
            time.sleep(SETTLE_S)
            watch = CpuWatch(self._processes())
            self.generator.ask("measure")
            since, began = time.time(), time.monotonic()
            clicks = self._clicks(options.clicks)
            time.sleep(max(0.0, options.seconds - (time.monotonic() - began)))
            seen, took, until_ = self.generator.ask("look"), time.monotonic() - began, time.time()
            cpu = watch.percent()
            list_s, page_s = pages.list_s[:], pages.page_s[:]
            frames = watched.frame_s(since, until_)
        acked = self.generator.ask("finish")["acked"]
        sent = {attempt.rpartition("-")[0]: seq for attempt, seq in acked.items()}
        stored = kept(self.product.stack.django, sent)
        rows = len(seen["row_s"])
        return {
            "runs_live": len(runs),
            "rows_per_s": round(rows / took, 1),
            "row_p95_ms": one_ms(seen["row_s"], 0.95),
            "watched_p95_ms": one_ms(frames, 0.95),
            "cpu_per_row_us": round(cpu["web"] / 100 * took / rows * 1e6) if rows else math.nan,
            "list_10k_p95_ms": one_ms(list_s, 0.95),
            "rows_lost": stored.lost + stored.twice + stored.never_sent,
            "rows_sent": stored.sent,
            "watched_rows": len(frames),
            "page_p95_ms": one_ms(page_s, 0.95),
            "launch_most_ms": one_ms([each.launch_s for each in clicks], 1.0),
            "stop_most_ms": one_ms([each.stop_s for each in clicks], 1.0),
            "sync_p50_ms": one_ms(seen["sync_s"], 0.5),
            "sync_p99_ms": one_ms(seen["sync_s"], 0.99),
            "syncs_per_s": round(len(seen["sync_s"]) / took, 1),
            "sync_errors": seen["errors"],
            "pages_failed": [*watched.problems, *pages.problems],
            "beat_late_ms": round(seen["late_s"] * 1000),
            "runs_started_s": round(started_s, 1),
            **{f"{name}_cpu_percent": value for name, value in cpu.items()},
        }

    def _start(self, count: int) -> list[str]:
        announce(self.product, slots=count)
        attempts = submit(self.product, count)
        runs = [attempt["run"] for attempt in attempts]
        where = {"host": "127.0.0.1", "port": self.product.stack.installation.port, "name": HOST, "schema": SCHEMA}
        self.generator.ask("claim", attempts=attempts, metrics=20, **where)
        until(lambda: self.product.stack.django(COUNT, runs=runs, status="running") == count, "not all runs train")
        return runs

    def _clicks(self, count: int) -> list[Click]:
        """None, if one isn't answered: an overload is a finding, too."""
        try:
            return [click(self.product) for _ in range(count)]
        except (TimeoutError, httpx.HTTPError) as error:
            print(f"no launch and stop beside the load: {error!r}", file=sys.stderr)
            return []

    def _processes(self) -> dict[str, list[int]]:
        fleet = {name: [pid] for name, pid in self.product.stack.fleet.pids().items()}
        store = {"database": [self.server]} if self.server is not None else {}
        return {**fleet, **store, "generator": [self.generator.pid]}


class Watched:
    """One viewer on each of these runs' pages."""

    def __init__(self, stack: Stack, runs: list[str]) -> None:
        self._stack = stack
        self._runs = runs
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._watch()), name="watched")
        self._seen: list[tuple[float, float]] = []
        self.problems: list[str] = []

    def __enter__(self) -> Watched:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def frame_s(self, since: float, until: float) -> list[float]:
        """Seconds from line to frame, of the lines written between these moments."""
        return [wait for written, wait in self._seen if since <= written < until]

    async def _watch(self) -> None:
        await asyncio.gather(*(self._follow(run) for run in self._runs))

    async def _follow(self, run: str) -> None:
        stack = self._stack
        url = f"{stack.url.replace('http', 'ws', 1)}/ws/runs/{run}/?after=0"
        headers = {"Cookie": "; ".join(f"{name}={value}" for name, value in stack.cookies("viewer").items())}
        try:
            async with websockets.connect(url, origin=stack.url, additional_headers=headers, max_size=None) as ws:
                while not self._stopped.is_set():
                    with contextlib.suppress(TimeoutError):
                        rows = json.loads(await asyncio.wait_for(ws.recv(), 0.5)).get("rows", ())
                        now = time.time()
                        self._seen += [(row[1], now - row[1]) for row in rows if row[3] == "train"]
        except (OSError, websockets.WebSocketException) as error:
            self.problems.append(f"a page's socket: {error!r}")


class Pages:
    """Somebody who loads the list of runs and a run's page, one of them a second."""

    def __init__(self, product: Product, run: str) -> None:
        self._stack = product.stack
        self._run = run
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._load, name="pages")
        self.list_s: list[float] = []
        self.page_s: list[float] = []
        self.problems: list[str] = []

    def __enter__(self) -> Pages:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _load(self) -> None:
        with self._stack.client("viewer") as web:
            while not self._stopped.wait(0.5):
                for path, seconds in (("/runs/", self.list_s), (f"/runs/{self._run}/", self.page_s)):
                    begin = time.monotonic()
                    try:
                        web.get(path).raise_for_status()
                    except httpx.HTTPError as error:
                        self.problems.append(f"{path}: {error!r}")
                    seconds.append(time.monotonic() - begin)
                    self._stopped.wait(0.5)


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1:])))
