"""The charts of a run in a real Chromium: what people choose stays in the address, and no value is hidden from them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.browser.conftest import Complaints, sign_in
from tests.browser.driving import ASSESSED, chart, choose, downloaded, drag, plot, until
from tests.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.processes]

# Eight GPUs are more than the host has, so nothing is started: the test itself says what the supervisor would.
A_RUN = """
from controlplane.catalogue.rewards import saving
from tests.runs.builders import rewards_named
from runs.intake.host_api.ingest import accept
from tests.runs import builders
parts = [{"name": name, "function": "think_tags"} for name in components]
saving.save(rewards_named("tags", parts).config, parts)
hardware = {"rollout": "colocate", "trainer_gpus": 8}
run = builders.a_run("charts", hardware=hardware, grpo={"max_steps": 9000, "beta": 0.04})
attempt = builders.an_attempt(run=run)
lines = [
    builders.train(i, reward=9.0 if i == 777 else i % 7 / 10, loss=0.1, kl=0.01, grad_norm=1.0, num_tokens=100.0 * i)
    for i in range(1, steps + 1)
]
for start in range(0, steps, 1000):
    accept(attempt, lines[start : start + 1000])
result = run.pk
"""
MORE = """
from runs.intake.host_api.ingest import accept
from runs.engine.models import Attempt
from tests.runs import builders
attempt = Attempt.objects.get(run_id=run)
accept(attempt, [builders.train(attempt.last_seq + 1, **values)])
"""
AN_ALERT = """
from django.utils import timezone
from runs.engine.models import Attempt
from runs.engine.records import RunEvent
RunEvent.objects.create(
    run_id=run, attempt=Attempt.objects.get(run_id=run), at=timezone.now(), kind="alert", step=20, actor="health",
    data={"rule": "kl", "level": "bad", "state": "open", "title": "KL drifts", "sentence": "KL drifts away."},
)
"""
TRACES = "id => document.querySelector(`[data-chart='${id}'] [data-plot]`)?.data ?? []"
LINE = f"id => ({TRACES})(id).find(trace => trace.customdata)"
AXIS = "id => document.querySelector(`[data-chart='${id}'] [data-plot]`)?.layout?.xaxis"


@pytest.fixture
def a_run(site: Stack, context: BrowserContext) -> Callable[..., str]:
    sign_in(site, context, "admin")

    def make(steps: int = 30, components: tuple[str, ...] = ("format", "accuracy")) -> str:
        run = str(site.django(A_RUN, steps=steps, components=list(components)))
        site.django(ASSESSED, run=run)
        return run

    return make


def test_a_filter_is_kept_in_the_address(
    site: Stack, a_run: Callable[..., str], page: Page, complaints: Complaints
) -> None:
    page.goto(f"{site.url}/runs/{a_run()}/")
    page.keyboard.press("/")
    page.keyboard.type("policy norm")
    expect(page.locator("[data-chart]:visible")).to_have_count(1)
    expect(page).to_have_url(re.compile(r"c\.filter=policy\+norm"))
    page.reload()
    expect(page.locator("[data-chart]:visible")).to_have_count(1)
    page.get_by_role("searchbox").fill("nothing is called this")
    page.get_by_role("button", name="Show all charts").click()
    expect(chart(page, "reward")).to_be_visible()
    assert complaints.heard == []


def test_a_pin_and_an_order_are_there_after_a_reload_and_titles_are_dragged(
    site: Stack, a_run: Callable[..., str], page: Page
) -> None:
    page.goto(f"{site.url}/runs/{a_run()}/")
    choose(page, "kl", "Pin to the top")
    menu = chart(page, "loss").locator("summary")
    menu.focus()
    page.keyboard.press("Alt+ArrowLeft")
    expect(page.get_by_role("status").filter(has_text="before Entropy")).to_be_attached()
    expect(menu).to_be_focused()
    page.keyboard.press("Alt+ArrowLeft")
    order = order_of(page)
    assert order[0] == "kl"
    assert order.index("loss") < order.index("entropy")
    page.wait_for_url(re.compile("c.order=.*loss"))
    page.reload()
    again = order_of(page)
    assert again[0] == "kl"
    assert again.index("loss") < again.index("entropy")
    page.get_by_role("button", name="Reset the view").click()
    expect(page.locator("[data-group='']")).to_be_hidden()
    chart(page, "grad").locator(".title").drag_to(chart(page, "kl").locator("figcaption"))
    order = order_of(page)
    assert order.index("grad") < order.index("kl")


def test_steps_tokens_and_time_are_three_axes_of_the_same_points_with_the_alerts_on_them(
    site: Stack, a_run: Callable[..., str], page: Page, complaints: Complaints, tmp_path: Path
) -> None:
    run = a_run()
    site.django(AN_ALERT, run=run)
    page.goto(f"{site.url}/runs/{run}/")
    marks = f"({TRACES})('reward').find(trace => trace.text)"
    until(page, lambda: page.evaluate(f"({LINE})('reward')?.x.at(-1)") == 30)
    until(page, lambda: page.evaluate(f"{marks}?.marker.symbol ?? []") == ["diamond"])
    assert page.evaluate(f"{marks}.x") == [20]
    picture = downloaded(page, lambda: choose(page, "reward", "Save as PNG"), tmp_path)
    assert picture.read_bytes().startswith(b"\x89PNG")
    drawing = downloaded(page, lambda: choose(page, "reward", "Save as SVG"), tmp_path)
    assert drawing.read_text().startswith("<svg")
    page.get_by_label("x axis").select_option("Tokens")
    until(page, lambda: page.evaluate(f"({LINE})('reward')?.x.at(-1)") == 3000)
    page.get_by_label("x axis").select_option("Time")
    until(page, lambda: page.evaluate(f"({LINE})('reward')?.x.at(-1)") == 29)
    expect(page).to_have_url(re.compile("c.x=time"))
    assert complaints.heard == []


def test_moments_and_ranges_are_those_of_the_viewers_zone(site: Stack, a_run: Callable[..., str], page: Page) -> None:
    page.context.new_cdp_session(page).send("Emulation.setTimezoneOverride", {"timezoneId": "Asia/Tokyo"})
    page.goto(f"{site.url}/runs/{a_run()}/?c.x=time&c.range=time:1005:1015")
    expect(chart(page, "reward").locator(".xtick").first).to_have_text("5 s")
    plot(page, "reward").hover(position={"x": 80, "y": 60})
    told = chart(page, "reward").locator(".readout")
    expect(told.locator(".where")).to_have_text(re.compile(r"^step \d+ · \d+ tokens · \d+ s · 1970-01-01 09:16:\d\d$"))
    expect(told.locator(".line")).to_have_text(re.compile(r"^reward0(\.\d+)?$"))
    covered = "element => element.getBoundingClientRect().bottom"
    assert told.evaluate("element => element.getBoundingClientRect().top") >= chart(page, "reward").evaluate(covered)
    drag(page, "reward", 60, 160)
    page.wait_for_url(re.compile(r"c\.range=time:10(0|1)\d"))
    page.get_by_label("x axis").select_option("Step")
    until(page, lambda: "c.x=" not in page.url)
    until(page, lambda: 5 <= page.evaluate(f"({AXIS})('reward').range")[0] <= 15)
    assert page.evaluate(f"({AXIS})('reward').range")[1] <= 15


def test_a_look_at_a_part_fetches_what_the_whole_leaves_out(
    site: Stack, a_run: Callable[..., str], page: Page, complaints: Complaints
) -> None:
    page.set_viewport_size({"width": 1440, "height": 1600})
    run = a_run(3000)
    page.goto(f"{site.url}/runs/{run}/")
    until(page, lambda: page.evaluate(f"({LINE})('reward')?.x.length ?? 0") > 0)
    assert 9.0 in page.evaluate(f"({LINE})('reward').customdata")
    whole = page.evaluate(f"({LINE})('reward').x.length")
    assert whole < 3000
    drag(page, "reward", 60, 100)
    until(page, lambda: page.evaluate(f"({AXIS})('reward').autorange") is False)
    low, high = page.evaluate(f"({AXIS})('reward').range")
    every = [step for step in range(1, 3001) if low <= step <= high]
    until(page, lambda: [x for x in page.evaluate(f"({LINE})('reward').x") if low <= x <= high] == every)
    page.wait_for_url(re.compile("c.range=step:"))
    until(page, lambda: page.evaluate(f"({AXIS})('kl')?.range") == [low, high])
    page.reload()
    until(page, lambda: [x for x in page.evaluate(f"({LINE})('reward')?.x ?? []") if low <= x <= high] == every)
    choose(page, "reward", "Show the whole range")
    until(page, lambda: page.evaluate(f"({LINE})('reward').x.length") == whole)
    assert complaints.heard == []


def test_a_link_to_a_view_shows_it_to_whoever_likes_curves_otherwise_and_a_double_click_ends_a_zoom(
    site: Stack, a_run: Callable[..., str], page: Page, complaints: Complaints
) -> None:
    page.set_viewport_size({"width": 1440, "height": 1600})
    page.goto(f"{site.url}/runs/{a_run()}/")
    until(page, lambda: page.evaluate(f"({LINE})('reward')?.x.at(-1)") == 30)
    drag(page, "reward", 60, 200)
    until(page, lambda: page.evaluate(f"({AXIS})('kl')?.autorange") is False)
    page.locator("[data-group=Policy] > summary").click()
    page.wait_for_url(re.compile(r"c\.smooth=0\.6.*c\.turned=Policy"))
    link = page.url
    slider = page.get_by_role("slider", name="Smoothing")
    slider.focus()
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    expect(page.locator("[data-chart-smoothing] output")).to_have_text("0.84")
    page.goto(link.partition("?")[0])
    expect(page).to_have_url(re.compile(r"c\.smooth=0\.84"))
    page.goto(link)
    expect(page.locator("[data-chart-smoothing] output")).to_have_text("0.60")
    expect(chart(page, "kl")).to_be_hidden()
    until(page, lambda: page.evaluate(f"({AXIS})('reward')?.autorange") is False)
    plot(page, "reward").dblclick(position={"x": 80, "y": 60})
    until(page, lambda: "c.range" not in page.url)
    assert page.evaluate(f"({AXIS})('reward').autorange") is True
    assert complaints.heard == []


def test_the_pointer_on_one_chart_is_shown_on_the_others(site: Stack, a_run: Callable[..., str], page: Page) -> None:
    page.set_viewport_size({"width": 1440, "height": 1600})  # a chart that is not on screen is not drawn
    page.goto(f"{site.url}/runs/{a_run()}/")
    until(page, lambda: all(page.evaluate(f"({LINE})('{id_}')") for id_ in ("reward", "kl")))
    for x in (150, 152):
        plot(page, "reward").hover(position={"x": x, "y": 60})
    expect(chart(page, "kl").locator("[data-cursor]")).to_be_visible()
    expect(chart(page, "kl").locator("[data-value]")).to_have_class(re.compile("pointed"))
    expect(chart(page, "reward").locator("[data-cursor]")).to_be_hidden()
    page.mouse.move(5, 5)
    expect(chart(page, "kl").locator("[data-cursor]")).to_be_hidden()


def test_a_metric_that_nobody_foresaw_gets_a_chart_at_once_whose_pin_is_there_after_a_reload(
    site: Stack, a_run: Callable[..., str], page: Page, complaints: Complaints
) -> None:
    run = a_run()
    page.goto(f"{site.url}/runs/{run}/")
    until(page, lambda: page.evaluate(f"({LINE})('reward')?.x.at(-1)") == 30)
    site.django(MORE, run=run, values={"reward": 0.5, "my_own/<b>figure</b>": 0.25})
    mine = page.locator("[data-group=Other] [data-chart]").filter(has_text="my_own/<b>figure</b>")
    expect(mine.locator("[data-value]")).to_have_text("0.250")
    mine.scroll_into_view_if_needed()
    expect(mine).to_have_class(re.compile("drawn"))
    site.django(MORE, run=run, values={"my_own/a,b": 0.25, "my_own/c": 0.5})
    choose(page, "my_own/a,b", "Pin to the top")
    page.wait_for_url(re.compile("c.pin="))
    page.reload()
    pinned = page.locator("[data-group=''] [data-chart]")
    expect(pinned).to_have_attribute("data-chart", "other-my-own")
    assert complaints.heard == []


def test_a_file_has_every_value(site: Stack, a_run: Callable[..., str], page: Page, tmp_path: Path) -> None:
    page.goto(f"{site.url}/runs/{a_run(6000)}/")
    until(page, lambda: page.evaluate(f"({LINE})('reward')?.x.length ?? 0") > 0)
    saved = downloaded(page, lambda: choose(page, "reward", "Save all values as CSV"), tmp_path)
    head, *rows = saved.read_text().splitlines()
    columns = head.split(",")
    steps = [int(row.split(",")[columns.index("step")]) for row in rows]
    assert steps == list(range(1, 6001))
    assert rows[776].split(",")[columns.index("reward")] == "9"


def test_a_large_chart_is_in_the_address_and_goes_back_to_its_place(
    site: Stack, a_run: Callable[..., str], page: Page
) -> None:
    page.goto(f"{site.url}/runs/{a_run()}/?c.large=kl")
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("[data-chart=kl]")).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(page.locator("[data-group=Policy] [data-chart=kl]")).to_be_visible()
    expect(page).not_to_have_url(re.compile("c.large"))


def test_thirty_components_with_long_names_fit_a_phone(
    site: Stack, a_run: Callable[..., str], page: Page, complaints: Complaints
) -> None:
    names = tuple(f"a_component_whose_name_goes_on_and_on_number_{i}" for i in range(30))
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{site.url}/runs/{a_run(5, names)}/")
    page.locator("[data-group='Reward components'] summary").first.click()
    expect(page.locator("[data-group='Reward components'] [data-chart]:visible")).to_have_count(30)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert complaints.heard == []


def order_of(page: Page) -> list[str]:
    ids: list[str] = page.locator("[data-chart]").evaluate_all("all => all.map(chart => chart.dataset.chart)")
    return ids
