"""The completions tab in a real Chromium: long, ugly and many completions, filters, differences, prompts, the map."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.browser import seeing
from tests.browser.conftest import Complaints, sign_in
from tests.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.processes]

A_RUN = """
from tests.browser import completions_data as data
attempt = data.a_run('ugly completions', components)
data.fill(attempt, steps=steps, groups=groups, rows=rows)
result = attempt.run_id
"""
NEXT_STEP = """
from runs.engine.models import Attempt
from tests.browser import completions_data as data
data.fill(Attempt.objects.get(run_id=run), steps=1, first=step)
"""
WIDER_TAB = """() => {
  const tab = document.querySelector('.completions-tab');
  return tab.scrollWidth > tab.clientWidth ? ['wider'] : [];
}"""


@pytest.fixture
def signed_in(site: Stack, context: BrowserContext) -> None:
    sign_in(site, context, "viewer")


def a_run(site: Stack, **more: Any) -> str:
    return str(site.django(A_RUN, **{"components": 3, "steps": 20, "groups": 4, "rows": 20, **more}))


@pytest.fixture
def run(site: Stack, signed_in: None) -> str:
    return a_run(site)


def opened(page: Page, site: Stack, run: str, query: str = "") -> None:
    page.goto(f"{site.url}/runs/{run}/?tab=completions{query}")
    expect(page.locator(".completions-tab")).to_be_visible()


def test_a_filter_is_in_the_address_and_outlives_a_reload(
    site: Stack, run: str, page: Page, complaints: Complaints
) -> None:
    opened(page, site, run)
    expect(page.locator(".found")).to_have_text("32 completions")
    page.get_by_label("Text of prompt or completion").press_sequentially("answer is right")
    expect(page.locator("mark").first).to_have_text("answer is right")
    page.get_by_label("Order").select_option("reward")
    expect(page).to_have_url(re.compile(r"s\.q=answer\+is\+right.*s\.sort=reward"))
    shown = page.locator(".found").inner_text()
    page.reload()
    expect(page.locator(".found")).to_have_text(shown)
    expect(page.get_by_label("Text of prompt or completion")).to_have_value("answer is right")
    assert complaints.heard == []


def test_what_is_typed_while_the_answer_is_being_fetched_is_kept(site: Stack, run: str, page: Page) -> None:
    opened(page, site, run)
    find = page.get_by_label("Text of prompt or completion")
    find.press_sequentially("answer is wrong and so on", delay=60)
    expect(page.get_by_text("No completion matches")).to_be_visible()
    expect(find).to_have_value("answer is wrong and so on")
    expect(find).to_be_focused()


def test_steps_are_walked_by_buttons_and_keys(site: Stack, run: str, page: Page) -> None:
    opened(page, site, run)
    step = page.get_by_label("Step", exact=True)
    expect(step).to_have_value("20")
    page.get_by_role("link", name="Earlier step").click()
    expect(step).to_have_value("19")
    page.keyboard.press("[")
    expect(step).to_have_value("18")
    step.fill("3")
    step.press("Enter")
    expect(step).to_have_value("3")
    expect(page).to_have_url(re.compile(r"s\.step=3"))
    page.get_by_role("link", name="Newest step").click()
    expect(page.get_by_text("following the newest step")).to_be_visible()


def test_the_newest_step_follows_and_waits_for_whoever_reads(site: Stack, run: str, page: Page) -> None:
    opened(page, site, run)
    page.mouse.move(5, 5)
    step = page.get_by_label("Step", exact=True)
    expect(page.locator("html")).to_have_attribute("data-live", "open")
    site.django(NEXT_STEP, run=run, step=21)
    expect(step).to_have_value("21")
    page.locator(".excerpt").first.hover()
    site.django(NEXT_STEP, run=run, step=22)
    expect(page.get_by_role("link", name="Show step 22")).to_be_visible()
    expect(step).to_have_value("21")
    page.get_by_role("link", name="Show step 22").click()
    expect(step).to_have_value("22")


def test_two_completions_of_a_group_are_compared_word_by_word(
    site: Stack, run: str, page: Page, complaints: Complaints
) -> None:
    opened(page, site, run)
    page.get_by_role("link", name="Open group").first.click()
    page.get_by_role("button", name="Show differences").click()
    diff = page.locator("[data-diff]")
    expect(diff.locator("del, ins").first).to_be_visible()
    page.locator("#diff-a").select_option("2")
    page.locator("#diff-b").select_option("2")
    expect(diff).to_contain_text("The two completions are identical.")
    expect(page.locator("[data-completion='4']")).to_contain_text("Result")
    assert complaints.heard == []


def test_a_prompt_is_reached_from_the_map_and_followed_through_the_run(
    site: Stack, run: str, page: Page, complaints: Complaints
) -> None:
    opened(page, site, run)
    page.get_by_role("link", name="Prompts", exact=True).click()
    canvas = page.locator("[data-map] canvas")
    expect(canvas).to_have_attribute("width", re.compile(r"\d+"))
    canvas.hover(position={"x": 20, "y": 5})
    expect(page.locator(".map-tip")).to_contain_text("Row 1:")
    canvas.click(position={"x": 20, "y": 5})
    expect(page.get_by_role("heading", name="Row 1", exact=True)).to_be_visible()
    expect(page.locator("svg.visits circle")).to_have_count(4)
    page.get_by_role("link", name="Oldest first").click()
    expect(page.locator(".group-line a").first).to_have_text(re.compile(r"Step\s+\d$"))
    page.get_by_role("link", name="Prompts").last.click()
    expect(canvas).to_be_visible()
    assert complaints.heard == []


def test_a_table_of_three_components_fits_its_card(site: Stack, run: str, page: Page) -> None:
    opened(page, site, run)
    for width in (1440, 1280, 1024, 768):
        page.set_viewport_size({"width": width, "height": 900})
        beyond = page.locator(".answers-wrap").evaluate("wrap => wrap.scrollWidth - wrap.clientWidth")
        assert (width, beyond) == (width, 0)


def test_the_rows_of_the_chosen_kinds_are_exported(site: Stack, run: str, page: Page) -> None:
    opened(page, site, run, "&s.view=prompts")
    page.get_by_role("checkbox", name="Never solved").uncheck()
    page.get_by_role("checkbox", name="Always solved").uncheck()
    expect(page).to_have_url(re.compile(r"s\.class=sometimes"))
    expect(page.get_by_text(re.compile(r"^Export \d+ rows? as a dataset filter$"))).to_be_visible()
    file = page.get_by_role("link", name="JSON", exact=True)
    expect(file).to_have_attribute("href", re.compile(r"class=sometimes$"))  # the answer to the second click is here
    with page.expect_download() as download:
        file.click()
    assert download.value.suggested_filename == f"{run}-prompts-sometimes.json"


def test_thirty_components_and_ugly_texts_break_no_page(
    site: Stack, signed_in: None, page: Page, complaints: Complaints
) -> None:
    run = a_run(site, components=30, steps=4)
    wide = []
    group = site.django(
        "from runs.engine.records import SampleRow; result = SampleRow.objects.filter(run=run).first().pk", run=run
    )
    for query in ("", "&s.every=1&s.q=a", f"&s.group={group}", "&s.view=prompts", "&s.prompt=7", "&s.view=funnel"):
        opened(page, site, run, query)
        for size in (seeing.PHONE, seeing.WIDE):
            seeing.resize(page, size)
            if seeing.settled(page, WIDER_TAB):
                wide.append((query, size))
    assert wide == []
    opened(page, site, run)
    seeing.resize(page, seeing.PHONE)
    expect(page.get_by_label("Min", exact=True)).to_be_hidden()
    page.get_by_role("button", name="Filters").click()
    expect(page.get_by_label("Min", exact=True)).to_be_visible()
    assert complaints.heard == []


def test_back_leads_from_a_group_and_a_prompt_to_where_they_were_opened(
    site: Stack, run: str, page: Page, complaints: Complaints
) -> None:
    opened(page, site, run, "&s.step=5")
    page.get_by_role("link", name="Open group").first.click()
    page.get_by_role("link", name="This prompt over the run").click()
    expect(page).to_have_url(re.compile(r"s\.prompt="))
    page.go_back()
    expect(page.get_by_role("button", name="Show differences")).to_be_visible()
    page.go_back()
    expect(page.get_by_label("Step", exact=True)).to_have_value("5")
    page.go_forward()
    expect(page.get_by_role("button", name="Show differences")).to_be_visible()
    assert complaints.heard == []


def test_slash_jumps_to_the_field_of_the_open_tab(site: Stack, run: str, page: Page) -> None:
    opened(page, site, run)
    page.keyboard.press("/")
    expect(page.get_by_label("Text of prompt or completion")).to_be_focused()


def test_an_address_of_nothing_says_so(site: Stack, run: str, page: Page) -> None:
    page.goto(f"{site.url}/runs/{run}/?tab=completions&s.prompt=99999")
    page.get_by_role("link", name="All completions").click()
    expect(page.locator(".found")).to_have_text("32 completions")
