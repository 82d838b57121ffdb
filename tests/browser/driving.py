"""What a page of the product shows, read from it as it stands: curves, downloads, the choices of a chart's menu."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import Locator, Page, expect

from tests.waiting import LIMIT_S

# A curve's places are the very array that new points are added to, and may be ahead of what is drawn.
LINES = """id => (document.querySelector(`[data-chart='${id}'] [data-plot]`)?.data ?? [])
  .filter(trace => trace.customdata)
  .map(({name, x, customdata}) => ({name, x: x.slice(0, customdata.length), values: [...customdata]}))"""
MARKS = """id => (document.querySelector(`[data-chart='${id}'] [data-plot]`)?.data ?? []).filter(trace => trace.text)
  .flatMap(trace => trace.x.map((x, i) => [x, trace.text[i]]))"""
COMPARED = """metric => (document.querySelector(`[data-metric='${metric}'] .plot`)?.data ?? [])
  .filter(trace => trace.customdata)
  .map(trace => ({name: trace.name, x: [...trace.x], values: [...trace.customdata]}))"""
WITHOUT = """(whole, part) => {
  const copy = whole.cloneNode(true);
  copy.querySelectorAll(part).forEach(each => each.remove());
  return copy.textContent;
}"""
RANGE = "id => document.querySelector(`[data-chart='${id}'] [data-plot]`)?.layout?.xaxis?.range"
ASSESSED = """
from django.utils import timezone
from runs.insight.health.presets import Presets
from runs.insight.health.tick import look_at
from runs.engine.models import Run
found = Run.objects.get(pk=run)
look_at(found, Presets().of(found), timezone.now())
"""
"""A run has its first verdict: on an open page it would come some time, and move what lies below."""


def chart(page: Page, id_: str) -> Locator:
    return page.locator(f"[data-chart='{id_}']")


def curves(page: Page, id_: str) -> dict[str, dict[float, float]]:
    """Line -> its values by their place on the x axis, once the chart is drawn; charts off the screen are not."""
    chart(page, id_).scroll_into_view_if_needed()
    until(page, lambda: bool(page.evaluate(LINES, id_)), f"the chart {id_} is not drawn")
    return {line["name"]: dict(zip(line["x"], line["values"], strict=True)) for line in page.evaluate(LINES, id_)}


def since_first(points: dict[float, float]) -> dict[float, float]:
    """Points by the seconds since the first of them: the axis begins with the first point of all curves."""
    return {round(moment - min(points), 2): value for moment, value in points.items()}


def compared(page: Page, metric: str) -> dict[str, dict[float, float]]:
    """Run -> its curve in the comparison, as far as it is drawn; a chart off the screen is not."""
    page.locator(f"[data-metric='{metric}']").scroll_into_view_if_needed()
    found = page.evaluate(COMPARED, metric)
    return {line["name"]: dict(zip(line["x"], line["values"], strict=True)) for line in found}


def choose(page: Page, id_: str, act: str) -> None:
    """From a chart's menu."""
    chart(page, id_).locator("summary").click()
    chart(page, id_).get_by_role("button", name=act).click()


def zoom(page: Page, id_: str, start: float, end: float) -> tuple[float, float]:
    """Drags over so much of a chart's width (0 to 1); answers the range that it then shows."""
    before = page.evaluate(RANGE, id_)
    chart(page, id_).scroll_into_view_if_needed()
    box = plot(page, id_).bounding_box()
    assert box
    drag(page, id_, start * box["width"], end * box["width"])
    until(page, lambda: page.evaluate(RANGE, id_) != before, f"the chart {id_} was not zoomed")
    low, high = page.evaluate(RANGE, id_)
    return low, high


def plot(page: Page, id_: str) -> Locator:
    """Of a chart, where the pointer zooms."""
    return chart(page, id_).locator(".nsewdrag").first


def drag(page: Page, id_: str, start: float, end: float) -> None:
    """Over a chart, from one place to another, in px from its left."""
    drag_over(page, plot(page, id_), start, end)


def drag_over(page: Page, area: Locator, start: float, end: float) -> None:
    # Hovering waits until it stands still and nothing covers it.
    area.hover(position={"x": start, "y": 40})
    page.mouse.down()
    box = area.bounding_box()
    assert box
    page.mouse.move(box["x"] + end, box["y"] + 42, steps=5)
    page.mouse.up()


def downloaded(page: Page, click: Callable[[], None], to: Path) -> Path:
    with page.expect_download() as saved:
        click()
    path = to / saved.value.suggested_filename
    saved.value.save_as(path)
    return path


def columns(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def documents(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def without(whole: Locator, part: str) -> str:
    """The text of an element that is left when some of its parts are taken away."""
    text: str = whole.evaluate(WITHOUT, part)
    return text


def seconds(duration: Locator) -> int:
    """Of 2 min 3 s or 42 s."""
    units = {"s": 1, "min": 60, "h": 3600}
    words = duration.inner_text().split()
    return sum(int(number) * units[unit] for number, unit in zip(words[::2], words[1::2], strict=True))


def until(page: Page, seen: Callable[[], object], problem: str = "it did not come") -> None:
    """The browser's own waiting would need eval, which pages refuse."""
    deadline = time.monotonic() + LIMIT_S
    while not seen():
        assert time.monotonic() < deadline, f"{problem} within {LIMIT_S:g} s"
        page.wait_for_timeout(100)


def stop_training(page: Page) -> None:
    """On the run's page: the fake trainer goes on for ever, in the one slot that another test's run waits for."""
    page.locator("#run-actions summary", has_text="Stop").click()
    page.get_by_role("button", name="Stop now").first.click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Nothing is saved")
    dialog.get_by_role("button", name="Stop now").click()
    expect(page.locator("#run-status .chip.stopped")).to_be_visible()
    expect(page.locator("#run-chips summary", has_text="Resources released")).to_be_visible()
