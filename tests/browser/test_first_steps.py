"""The first ten minutes by hand: the demo that becomes its run, the tour, the words that explain themselves, and a
launch button that says what is missing."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.browser.conftest import sign_in
from tests.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.processes]

FRESH = """
from controlplane.platform.accounts.models import User
result = User.objects.filter(username="operator").update(toured_at=None)
"""
RUN = """
from runs.launch import demo
from tests.runs.builders import a_run, an_attempt
demo.finish()
run = a_run(demo.NAME, hardware={"rollout": "colocate", "trainer_gpus": 8})  # more than the host has: told here
an_attempt(run=run)
result = run.pk
"""
STAGE = "from runs.launch import demo; demo.report(demo.Stage.MODEL, words)"


@pytest.fixture
def signed_in(site: Stack, context: BrowserContext) -> None:
    sign_in(site, context)


def test_the_demo_shows_its_stages_and_becomes_the_run_whose_tour_is_shown_once(
    site: Stack, signed_in: None, page: Page
) -> None:
    site.django(FRESH)
    site.django(STAGE, words="warm-up 20/300")
    page.goto(f"{site.url}/demo/")
    expect(page.locator(".stage.now")).to_contain_text("warm-up 20/300")
    site.django(STAGE, words="warm-up 40/300")
    expect(page.locator(".stage.now")).to_contain_text("warm-up 40/300")
    run = site.django(RUN)
    page.wait_for_url(f"**/runs/{run}/")
    tour = page.get_by_role("dialog", name="Tour of this page")
    for stop in range(1, 6):
        expect(tour).to_contain_text(f"{stop} of 5")
        expect(page.locator(".tour-ring")).to_be_visible()
        if stop < 5:
            tour.get_by_role("button", name="Next").click()
    with page.expect_response("**/help/tour"):
        tour.get_by_role("button", name="Done").click()
    expect(tour).to_be_hidden()
    page.reload()
    expect(page.locator("#tour")).to_be_hidden()
    page.get_by_label("Help").click()
    page.get_by_role("button", name="Tour of this page").click()
    page.keyboard.press("Escape")
    expect(tour).to_be_hidden()


def test_a_word_explains_itself_by_mouse_keyboard_and_touch(site: Stack, signed_in: None, page: Page) -> None:
    page.goto(f"{site.url}/runs/new/")
    bubble = page.get_by_role("tooltip")
    beta = page.get_by_role("button", name="About β, KL weight")
    beta.hover()
    expect(bubble).to_contain_text("Pulls the policy towards the initial model")
    page.mouse.move(0, 0)
    expect(bubble).to_be_hidden()
    beta.focus()
    page.keyboard.press("Enter")
    expect(bubble).to_contain_text("Pulls the policy")
    expect(bubble.get_by_role("link", name="Glossary")).to_have_attribute("href", "/glossary/#beta")
    page.keyboard.press("Escape")
    expect(bubble).to_be_hidden()
    expect(beta).to_be_focused()


def test_the_launch_button_stays_in_sight_on_a_phone_and_says_what_is_missing(
    site: Stack, signed_in: None, page: Page
) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{site.url}/runs/new/")
    launch = page.locator("#preflight .launch")
    page.locator("#id_temperature").fill("0")
    expect(launch).to_have_text(re.compile(r"Fix \d+ problems? to launch"))
    expect(launch).to_be_disabled()
    expect(launch).to_be_in_viewport()
    page.locator(".to-preflight").click()
    expect(page.get_by_role("heading", name="Preflight")).to_be_in_viewport()
    labels = page.locator(".rail .item:visible .label:visible").all_text_contents()
    assert [label.strip() for label in labels] == ["Search", "Runs", "Datasets", "Rewards", "Hardware", "More"]
    page.locator(".rail summary").filter(has_text="More").first.click()
    page.get_by_role("link", name="Models").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Models")
