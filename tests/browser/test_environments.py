"""The pages of environments in a real Chromium: the editor, and an episode that is played by hand."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.browser import seeing
from tests.browser.conftest import Complaints, sign_in
from tests.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.processes, pytest.mark.timeout(300)]

FORGET = """
from controlplane.environments.models import Environment
Environment.objects.all().delete()
"""
SAVED = """
from controlplane.environments import saving
from controlplane.environments.saving import Composition
parts = [{"name": name, "function": "calculator", "params": {}} for name in ("sum", "n" * 64)]
result = saving.make("N" * 80, Composition(parts), description="d" * 900).environment_id
"""


@pytest.fixture(autouse=True)
def as_it_was(site: Stack, context: BrowserContext) -> Iterator[None]:
    sign_in(site, context, "admin")
    yield
    site.django(FORGET)


def test_an_environment_is_made_and_an_episode_played_in_it(site: Stack, page: Page, complaints: Complaints) -> None:
    page.goto(f"{site.url}/environments/new/")
    page.get_by_label("Name", exact=True).first.fill("sums")
    page.get_by_role("button", name="Add part").click()
    page.get_by_role("button", name="Add Calculator").click()
    expect(page.locator("[data-component]")).to_have_count(1)
    page.get_by_role("button", name="Show", exact=True).click()
    page.locator("#preview summary").click()
    expect(page.locator("#preview")).to_contain_text("Calculate the value of an arithmetic expression.")
    page.get_by_role("button", name="Save environment").click()
    page.get_by_role("link", name="Try it").click()
    page.locator("#call-form").get_by_label("expression").fill("6 * 7")
    page.get_by_role("button", name="Call it").click()
    expect(page.locator("#answer")).to_contain_text("42")
    play(page)
    assert complaints.heard == []


def play(page: Page) -> None:
    episode = page.locator("#episode")
    page.get_by_label("Prompt", exact=True).fill("What is 1 + 1?")
    page.get_by_role("button", name="Begin").click()
    expect(episode).to_contain_text("Turn 1 of at most 6")
    episode.get_by_role("button", name="Call calculator").click()
    episode.get_by_label("expression").fill("1 + 1")
    episode.get_by_role("button", name="Send the turn").click()
    expect(episode).to_contain_text("Turn 2 of at most 6")
    episode.get_by_label("What the model says").fill("It is 2.")
    episode.get_by_role("button", name="Send the turn").click()
    expect(episode).to_contain_text("The episode ended: eos.")


def test_long_names_make_no_page_wider(site: Stack, page: Page, complaints: Complaints) -> None:
    own = f"{site.url}/environments/{site.django(SAVED)}/"
    assert (
        seeing.too_wide(page, f"{site.url}/environments/", own, f"{own}versions/", f"{own}v1/", f"{own}v1/play/") == []
    )
    assert complaints.heard == []
