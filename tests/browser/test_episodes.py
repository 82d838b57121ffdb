"""Episodes in a real Chromium: by turn, found by tool and error, and two visits of a prompt beside each other."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.browser.conftest import Complaints, sign_in
from tests.browser.test_completions import WIDER_TAB, opened
from tests.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.processes]

A_RUN = """
from runs.engine.records import SampleRow
from tests.browser import episodes_data as data
attempt = data.a_run('episodes')
data.fill(attempt, steps=12)
result = [attempt.run_id, SampleRow.objects.filter(run=attempt.run_id).latest('pk').pk]
"""


@pytest.fixture
def shown(site: Stack, context: BrowserContext) -> tuple[str, int]:
    sign_in(site, context, "viewer")
    run, group = site.django(A_RUN)
    return run, group


def test_an_episode_is_read_by_turn_and_folds_what_is_long(
    site: Stack, shown: tuple[str, int], page: Page, complaints: Complaints
) -> None:
    run, group = shown
    opened(page, site, run, f"&s.group={group}")
    thinking = page.locator(".part.thinking").first
    expect(thinking.locator("pre")).to_be_hidden()
    thinking.locator("summary").click()
    expect(thinking.locator("pre")).to_be_visible()
    expect(page.locator(".part.masked").first).to_contain_text("no loss")
    assert complaints.heard == []


def test_failed_calls_of_a_tool_are_found(site: Stack, shown: tuple[str, int], page: Page) -> None:
    opened(page, site, shown[0], "&s.every=1")
    page.get_by_label("Calls tool").select_option("search")
    page.get_by_role("combobox", name="Failed call").select_option("any")
    expect(page).to_have_url(re.compile(r"s\.tool=search.*s\.error=any"))
    expect(page.locator("tr:not(.group-head) td[data-label='Turns'] .bad").first).to_contain_text("failed")


def test_two_visits_of_a_prompt_are_chosen_and_read_by_turn(site: Stack, shown: tuple[str, int], page: Page) -> None:
    opened(page, site, shown[0], "&s.prompt=1")
    page.get_by_label("from the best of").select_option(index=2)
    expect(page).to_have_url(re.compile(r"s\.before=\d+\.\d"))
    expect(page.locator(".turn-pairs > li").first).to_contain_text("Turn 1")


@pytest.mark.parametrize("query", ["", "group", "prompt"])
@pytest.mark.parametrize("width", [1440, 390])
def test_episodes_fit_in_both_widths(site: Stack, shown: tuple[str, int], page: Page, width: int, query: str) -> None:
    run, group = shown
    page.set_viewport_size({"width": width, "height": 900})
    opened(page, site, run, {"": "", "group": f"&s.group={group}", "prompt": "&s.prompt=1"}[query])
    expect(page.locator(".episode, .answers").first).to_be_visible()
    assert page.evaluate(WIDER_TAB) == []
