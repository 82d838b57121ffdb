"""The pages of environments in a real Chromium: the editor, and episodes played by hand and by a model."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.browser import seeing
from tests.browser.conftest import Complaints, sign_in
from tests.controlplane.catalogue.environments.chat_server import ChatServer, calling
from tests.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.processes]

SUM = calling("calculator", {"expression": "6 * 7"})
FORGET = """
from controlplane.platform.accounts.models import Secret
from controlplane.catalogue.environments.models import Environment
from controlplane.catalogue.rewards.models import RewardConfig
for each in (Environment, RewardConfig, Secret):
    each.objects.all().delete()
"""
PLAYED = """
from django.utils import timezone
from controlplane.platform.accounts.models import Secret
from controlplane.catalogue.environments import saving
from controlplane.catalogue.environments.saving import EnvironmentComposition
from controlplane.catalogue.rewards import saving as rewards
secret = Secret(name="PLAYER", address=address, private_too=True, updated_at=timezone.now())
secret.lock_in("sk-key")
secret.save()
found = {"name": "found", "function": "answer_in_results", "weight": 1.0, "per_turn": True}
rewards.make("sums by turn", [found, {"name": "right", "function": "numeric_match", "weight": 2.0}])
part = {"name": "calculator", "function": "calculator", "params": {}}
result = saving.make("sums", EnvironmentComposition([part], {"turns": 4})).environment_id
"""
SAVED = """
from controlplane.catalogue.environments import saving
from controlplane.catalogue.environments.saving import EnvironmentComposition
parts = [{"name": name, "function": "calculator", "params": {}} for name in ("sum", "n" * 64)]
result = saving.make("N" * 80, EnvironmentComposition(parts), description="d" * 900).environment_id
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


def test_a_model_plays_an_episode_by_itself_and_is_scored(site: Stack, page: Page, complaints: Complaints) -> None:
    with ChatServer(SUM, {"content": "It is 42."}) as server:
        let_a_model_play(site, page, server)
        expect(page.locator("#episode")).to_contain_text("The episode ended: eos.")
    page.get_by_role("button", name="Score the episode").click()
    expect(page.locator("#scores td strong")).to_have_text(["Total", "2"])
    assert complaints.heard == []


def test_a_model_that_takes_long_is_stopped_and_its_episode_goes_on_by_hand(
    site: Stack, page: Page, complaints: Complaints
) -> None:
    with ChatServer(SUM, None) as server:
        let_a_model_play(site, page, server)
        expect(page.locator("#episode")).to_contain_text("The model writes turn 2 of at most 4")
        page.get_by_role("button", name="Stop").click()
        page.get_by_label("What the model says").fill("It is 42.")
        page.get_by_role("button", name="Send the turn").click()
        expect(page.locator("#episode")).to_contain_text("The episode ended: eos.")
    assert complaints.heard == []


def let_a_model_play(site: Stack, page: Page, server: ChatServer) -> None:
    number = site.django(PLAYED, address=server.address)
    page.goto(f"{site.url}/environments/{number}/v1/play/")
    page.get_by_label("Prompt", exact=True).fill("What is 6 times 7?")
    page.get_by_label("Answer").fill("42")
    page.get_by_text("Which model plays").click()
    page.get_by_label("Endpoint").select_option("PLAYER")
    page.get_by_label("Model", exact=True).fill("a-model")
    page.get_by_role("button", name="Let a model play").click()


def test_long_names_make_no_page_wider(site: Stack, page: Page, complaints: Complaints) -> None:
    own = f"{site.url}/environments/{site.django(SAVED)}/"
    assert (
        seeing.too_wide(page, f"{site.url}/environments/", own, f"{own}versions/", f"{own}v1/", f"{own}v1/play/") == []
    )
    assert complaints.heard == []
