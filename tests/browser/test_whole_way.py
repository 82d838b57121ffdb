"""From the sign-in page to the kill receipt, by hand in a real Chromium."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Complaints
from tests.browser.driving import stop_training
from tests.stack import Stack
from tests.waiting import LIMIT_S

pytestmark = [pytest.mark.browser, pytest.mark.processes]

DRAWN = "Math.max(0, ...(document.querySelector('[data-chart=reward] [data-plot]')?.data ?? []).map(t => t.x.length))"


@pytest.mark.telling
def test_sign_in_upload_reward_launch_watch_stop_receipt(
    site: Stack, page: Page, complaints: Complaints, tmp_path: Path
) -> None:
    sign_in(site, page)
    upload(page, tmp_path)
    make_reward_config(page)
    launch(page, str(site.installation.models_dir / "tiny"))
    watch(page)
    stop_training(page)
    assert complaints.heard == []


def sign_in(site: Stack, page: Page) -> None:
    page.goto(site.url)
    page.get_by_label("Name").fill("operator")
    page.get_by_label("Password").fill("a long operator password")
    page.get_by_role("button", name="Sign in").click()
    expect(
        page.get_by_role("heading", name=re.compile("^(Runs|First steps)$"))
    ).to_be_visible()  # of runs, if there is one


def upload(page: Page, folder: Path) -> None:
    lines = [json.dumps({"question": f"What is {n} plus {n}?", "result": str(2 * n)}) for n in range(64)]
    file = folder / "doubles.jsonl"
    file.write_text("\n".join(lines))
    page.get_by_role("link", name="Datasets").click()
    page.get_by_role("link", name="New dataset").first.click()
    page.get_by_label("File", exact=True).set_input_files(file)
    expect(page.get_by_text("64 rows, no problem")).to_be_visible()
    page.get_by_label("Prompt column", exact=True).select_option("question")
    page.get_by_label("Answer column").select_option("result")
    page.get_by_role("button", name="Import with this mapping").click()
    expect(page.get_by_text("64 rows, ready to train on")).to_be_visible()


def make_reward_config(page: Page) -> None:
    page.get_by_role("link", name="Rewards").click()
    page.get_by_role("link", name="New reward config").first.click()
    page.get_by_label("Name").first.fill("right and in form")
    page.get_by_role("button", name="Save reward config").click()
    expect(page.get_by_role("heading", name="right and in form")).to_be_visible()


def launch(page: Page, model: str) -> None:
    page.get_by_role("link", name="New run").click()
    page.locator("[name=model]").fill(model)
    dataset = page.locator("[name=dataset_version] option", has_text="doubles").get_attribute("value")
    page.locator("[name=dataset_version]").select_option(dataset)
    page.locator("[name=reward_version]").select_option(label="right and in form v1")
    page.locator("[name=profile]").select_option(label="CPU · fits testhost")
    page.locator("[name=max_steps]").fill("5000")
    page.locator("[name=name]").fill("the whole way")
    page.get_by_role("button", name="Launch now").click()
    expect(page.get_by_role("heading", name="the whole way")).to_be_visible()


def watch(page: Page) -> None:
    """The chart moves by itself, and so do the figures."""
    expect(page.locator("#run-status .chip.running")).to_be_visible()
    points = wait_for_points(page, 5)
    wait_for_points(page, points + 10)
    expect(page.locator("[data-tile=reward] [data-figure]")).not_to_have_text("–")
    page.get_by_role("tab", name="Logs").click()
    expect(page.locator("[data-log-view]")).to_contain_text("fake trainer of")
    page.get_by_role("tab", name="Completions").click()
    expect(page.get_by_text("1+1").first).to_be_visible()
    page.get_by_role("tab", name="Charts").click()


def wait_for_points(page: Page, more_than: int) -> int:
    """Until the reward's chart has drawn so many. (The browser's own waiting would need eval, which pages refuse.)"""
    deadline = time.monotonic() + LIMIT_S
    while (points := int(page.evaluate(DRAWN))) <= more_than:
        assert time.monotonic() < deadline, f"{points} points are drawn after {LIMIT_S:g} s"
        page.wait_for_timeout(100)
    return points
