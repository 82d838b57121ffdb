"""A real Chromium on a page of a stack: when a figure and a chart had a step, what the main thread did, its heap."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, CDPSession, Page, sync_playwright

from tests.stack import Stack

FLAGS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-background-networking", "--disable-gpu"]
WIDE = {"width": 1440, "height": 900}
LIMIT_S = 60.0
# Runs before anything of the page: notes by the page's own clock when the reward's figure and its chart first had a
# step (its value is the step's number), and when charts were first drawn.
WATCH = """
window.seen = {figure: [], drawn: [], charts: []};
const put = (list, step) => {
  if (Number.isFinite(step) && (!list.length || step > list[list.length - 1][0])) list.push([step, Date.now()]);
};
const look = () => {
  const figure = document.querySelector('[data-tile="reward"] [data-figure]');
  if (figure) put(seen.figure, Number(figure.textContent.replace(/[^0-9.]/g, "")));
  const charts = document.querySelectorAll(".chart.drawn").length;
  while (seen.charts.length < charts) seen.charts.push(performance.now());
  const plot = document.querySelector('[data-chart="reward"] [data-plot]');
  if (plot && plot.on && !plot.dataset.watched) {
    plot.dataset.watched = "yes";
    const last = (trace) => trace.x[trace.x.length - 1];
    plot.on("plotly_afterplot", () => requestAnimationFrame(() =>
      put(seen.drawn, Math.max(...plot.data.filter((t) => t.customdata && t.x.length).map(last)))));
  }
};
document.addEventListener("DOMContentLoaded", () =>
  new MutationObserver(look).observe(document.body, {subtree: true, childList: true, characterData: true,
    attributes: true, attributeFilter: ["class"]}));
"""
TOPS = "(charts) => charts.map((chart) => chart.getBoundingClientRect().top + scrollY).sort((a, b) => a - b)"
ON_SCREEN = """(charts) => charts.map((chart) => chart.getBoundingClientRect())
  .filter(({top, bottom}) => bottom > 0 && top < innerHeight).length"""
SPIKES = """(spike) => {
  const traces = document.querySelector('[data-chart="reward"] [data-plot]').data.filter((t) => t.customdata);
  return new Set(traces.flatMap((t) => t.x.filter((x, i) => t.customdata[i] === spike))).size;
}"""


NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
SHELL = "chromium-headless-shell"
"""The same engine without a browser's own windows, which without a screen cost more than our pages."""


def program(*names: str) -> str | None:
    """The path of the first of these that is installed."""
    return next(filter(None, map(shutil.which, names)), None)


def found() -> str:
    """What people have, a whole Chromium, or its shell."""
    path = program(*NAMES, SHELL)
    if path is None:
        raise RuntimeError("this benchmark needs a Chromium: apt install chromium")
    return path


@contextmanager
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found(), args=FLAGS)
        yield browser
        browser.close()


@contextmanager
def opened(browser: Browser, stack: Stack, path: str) -> Iterator[tuple[Page, CDPSession]]:
    """A signed-in page, watched from before its first byte."""
    context = browser.new_context(viewport=WIDE)
    context.set_default_timeout(60_000)
    context.add_cookies([{"name": k, "value": v, "url": stack.url} for k, v in stack.cookies("operator").items()])
    page = context.new_page()
    page.add_init_script(WATCH)
    page.goto(f"{stack.url}{path}")
    yield page, context.new_cdp_session(page)
    context.close()


def show_charts(page: Page, count: int) -> int:
    """Make the window so high that it shows so many charts and nothing of the next; answers how many it shows."""
    tops = page.locator(".chart:visible").evaluate_all(TOPS)
    if len(tops) > count:
        page.set_viewport_size({**WIDE, "height": math.floor(tops[count])})
    return int(page.locator(".chart:visible").evaluate_all(ON_SCREEN))


def main_thread_s(session: CDPSession) -> float:
    """Seconds that the page's main thread was in tasks, since it began."""
    session.send("Performance.enable")
    metrics = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
    return float(metrics["TaskDuration"])


def heap_mb(session: CDPSession) -> float:
    """JavaScript's heap after a collection, and the nodes of the page, which leak as often."""
    session.send("HeapProfiler.collectGarbage")
    return float(session.send("Runtime.getHeapUsage")["usedSize"]) / 1e6


def first_paint_s(page: Page) -> float:
    """From the start of the navigation until something of the page's content was on the screen."""
    paints = "performance.getEntriesByName('first-contentful-paint').map((entry) => entry.startTime)"
    deadline = time.monotonic() + LIMIT_S
    while not (found := page.evaluate(paints)):
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing was painted within {LIMIT_S:.0f} s")
        page.wait_for_timeout(20)
    return float(found[0]) / 1000


def charts_drawn_s(page: Page, count: int) -> float:
    """From the start of the navigation until so many charts were drawn."""
    deadline = time.monotonic() + LIMIT_S
    while page.evaluate("seen.charts.length") < count:  # wait_for_function is an eval, which the page's policy refuses
        if time.monotonic() > deadline:
            raise TimeoutError(f"{count} charts were not drawn within {LIMIT_S:.0f} s")
        page.wait_for_timeout(20)
    return float(page.evaluate("(count) => seen.charts[count - 1]", count)) / 1000


def seen(page: Page) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = page.evaluate("seen")
    return found
