"""The command palette by keyboard and on a phone, and the bar that says that a page is old."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import BrowserContext, Locator, Page, expect

from tests.browser import seeing
from tests.browser.conftest import sign_in
from tests.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.processes]

A_RUN = """
from tests.runs import builders
run = builders.a_run(name, hardware={"rollout": "colocate", "trainer_gpus": 8})
builders.an_attempt(run=run)
result = run.pk
"""


@pytest.fixture
def signed_in(site: Stack, context: BrowserContext) -> None:
    sign_in(site, context, "admin")


def summoned(page: Page) -> Locator:
    page.wait_for_load_state()  # its modules listen from then on
    page.keyboard.press("Control+k")
    field = page.get_by_role("combobox", name="Search everything")
    expect(field).to_be_focused()
    return field


def found(page: Page) -> Locator:
    """The palette's list; a page's own selects have options, too."""
    return page.get_by_role("listbox", name="Results")


def chosen(page: Page) -> Locator:
    """What the focused field says is active, as a screen reader follows it; the server finds it first."""
    field = page.locator("#palette-field")
    expect(field).to_have_attribute("aria-activedescendant", re.compile("."))
    active = field.get_attribute("aria-activedescendant")
    return page.locator(f"#{active}[aria-selected=true]")


def test_keys_alone_find_a_run_and_the_focus_comes_back(site: Stack, signed_in: None, page: Page) -> None:
    run = site.django(A_RUN, name="palette zebra")
    page.goto(f"{site.url}/runs/")
    page.locator("#run-search").focus()
    field = summoned(page)
    page.keyboard.press("Escape")
    expect(page.locator("#run-search")).to_be_focused()
    summoned(page)
    page.keyboard.type("palette zebra")
    expect(found(page).get_by_role("option", name="palette zebra")).to_be_visible()
    expect(chosen(page)).to_contain_text("palette zebra")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("palette zebra")
    assert page.url == f"{site.url}/runs/{run}/"
    field = summoned(page)
    expect(found(page).get_by_role("option").first).to_contain_text("palette zebra")  # seen last
    field.fill("stop zebra now")
    expect(found(page).get_by_role("option")).to_have_count(1)
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_contain_text("Stop “palette zebra” now")
    page.keyboard.press("Escape")


def test_an_action_of_the_browser_is_done_at_once(site: Stack, signed_in: None, page: Page) -> None:
    page.goto(f"{site.url}/datasets/")
    summoned(page).fill("theme dark")
    expect(chosen(page)).to_have_text("Theme: dark")
    page.keyboard.press("Enter")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    summoned(page).fill("shortcuts")
    expect(chosen(page)).to_have_text("Keyboard shortcuts")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_contain_text("Search everything, and commands")


def test_it_opens_by_a_button_on_a_phone_and_moves_nothing(site: Stack, signed_in: None, page: Page) -> None:
    page.add_init_script(seeing.STEADY)
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{site.url}/datasets/")
    page.locator(".rail").get_by_role("button", name="Search").click()
    expect(found(page).get_by_role("option").first).to_be_visible()
    page.get_by_role("combobox", name="Search everything").fill("hardw")
    expect(chosen(page)).to_contain_text("hardware")
    assert seeing.shifted(page) < 0.01
    found(page).get_by_role("option", name="Hardware", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Hardware")


def test_a_page_without_network_says_since_when_it_is_old_and_recovers(
    site: Stack, signed_in: None, context: BrowserContext, page: Page
) -> None:
    page.goto(f"{site.url}/datasets/")
    page.wait_for_load_state()  # its modules listen from then on
    context.set_offline(True)
    expect(page.locator("#connection")).to_contain_text("Offline: this page shows the state of")
    page.get_by_role("link", name="Models").first.click()
    expect(page.locator("#connection")).to_contain_text("the other page can’t be opened")
    assert page.url == f"{site.url}/datasets/"
    page.locator("form[method=post]").first.evaluate("form => form.requestSubmit()")
    expect(page.locator("#connection")).to_contain_text("Not saved")
    assert page.url == f"{site.url}/datasets/"
    context.set_offline(False)
    expect(page.locator("#connection")).to_be_hidden()
