"""The whole way of a model, by hand on the CPU: check what can be learned, filter, train, evaluate, chat, merge,
download, and train on from the merged model."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.browser import real_runs
from tests.browser.conftest import Complaints, sign_in
from tests.browser.real_runs import RealRun
from tests.browser.test_finished_models import download, merge
from tests.stack import Stack

pytestmark = [
    pytest.mark.browser,
    pytest.mark.processes,
    pytest.mark.trainer,
]


def test_a_model_goes_the_whole_way_and_is_trained_on(
    training_site: Stack, context: BrowserContext, page: Page, complaints: Complaints, tmp_path: Path
) -> None:
    sign_in(training_site, context)
    settings = real_runs.launch(training_site, "first", max_steps=2)
    version = check_and_filter(page, context, f"{settings.address}clone/")
    page.goto(f"{settings.address}clone/")
    run = train(page, training_site, version)
    evaluate(page, run)
    chat(page, run)
    page.goto(f"{run.address}?tab=checkpoints")
    page.get_by_role("link", name="20", exact=True).click()
    merge(page)
    download(page, tmp_path)
    page.get_by_role("link", name="Train on").click()
    expect(page.get_by_role("combobox", name="Model")).to_have_value(re.compile(r"/checkpoint-20$"))
    again = launched(page, training_site, "from merged", steps=2)
    again.wait_for_end("succeeded")
    assert complaints.heard == []


def check_and_filter(page: Page, context: BrowserContext, settings: str) -> str:
    """The label of the dataset version that keeps the prompts with something to learn."""
    page.goto(settings)
    with context.expect_page() as opened:
        page.get_by_role("button", name="Check learnability first").click()
    check = opened.value
    expect(check.get_by_text("Groups with spread", exact=True)).to_be_visible()
    check.get_by_label("Keep prompts solved").fill("1")
    check.get_by_role("button", name="Create a dataset version").click()
    expect(check.get_by_text("ready to train on")).to_be_visible()
    check.close()
    return "Arithmetic v2"


def train(page: Page, stack: Stack, version: str) -> RealRun:
    """An adapter, on the filtered version."""
    datasets = page.locator("#id_dataset_version")
    datasets.select_option(datasets.locator("option", has_text=version).get_attribute("value"))
    page.locator("details", has=page.locator("#id_use_lora")).evaluate("(fold) => fold.setAttribute('open', '')")
    page.get_by_label("Train a LoRA").check()
    run = launched(page, stack, "second", steps=20)
    run.wait_for_end("succeeded")
    return run


def launched(page: Page, stack: Stack, name: str, *, steps: int) -> RealRun:
    page.locator("#id_name").fill(name)
    page.locator("#id_max_steps").fill(str(steps))
    page.get_by_role("button", name=re.compile("^(Launch|Queue)")).click()
    expect(page.get_by_role("heading", name=name)).to_be_visible()
    return RealRun(stack, page.url.rstrip("/").rpartition("/")[2].partition("?")[0], name)


def evaluate(page: Page, run: RealRun) -> None:
    page.goto(f"{run.address}?tab=checkpoints")
    page.get_by_role("link", name="Evaluate on held-out prompts").click()
    page.get_by_role("button", name="Evaluate").click()
    row = page.get_by_role("row", name="Step 20")
    expect(row.get_by_text(" to ")).to_be_visible()  # the interval, once both have ended


def chat(page: Page, run: RealRun) -> None:
    page.goto(f"{run.address}?tab=checkpoints")
    page.get_by_role("button", name="Chat").first.click()
    page.get_by_role("button", name="Use a prompt from the dataset").click()
    expect(page.get_by_label("Message")).not_to_have_value("")
    page.get_by_role("button", name="Send").click()
    for model in ("Trained", "Before training"):
        expect(page.get_by_role("region", name=model)).to_contain_text("tokens")
    page.get_by_role("button", name="Unload").click()
    expect(page.get_by_role("button", name="Load it")).to_be_visible()
