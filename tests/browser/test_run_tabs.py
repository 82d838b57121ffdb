"""The parts of a run's page as places to come back to, and what long names and many things do to pages."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import BrowserContext, Page, Route, expect

from tests.browser import seeing
from tests.browser.conftest import Complaints, sign_in
from tests.browser.driving import until
from tests.browser.test_completions import a_run
from tests.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.processes]

END_SEEN = "(end) => end.getBoundingClientRect().right <= end.closest('h1').getBoundingClientRect().right"
LONG = "a-name-that-somebody-made-of-every-setting-there-is-" * 3
NAMED = """
from runs.engine.models import Run
Run.objects.filter(pk=run).update(name=name[:120], tags=["math", "baseline"])
"""
MANY = """
from runs.intake.host_api import ingest
from tests.runs import builders
result = []
for number in range(20):
    run = builders.a_run(f"one of many {number}", hardware={"rollout": "colocate", "trainer_gpus": 8})
    attempt = builders.an_attempt(run=run)
    ingest.accept(attempt, [builders.train(seq, reward=seq / 100) for seq in range(1, 40)])
    result.append(attempt.run_id)
"""


FULL = """
from runs.engine.models import Run
health = {"verdict": "warning", "findings": [{"level": "warning", "title": "Entropy collapse", "rule": "x"}]}
columns = {"tags": ["math", "baseline", "third"], "step": 1234, "max_steps": 12_000}
Run.objects.filter(pk__in=runs).update(health=health, last_metrics={"reward": 0.39, "step_time": 12.0}, **columns)
"""

WITHIN = """(all) => all.every((title) => [...title.querySelectorAll(".ends > span, .tag")].every((part) =>
  part.getBoundingClientRect().right <= title.getBoundingClientRect().right + 1))"""


@pytest.fixture
def run(site: Stack, context: BrowserContext) -> str:
    sign_in(site, context, "viewer")
    return a_run(site, components=30)


def chosen(page: Page, name: str) -> None:
    expect(page.get_by_role("tab", name=name)).to_have_attribute("aria-selected", "true")
    expect(page.locator(f"[data-panel={name.lower()}]")).to_be_visible()


def test_a_tab_opened_without_a_network_says_so_and_comes_with_it(
    site: Stack, run: str, page: Page, context: BrowserContext
) -> None:
    page.goto(f"{site.url}/runs/{run}/")
    context.set_offline(True)
    for name in ("Events", "Completions"):
        page.get_by_role("tab", name=name).click()
        expect(page.locator(f"[data-panel={name.lower()}]")).to_contain_text("The control plane isn't responding")
    context.set_offline(False)
    expect(page.locator("[data-panel=completions] .panel-skeleton")).to_be_hidden()


def test_back_and_forward_lead_through_the_tabs(site: Stack, run: str, page: Page, complaints: Complaints) -> None:
    page.goto(f"{site.url}/runs/")
    page.goto(f"{site.url}/runs/{run}/")
    for name in ("Logs", "Spec", "Charts"):
        page.get_by_role("tab", name=name).click()
        chosen(page, name)
    page.get_by_role("tab", name="Charts").click()  # where one is already: no place of its own
    for name in ("Spec", "Logs", "Charts"):
        page.go_back()
        chosen(page, name)
    page.go_forward()
    chosen(page, "Logs")
    expect(page).to_have_url(re.compile(r"[?]tab=logs"))
    page.go_back()
    page.go_back()
    expect(page).to_have_url(f"{site.url}/runs/")
    assert complaints.heard == []


def test_what_is_filtered_within_a_tab_is_no_place_and_is_still_said_after_back(
    site: Stack, run: str, page: Page
) -> None:
    page.goto(f"{site.url}/runs/{run}/?tab=spec")
    page.get_by_role("tab", name="Charts").click()
    page.get_by_placeholder("Filter charts").press_sequentially("reward")
    expect(page).to_have_url(re.compile("c.filter=reward"))
    page.get_by_role("tab", name="Events").click()
    page.go_back()
    chosen(page, "Charts")
    expect(page.get_by_placeholder("Filter charts")).to_have_value("reward")
    expect(page).to_have_url(re.compile("c.filter=reward"))
    page.go_back()
    chosen(page, "Spec")
    page.get_by_role("tab", name="Charts").click()
    expect(page).to_have_url(re.compile("c.filter=reward"))


def test_the_export_is_of_the_filter_that_was_just_chosen(site: Stack, run: str, page: Page) -> None:
    page.goto(f"{site.url}/runs/{run}/?tab=completions&s.view=prompts")
    link = page.get_by_role("link", name="JSON", exact=True)
    expect(link).to_have_attribute("href", re.compile("class=never,sometimes,always"))
    held: list[Route] = []
    page.route("**/prompts/?**", lambda route: held.append(route))
    page.get_by_role("checkbox", name="Always solved").uncheck()
    expect(link).to_have_attribute("href", re.compile("class=never%2Csometimes(&|$)"))
    page.get_by_role("checkbox", name="Never solved").uncheck()
    expect(link).to_have_attribute("href", re.compile("class=sometimes(&|$)"))
    expect(page.get_by_text("Export the selected rows as a dataset filter")).to_be_visible()
    until(page, lambda: len(held) == 2, "the second was not asked for")
    held[-1].continue_()
    expect(page.get_by_text(re.compile(r"Export \d+ rows? as a dataset filter"))).to_be_visible()
    expect(link).to_have_attribute("href", re.compile("class=sometimes$"))


def test_a_long_name_is_one_line_and_whole_in_the_menu(site: Stack, run: str, page: Page) -> None:
    site.django(NAMED, run=run, name=LONG)
    page.goto(f"{site.url}/runs/{run}/")
    heading, whole = page.get_by_role("heading", level=1), page.locator(".popup .full-name")
    expect(heading.locator(".run-name")).to_have_attribute("title", LONG[:120])
    page.locator("#run-actions .more summary").click()
    expect(whole).to_have_text(LONG[:120])
    for size in (seeing.PHONE, seeing.WIDE):
        seeing.resize(page, size)
        assert heading.evaluate("(h) => h.getBoundingClientRect().height") <= 28
        assert whole.evaluate("(d) => d.scrollWidth <= d.clientWidth")
    seeing.resize(page, seeing.PHONE)
    assert heading.locator(".end").evaluate(END_SEEN), "runs of a sweep differ there"
    seeing.resize(page, (768, 1024))
    assert heading.locator(".end").evaluate(END_SEEN)


def test_tags_beside_a_long_name_are_whole(site: Stack, run: str, page: Page) -> None:
    site.django(NAMED, run=run, name=LONG)
    page.goto(f"{site.url}/runs/")
    tags = page.locator(f"#row-{run} .tag")
    expect(tags).to_have_text(["math", "baseline"])
    assert tags.evaluate_all("(all) => all.every((tag) => tag.scrollWidth <= tag.clientWidth)")
    assert page.locator(f"#row-{run} a.name").evaluate("(name) => name.clientWidth") > 60


def test_thirty_components_have_a_head_of_two_lines(site: Stack, run: str, page: Page) -> None:
    page.goto(f"{site.url}/runs/{run}/?tab=completions")
    head = page.locator(".answers thead")
    expect(head).to_be_visible()
    assert head.evaluate("(h) => h.getBoundingClientRect().height") < 52
    seeing.resize(page, (768, 1024))
    assert head.evaluate("(h) => h.getBoundingClientRect().height") < 52
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "the table scrolls, not the page"


def test_the_first_curves_of_twenty_runs_are_in_sight(site: Stack, run: str, page: Page) -> None:
    ids = site.django(MANY)
    first, rows = page.locator("#curve-grid .chart").first, page.locator("#compare-table")
    for size in (seeing.WIDE, seeing.PHONE):
        seeing.resize(page, size)
        page.goto(f"{site.url}/runs/compare/?runs={','.join(ids)}")
        expect(first.locator(".main-svg").first).to_be_visible()
        box = first.bounding_box()
        assert box is not None
        assert box["y"] + 100 < size[1]
        assert rows.evaluate("(r) => r.scrollHeight > r.clientHeight")
        page.get_by_label("All 20 at once").check()
        assert rows.evaluate("(r) => r.scrollHeight <= r.clientHeight + 1")


def test_a_laptop_shows_every_column_and_the_preflight_and_a_phone_what_a_tab_holds(
    site: Stack, context: BrowserContext, page: Page
) -> None:
    runs = site.django(MANY)
    site.django(FULL, runs=runs)
    sign_in(site, context)
    for width in (1024, 1280, 1440):
        page.set_viewport_size({"width": width, "height": 768})
        page.goto(f"{site.url}/runs/?q=one of many")
        assert page.locator(".table-wrap").evaluate("(wrap) => wrap.scrollWidth - wrap.clientWidth") == 0, width
        assert page.locator("#run-list .title").evaluate_all(WITHIN), width
    page.set_viewport_size({"width": 1024, "height": 768})
    page.goto(f"{site.url}/runs/new/")
    expect(page.locator("#preflight .verdict")).to_be_in_viewport()
    page.set_viewport_size({"width": 768, "height": 1024})
    page.goto(f"{site.url}/runs/{runs[0]}/")
    expect(page.get_by_role("tab", name="Spec")).to_be_in_viewport(ratio=1)  # beside Stop
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{site.url}/runs/{runs[0]}/")
    strip = "document.querySelector('.tabs').getBoundingClientRect().bottom / innerHeight"
    assert page.evaluate(strip) < 0.3
    page.get_by_role("tab", name="Events").click()
    assert page.evaluate(strip) < 0.3
    expect(page.locator("[data-panel=events] .card").first).to_be_in_viewport(ratio=1)
