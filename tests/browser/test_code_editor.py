"""Custom Python in a real Chromium: an editor under the page's policy, its check, and what may be saved."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect

from tests.browser.conftest import Complaints, sign_in
from tests.stack import Stack
from workers.sandbox import selftest

pytestmark = [
    pytest.mark.browser,
    pytest.mark.processes,
    pytest.mark.skipif(selftest.probe().backend is None, reason="no sandbox holds on this machine"),
]

GOOD = "def reward(completions, **columns):\n    return [float(len(text) > 3) for text in completions]\n"
FORGET = """
from controlplane.catalogue.rewards.models import RewardConfig
RewardConfig.objects.filter(name="of my own").delete()
"""
SAVED = """
from controlplane.catalogue.rewards import saving
made = saving.make("of my own", [{"name": "own", "function": "python", "params": {"source": source}}])
result = made.config_id
"""
SOURCE = """
from controlplane.catalogue.rewards.models import RewardConfig
result = RewardConfig.objects.get(name="of my own").newest().components[-1]["params"]["source"]
"""


@pytest.fixture(autouse=True)
def as_it_was(site: Stack) -> Iterator[None]:
    yield
    site.django(FORGET)


def a_new_config(site: Stack, page: Page) -> Locator:
    """With a component of custom code, which is answered."""
    page.goto(f"{site.url}/rewards/new/")
    page.get_by_label("Name", exact=True).first.fill("of my own")
    page.get_by_text("Add component").click()
    page.get_by_role("button", name="Custom Python").click()
    row = page.locator("[data-component]").last
    expect(row.locator(".ace_keyword").first).to_be_visible()
    return row


def write(page: Page, row: Locator, source: str) -> None:
    row.locator(".ace_content").click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(source)


def test_code_is_written_checked_and_saved(
    site: Stack, context: BrowserContext, page: Page, complaints: Complaints
) -> None:
    sign_in(site, context, "admin")
    row = a_new_config(site, page)
    assert page.locator("style").count() == 0
    write(page, row, "def reward(completions, **columns):\n    return [1 / 0 for _ in completions]\n")
    row.get_by_role("button", name="Check").click()
    expect(row.locator(".code-result")).to_contain_text("ZeroDivisionError")
    assert complaints.heard == []

    page.get_by_role("button", name="Save reward config").click()
    expect(page.locator("[data-component]").last).to_contain_text("This code can't be saved")
    complaints.heard[:] = [said for said in complaints.heard if "422" not in said]  # the refusal's own status

    row = page.locator("[data-component]").last
    expect(row.locator(".ace_keyword").first).to_be_visible()
    write(page, row, GOOD)
    row.get_by_role("button", name="Check").click()
    expect(row.locator(".code-result")).to_contain_text("It works.")
    page.get_by_role("button", name="Save reward config").click()
    expect(page.get_by_text("Saved of my own")).to_be_visible()
    expect(page.locator("[data-component] .ace_content").last).to_contain_text("def reward(completions")
    assert site.django(SOURCE) == GOOD
    assert complaints.heard == []


def test_the_editor_is_left_by_keys_and_named_for_who_can_not_see_it(
    site: Stack, context: BrowserContext, page: Page, complaints: Complaints
) -> None:
    sign_in(site, context, "admin")
    row = a_new_config(site, page)
    write(page, row, GOOD)
    assert str(page.evaluate("document.activeElement.getAttribute('aria-label')")).startswith("Source")
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")
    expect(row.get_by_role("button", name="Check")).to_be_focused()
    assert complaints.heard == []


def test_an_operator_reads_code_and_can_not_write_it(
    site: Stack, context: BrowserContext, page: Page, complaints: Complaints
) -> None:
    number = site.django(SAVED, source=GOOD)
    sign_in(site, context, "operator")
    page.goto(f"{site.url}/rewards/{number}/")
    editor = page.locator("[data-component] .ace_content")
    expect(editor).to_contain_text("def reward(completions")
    editor.click()
    page.keyboard.type("x = 1")
    assert page.locator("textarea[data-code]").input_value() == GOOD
    expect(page.locator("[data-component]").get_by_role("button", name="Check")).to_have_count(0)
    assert complaints.heard == []


def test_without_scripts_it_is_a_text_field(site: Stack, browser: Browser) -> None:
    number = site.django(SAVED, source=GOOD)
    plain = browser.new_context(java_script_enabled=False)
    sign_in(site, plain, "admin")
    page = plain.new_page()
    page.goto(f"{site.url}/rewards/{number}/")
    field = page.locator("textarea[data-code]")
    expect(field).to_be_visible()
    assert field.input_value() == GOOD
    plain.close()
