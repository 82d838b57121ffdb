"""What a run page, the list and the comparison cost, in a real Chromium on a real server.

Live: 26 metrics twice a second, one Chromium and 19 socket clients: line written -> figure on the page, -> drawn on a
chart; the main thread with 24 charts, of which 6 are on screen; the page's heap while an hour of steps comes in
quickly. Stored: a run of 100,000 steps and one of 1,000,000 (server, all charts on screen drawn on a first visit,
one-step spikes that are still on the chart), a list of 10,000 runs, the answer with 10 metrics of 50 runs for
a comparison, and its page with 20 of them, as many as it draws. Many: 1,000 viewers of one run, and 200 runs with 50
metrics.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser

from tests.benchmarks import _chromium, _page_figures, _stored
from tests.benchmarks._crowd import Crowd
from tests.benchmarks._first_visit import Visitor
from tests.benchmarks._product import Product, until
from tests.benchmarks._stored_rows import SPIKE
from tests.benchmarks._viewers import Viewers

PACE_S = 0.5
OTHERS = 19
CHARTS = 24
ON_SCREEN = 6
VISITS = 5
ASKED = 60
FORMAT = ("rewards/format/mean", "rewards/format/std", "frac_reward_zero_std")
LONG = ("reward", "reward_std", *FORMAT, "kl", "entropy", "loss", "grad_norm", "completions/mean_length", "step_time")
COMPARED = ("reward", "kl", "entropy", "loss", "grad_norm", "step_time", "learning_rate", "a", "b", "c")


def main(argv: list[str] | None = None) -> dict[str, Any]:
    options = _options(argv or [])
    logging.getLogger("httpx").setLevel(logging.WARNING)
    product = Product(GRPO_CPU_SLOTS=str(max(4, options.supervisors)))
    figures: dict[str, Any] = {}
    try:
        with _chromium.chromium() as browser:
            for part in options.parts.split(","):
                figures |= PARTS[part](product, browser, options)
        return figures
    finally:
        product.close()


def _options(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench page", description=__doc__)
    parser.add_argument("--parts", default=",".join(PARTS), help="some of them, with commas")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long a live page is watched")
    parser.add_argument("--listed", type=int, default=10_000, help="runs in the list")
    parser.add_argument("--compared", type=int, default=50, help="runs in one answer of a comparison's numbers")
    parser.add_argument("--viewers", type=int, default=1000, help="viewers of one run")
    parser.add_argument("--runs", type=int, default=200, help="runs at once")
    parser.add_argument("--supervisors", type=int, default=4, help="of them with real supervisors")
    parser.add_argument("--metrics", type=int, default=50, help="metrics of each of these runs")
    parser.add_argument("--crowd-seconds", type=float, default=600.0, help="how long they train")
    return parser.parse_args(argv)


def _live(product: Product, browser: Browser, options: argparse.Namespace) -> dict[str, Any]:
    run = product.launch(pause_s=PACE_S, wide=True)
    with (
        Viewers(product.stack, run, OTHERS) as others,
        _chromium.opened(browser, product.stack, f"/runs/{run}/") as (page, session),
    ):
        until(lambda: page.locator(".chart").count() >= CHARTS, "the charts are not there")
        shown = _chromium.show_charts(page, ON_SCREEN)
        _chromium.charts_drawn_s(page, shown)
        since, busy = time.time(), _chromium.main_thread_s(session)
        page.wait_for_timeout(options.seconds * 1000)
        took, busy = time.time() - since, _chromium.main_thread_s(session) - busy
        seen = _chromium.seen(page)
        charts = page.locator(".chart").count()
        frames = others.frame_s()
    written = _written(product.folder(run), since)
    figure, chart = (_latencies(written, seen[name]) for name in ("figure", "drawn"))
    product.stop(run)
    return _page_figures.live(
        figure_s=figure, drawn_s=chart, others_s=frames, busy_s=busy, took_s=took, charts=charts, shown=shown
    )


def _heap(product: Product, browser: Browser, options: argparse.Namespace) -> dict[str, Any]:
    """An hour of a step a second, twenty times as fast; the heap once the columns are full, and at the end."""
    steps = 3600
    run = product.launch(pause_s=0.05, steps=steps)
    with _chromium.opened(browser, product.stack, f"/runs/{run}/") as (page, session):
        _chromium.charts_drawn_s(page, 1)
        heaps = []
        for share in (0.5, 1.0):
            until(lambda share=share: _step(product, run) >= share * steps, "the steps don't come in", limit_s=900)  # type: ignore[misc]
            page.wait_for_timeout(2000)
            heaps.append(_chromium.heap_mb(session))
    product.wait(run, "succeeded")
    return _page_figures.heap(*heaps)


def _step(product: Product, run: str) -> int:
    found: int = product.stack.django(
        "from runs.engine.models import Run\nresult = Run.objects.get(pk=run).step", run=run
    )
    return found


def _long(product: Product, browser: Browser, options: argparse.Namespace) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for name, steps in (("100k", 100_000), ("1m", 1_000_000)):
        spikes = [round((n + 0.5) * steps / _stored.SPIKES) for n in range(_stored.SPIKES)]
        metrics = LONG if name == "100k" else ("reward", *FORMAT)
        run = _stored.long_run(product.stack, product.page, name=name, steps=steps, metrics=metrics, spikes=spikes)
        answers = [_get_s(product, f"/runs/{run}/series.json?metrics=reward") for _ in range(ASKED)]
        seen = _first_charts(product, run)
        with _chromium.opened(browser, product.stack, f"/runs/{run}/") as (page, _):
            _chromium.charts_drawn_s(page, 1)
            kept = page.evaluate(_chromium.SPIKES, SPIKE)
        took = [seconds for _, seconds in seen]
        figures |= _page_figures.long(name, answers_s=answers, first_s=took, first_charts=seen[0][0], spikes=kept)
    return figures


def _first_charts(product: Product, run: str) -> list[tuple[int, float]]:
    """Of several first visits: the charts on screen, and seconds until every one of them was drawn."""
    with Visitor() as visitor:
        cookies = product.stack.cookies("operator")
        return [visitor.charts_s(f"{product.stack.url}/runs/{run}/", cookies) for _ in range(VISITS)]


def _list(product: Product, browser: Browser, options: argparse.Namespace) -> dict[str, Any]:
    _stored.many_runs(product.stack, product.page, options.listed)
    whole = [_get_s(product, "/runs/") for _ in range(ASKED)]
    part = [_get_s(product, "/runs/", **{"HX-Request": "true"}) for _ in range(ASKED)]
    return _page_figures.listed(whole_s=whole, part_s=part, count=options.listed)


def _compare(product: Product, browser: Browser, options: argparse.Namespace) -> dict[str, Any]:
    runs = [
        _stored.long_run(product.stack, product.page, name=f"compared {n}", steps=10_000, metrics=COMPARED)
        for n in range(options.compared)
    ]
    names, ids = ",".join(COMPARED), ",".join(runs)
    server = _get_s(product, f"/runs/compare/series.json?runs={ids}&metrics={names}")
    with _chromium.opened(browser, product.stack, f"/runs/compare/?runs={','.join(runs[:20])}") as (page, _):
        paint = _chromium.first_paint_s(page)
        page.locator(".chart").first.scroll_into_view_if_needed()
        drawn = _chromium.charts_drawn_s(page, 1)
    return _page_figures.compared(server_s=server, paint_s=paint, drawn_s=drawn, count=options.compared)


def _viewers(product: Product, browser: Browser, options: argparse.Namespace) -> dict[str, Any]:
    run = product.launch(pause_s=PACE_S)
    figures = Viewers.measure(product.stack, run, options.viewers, options.seconds)
    product.stop(run)
    return figures


def _crowd(product: Product, browser: Browser, options: argparse.Namespace) -> dict[str, Any]:
    with Crowd(product, runs=options.runs, supervisors=options.supervisors, metrics=options.metrics) as crowd:
        crowd.start()
        found = crowd.measure(options.crowd_seconds)
        kept = crowd.finish()
    return _page_figures.crowd(
        lost=kept.lost,
        sent=kept.sent,
        twice=kept.twice,
        runs=options.runs,
        metrics=options.metrics,
        seconds=options.crowd_seconds,
        found=found,
    )


PARTS = {
    "live": _live,
    "heap": _heap,
    "long": _long,
    "list": _list,
    "compare": _compare,
    "viewers": _viewers,
    "crowd": _crowd,
}


def _written(folder: Path, since: float) -> dict[int, float]:
    """Step -> when the trainer wrote its line, of the steps after `since`."""
    lines = [json.loads(text) for text in (folder / "metrics.jsonl").read_text().splitlines()]
    return {line["step"]: line["t"] for line in lines if line["kind"] == "train" and line["t"] >= since}


def _latencies(written: dict[int, float], seen: list[list[float]]) -> list[float]:
    """Of each step: from its line until something of it, or of a later step, was there."""
    waits = []
    for step, at in written.items():
        shown = next((t for number, t in seen if number >= step), None)
        if shown is not None:
            waits.append(shown / 1000 - at)
    return waits


def _get_s(product: Product, path: str, **headers: str) -> float:
    begin = time.perf_counter()
    answer = product.web.get(path, headers=headers)
    took = time.perf_counter() - begin
    answer.raise_for_status()
    return took


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1:])))
