"""From a metric line to a browser, and from a click to a process, through the whole product.

Everything is real (supervisor, sync, ingest, Valkey, websocket) but the trainer, which writes 20 metrics a line on a
beat. Frames: line written -> frame received, at 1 and at 200 viewers in one process beside it. Clicks: the POST of
the New run page -> the trainer's first act; the POST of Stop -> nothing of its tree is left.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import math
import sys
import time
from typing import Any

import websockets

from tests.benchmarks._clicks import click
from tests.benchmarks._figures import percentile
from tests.benchmarks._product import Product

STORED = """
from controlplane.setup.serving.outcome import rows_stored
from runs.engine.models import Attempt
result = rows_stored(Attempt.objects.get(run_id=run))
"""
TOOK = """
from runs.engine.models import Attempt
attempt = Attempt.objects.get(run_id=run)
result = (attempt.ended_at - attempt.started_at).total_seconds()
"""


def main(argv: list[str] | None = None) -> dict[str, Any]:
    options = _options(argv or [])
    logging.getLogger("httpx").setLevel(logging.WARNING)
    product = Product()
    try:
        bench = Live(product)
        figures: dict[str, Any] = {}
        for viewers in (1, options.viewers):
            frames = bench.frames(viewers, options.seconds)
            figures[f"frame_p50_ms_{viewers}"] = round(percentile(frames, 0.5) * 1000, 1)
            figures[f"frame_p95_ms_{viewers}"] = round(percentile(frames, 0.95) * 1000, 1)
            figures[f"frames_{viewers}"] = len(frames)
        figures["ingest_rows_per_s"] = round(bench.ingest(options.rows))
        clicks = [click(product) for _ in range(options.clicks)]
        figures["launch_ms_p50"] = round(percentile([each.launch_s for each in clicks], 0.5) * 1000)
        figures["stop_ms_p50"] = round(percentile([each.stop_s for each in clicks], 0.5) * 1000)
        return {**figures, "rows_lost": bench.rows_lost()}
    finally:
        product.close()


def _options(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench live", description=__doc__)
    parser.add_argument("--viewers", type=int, default=200, help="viewers of the second round")
    parser.add_argument("--seconds", type=float, default=15.0, help="length of each round")
    parser.add_argument("--rows", type=int, default=20_000, help="lines of the ingest burst")
    parser.add_argument("--clicks", type=int, default=5, help="launches and stops")
    return parser.parse_args(argv)


class Live:
    def __init__(self, product: Product) -> None:
        self.product = product

    def frames(self, viewers: int, seconds: float) -> list[float]:
        """Seconds from line to frame, of every row that every viewer received."""
        run = self.product.launch(pause_s=0.2)
        latencies = asyncio.run(self._watch(run, viewers, seconds))
        self.product.stop(run)
        return latencies

    async def _watch(self, run: str, viewers: int, seconds: float) -> list[float]:
        latencies: list[float] = []
        since = math.inf
        stack = self.product.stack
        url = f"{stack.url.replace('http', 'ws', 1)}/ws/runs/{run}/?after=0"
        cookie = "; ".join(f"{name}={value}" for name, value in stack.cookies("viewer").items())

        async def view() -> None:
            headers = {"Cookie": cookie}
            async with websockets.connect(url, origin=stack.url, additional_headers=headers, max_size=None) as ws:
                async for text in ws:
                    now = time.time()
                    # What was written before everybody watched is a viewer's catching up, not the way of a line.
                    rows = json.loads(text).get("rows", ())
                    latencies.extend(now - row[1] for row in rows if row[3] == "train" and row[1] >= since)

        tasks = [asyncio.create_task(view()) for _ in range(viewers)]
        # Until everybody is connected and the run counts as watched.
        await asyncio.sleep(3 + viewers / 50)
        since = time.time()
        await asyncio.sleep(seconds)
        failed = [task for task in tasks if task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if failed:
            raise RuntimeError(f"{len(failed)} of {viewers} viewers lost their connection")
        return latencies

    def ingest(self, rows: int) -> float:
        """Rows a second from the trainer's file into the store, while nobody watches."""
        run = self.product.launch(pause_s=0, steps=rows)
        self.product.wait(run, "succeeded")
        return rows / float(self.product.stack.django(TOOK, run=run))

    def rows_lost(self) -> int:
        """Metric lines that never reached the outbox, and outbox lines that are not in the store."""
        lost = 0
        for run in self.product.runs:
            folder = self.product.folder(run)
            outbox = (folder / "outbox.jsonl").read_bytes().splitlines()
            logged = (folder / "metrics.jsonl").read_bytes().count(b'"kind":"train"')
            sent = sum(b'"kind":"train"' in line for line in outbox)
            lost += (logged - sent) + (len(outbox) - int(self.product.stack.django(STORED, run=run)))
        return lost


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1:])))
