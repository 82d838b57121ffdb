"""Somebody presses, chooses or sends while parts of a page are read anew, in a real Chromium: nothing of it is lost."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import BrowserContext, Locator, Page, Route, expect

from tests.browser.conftest import Complaints, sign_in
from tests.browser.driving import ASSESSED, until
from tests.browser.test_run_head import A_RUN, JUDGED
from tests.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.processes]

TAGGED = """
from runs.engine import tags
from tests.runs import builders
tags.tag([run], builders.a_user(), [tag])
"""
PRESET = """
from runs.engine.models import HealthPreset
HealthPreset.objects.get_or_create(name="Chosen", defaults={"bounds": {}})
"""
USED = "from runs.engine.models import Run\nresult = getattr(Run.objects.get(pk=run).preset, 'name', None)"
IN_ITS_FIRST_MOMENT = """() => {
  window.same = true;
  new MutationObserver((_, watch) => {
    const save = document.querySelector(".notes-form .primary");
    if (!save) return;
    watch.disconnect();
    document.getElementById("notes-text").value = "Said at once.";
    save.click();
  }).observe(document.body, { childList: true, subtree: true });
}"""
"""As a person's click comes that waited while the machine was busy."""

NEXT_FRAME = """() => new Promise((go) => {
  requestAnimationFrame(() => go("drawn"));
  setTimeout(() => go("none"), 1000);
})"""


@pytest.fixture
def run(site: Stack, context: BrowserContext) -> str:
    sign_in(site, context)
    run = str(site.django(A_RUN))
    site.django(ASSESSED, run=run)
    return run


def visit(site: Stack, page: Page, path: str) -> None:
    """Answers once the page listens."""
    page.goto(site.url + path)
    expect(page.locator("html")).to_have_attribute("data-live", "open")


@contextmanager
def pressed(page: Page, target: Locator, address: str) -> Iterator[None]:
    """The button is down until what the block brings about was read from this address, and had its time to go in."""
    target.hover()
    page.mouse.down()
    with page.expect_response(re.compile(address)) as answer:
        yield
    answer.value.finished()
    page.evaluate("new Promise(done => setTimeout(done))")
    page.mouse.up()


def test_a_press_in_the_head_is_a_click_though_the_head_is_read_meanwhile(site: Stack, run: str, page: Page) -> None:
    visit(site, page, f"/runs/{run}/")
    notes = page.locator("#run-notes")
    with pressed(page, notes.get_by_role("button", name="Add a note"), "/head/$"):
        site.django(TAGGED, run=run, tag="meanwhile")
    expect(notes.get_by_role("textbox", name="Notes")).to_be_visible()
    expect(page.locator("#run-about").get_by_role("listitem")).to_have_text(["meanwhile"])


def test_what_was_read_under_a_press_goes_in_when_it_is_over(site: Stack, run: str, page: Page) -> None:
    visit(site, page, f"/runs/{run}/")
    about = page.locator("#run-about")
    with pressed(page, about.locator("dd").first, "/head/$"):
        site.django(TAGGED, run=run, tag="meanwhile")
    expect(about.get_by_role("listitem")).to_have_text(["meanwhile"])


def test_a_press_on_a_row_is_a_click_though_the_row_is_another_by_then(site: Stack, run: str, page: Page) -> None:
    visit(site, page, "/runs/?q=head")
    with pressed(page, page.locator(f"#row-{run} a.name"), r"/runs/\?q=head$"):
        site.django(TAGGED, run=run, tag="meanwhile")
    expect(page).to_have_url(f"{site.url}/runs/{run}/")


def test_what_was_asked_for_before_a_press_does_not_take_its_click(
    site: Stack, run: str, page: Page, complaints: Complaints
) -> None:
    held: list[Route] = []
    page.goto(f"{site.url}/hardware/")
    page.route("**/hardware/", lambda route: held.append(route))
    until(page, lambda: held, "nothing is asked for")
    fold = page.locator("#hosts summary").first
    was_open = fold.locator("xpath=..").get_attribute("open")
    with pressed(page, fold, "/hardware/$"):
        held[0].continue_()
    assert fold.locator("xpath=..").get_attribute("open") != was_open
    page.unroute("**/hardware/")
    assert complaints.heard == []


def test_a_choice_that_was_not_sent_yet_outlives_new_values(site: Stack, run: str, page: Page) -> None:
    site.django(PRESET)
    visit(site, page, f"/runs/{run}/")
    card = page.locator("#run-health > details")
    card.locator("> summary").click()
    card.get_by_label("Thresholds").select_option("Chosen")
    card.get_by_role("button", name="Use", exact=True).focus()
    assert site.django(JUDGED, run=run, until=20)
    expect(card).to_contain_text("step 20")
    expect(card.get_by_label("Thresholds").locator("option:checked")).to_have_text("Chosen")
    page.keyboard.press("Enter")
    until(page, lambda: site.django(USED, run=run) == "Chosen", "the preset was not chosen")


def test_a_form_that_has_just_come_is_sent_without_leaving_the_page(site: Stack, run: str, page: Page) -> None:
    visit(site, page, f"/runs/{run}/")
    page.evaluate(IN_ITS_FIRST_MOMENT)
    page.get_by_role("button", name="Add a note").click()
    expect(page.locator("#run-notes .prose").get_by_text("Said at once.")).to_be_visible()
    assert page.evaluate("window.same") is True


def test_nothing_can_be_pressed_before_the_frames_script_is_there(site: Stack, run: str, page: Page) -> None:
    held: list[Route] = []
    page.route("**/frame*.js", lambda route: held.append(route))
    page.goto(f"{site.url}/runs/", wait_until="commit")
    until(page, lambda: held)
    assert page.evaluate(NEXT_FRAME) == "none"
    held[0].continue_()
    page.get_by_role("button", name="System theme").click()
    expect(page.get_by_role("button", name="Light theme")).to_be_visible()


def test_a_double_click_opens_a_menu_and_a_dialog_and_closes_neither(site: Stack, run: str, page: Page) -> None:
    visit(site, page, f"/runs/{run}/")
    page.locator("summary", has_text="Stop").dblclick()
    page.get_by_role("button", name="Save and stop").dblclick()
    dialog = page.get_by_role("dialog", name="Save and stop")
    expect(dialog).to_be_visible()
    page.mouse.click(2, 2)
    expect(dialog).to_be_hidden()
