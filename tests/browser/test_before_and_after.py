"""Before and after a training: a verdict on what the model can learn, and a checkpoint against the model before it."""

from __future__ import annotations

import re

from playwright.sync_api import BrowserContext, Page, expect

from tests.browser import real_runs
from tests.browser.conftest import Complaints, sign_in
from tests.stack import Stack

pytestmark = [*real_runs.MARKS]


def test_a_check_gives_a_verdict_and_the_dataset_is_filtered_by_it(
    training_site: Stack, context: BrowserContext, page: Page, complaints: Complaints
) -> None:
    sign_in(training_site, context)
    run = real_runs.launch(training_site, "short", max_steps=2)
    page.goto(f"{training_site.url}/runs/{run.id}/clone/")
    with context.expect_page() as opened:
        page.get_by_role("button", name="Check learnability first").click()
    check = opened.value
    expect(check.get_by_role("heading", name="Learnability of short-2")).to_be_visible()
    expect(check.get_by_text("Groups with spread", exact=True)).to_be_visible()
    expect(check.get_by_text("64 groups, 512 completions")).to_be_visible()
    expect(check.get_by_text("All resources are released.")).to_be_visible()
    expect(page.get_by_role("heading", name="Clone of short")).to_be_visible()  # its form stays as it was
    check.get_by_label("Keep prompts solved").fill("1")
    check.get_by_role("button", name="Create a dataset version").click()
    expect(check.get_by_text("ready to train on")).to_be_visible()
    expect(check.get_by_text("solved 1 to 80 % in run")).to_be_visible()
    assert complaints.heard == []


def test_a_checkpoint_is_compared_with_the_model_before_training(
    training_site: Stack, context: BrowserContext, page: Page, complaints: Complaints
) -> None:
    sign_in(training_site, context)
    run = real_runs.launch(training_site, "trained", max_steps=20)
    run.wait_for_end("succeeded")
    page.goto(f"{training_site.url}/runs/{run.id}/?tab=checkpoints")
    page.get_by_role("link", name="Evaluate on held-out prompts").click()
    page.get_by_label("Completions per prompt").fill("8")
    page.get_by_role("button", name="Evaluate").click()
    row = page.get_by_role("row", name="Step 20")
    expect(row).to_contain_text("8 × 8")
    expect(row.get_by_text(" to ")).to_be_visible()  # the interval, once both have ended
    row.get_by_role("link", name="Step 20").click()
    expect(page.get_by_text("64 completions")).to_be_visible()
    page.go_back()
    row.get_by_role("link", name="Side by side").click()
    expect(page.locator("main")).to_contain_text(re.compile(r"trained · before training.*advantage", re.DOTALL))
    assert complaints.heard == []


def test_a_trained_model_is_chatted_with_beside_the_one_before(
    training_site: Stack, context: BrowserContext, page: Page, complaints: Complaints
) -> None:
    sign_in(training_site, context)
    run = real_runs.launch(training_site, "talks", max_steps=10)
    run.wait_for_end("succeeded")
    page.goto(f"{training_site.url}/runs/{run.id}/")
    page.get_by_role("tab", name="Checkpoints").click()
    page.get_by_role("button", name="Chat").first.click()
    page.get_by_role("button", name="Use a prompt from the dataset").click()
    expect(page.get_by_label("Message")).not_to_have_value("")
    page.get_by_label("Message").press("Control+Enter")
    for model in ("Trained", "Before training"):
        answer = page.get_by_role("region", name=model)
        expect(answer).to_contain_text("tokens")
        expect(answer.get_by_role("listitem")).to_have_count(3)  # the run's rewards
    expect(page.get_by_label("Message")).to_have_value("")
    page.reload()
    expect(page.get_by_role("region", name="Trained")).to_contain_text("accuracy")
    page.get_by_label("Message").fill("Compute 1 + 1.")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_role("region", name="Trained")).to_have_count(2)
    page.get_by_role("button", name="Unload").click()
    expect(page.get_by_role("button", name="Load it")).to_be_visible()
    assert complaints.heard == []
