"""The reward pages in a real Chromium: the library, one-click fixes, versions, YAML, and widths."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Dialog, Locator, Page, expect

from tests.browser import seeing
from tests.browser.conftest import Complaints, sign_in
from tests.browser.driving import downloaded
from tests.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.processes]

UNBROKEN = """
import time
from controlplane.catalogue.datasets import actions
from controlplane.catalogue.datasets.models import Dataset
from tests.controlplane.catalogue.datasets.sources import jsonl
from tests.controlplane.catalogue.datasets.steps import MAPPING, uploaded, worked

def settled(version, status):
    # The stack's own worker may be at it, or at another.
    end = time.monotonic() + 60
    while worked(version).status != status and time.monotonic() < end:
        time.sleep(0.05)
    return version

name = "A" + "n" * 79
if not Dataset.objects.filter(name=name).exists():
    rows = jsonl([{"question": "x" * 3000, "answer": "#### " + "9" * 3000}])
    version = settled(uploaded(rows, name=name), "needs_mapping")
    actions.request_import(version, MAPPING)
    settled(version, "ready")
result = Dataset.objects.get(name=name).versions.get(status="ready").pk
"""

LONG_NAMES = """
from controlplane.catalogue.rewards import saving
from tests.runs.builders import rewards_named
parts = [{"name": letter * 40, "function": "json_valid", "params": {"schema": '{"x": "' + "y" * 900 + '"}'}}
         for letter in "abcde"]
first = rewards_named("N" * 80, parts)
first.config.description = "d" * 900
first.config.save()
other = [{**part, "params": {"schema": '{"x": "' + "z" * 900 + '"}'}} for part in parts]
saving.save(first.config, other, note="n" * 200)
result = first.config_id
"""


@pytest.fixture
def signed_in(site: Stack, context: BrowserContext) -> None:
    sign_in(site, context, "admin")


def test_a_long_name_and_a_row_without_a_space_make_the_editor_no_wider(
    site: Stack, signed_in: None, page: Page, complaints: Complaints
) -> None:
    version = site.django(UNBROKEN)
    assert seeing.too_wide(page, f"{site.url}/rewards/new/?version={version}") == []
    assert "x" * 400 in page.locator("#sample").inner_text()
    assert complaints.heard == []


def add(page: Page, words: str, title: str) -> Locator:
    """From the library, by its search; answers the new row."""
    page.get_by_role("button", name="Add component").click()
    dialog = page.get_by_role("dialog", name="Add a component")
    dialog.get_by_role("searchbox").fill(words)
    expect(dialog.locator("[data-entry]:visible").first).to_contain_text(title)
    dialog.get_by_role("button", name=f"Add {title}", exact=True).click()
    expect(dialog).to_be_hidden()
    return page.locator("[data-component]").last


def test_a_component_is_found_added_and_taken_away(
    site: Stack, signed_in: None, page: Page, complaints: Complaints
) -> None:
    page.goto(f"{site.url}/rewards/new/")
    rows = page.locator("[data-component]")
    expect(rows).to_have_count(2)
    row = add(page, "overlong", "Length penalty")
    expect(rows).to_have_count(3)
    expect(row).to_have_class("component c3")
    expect(page.locator("#balance")).to_contain_text("overlong")
    rows.first.get_by_role("button", name=re.compile("^Remove")).click()
    expect(rows).to_have_count(2)
    expect(row).to_have_class("component c2")
    expect(page.locator("#balance")).not_to_contain_text("think_tags")
    page.get_by_label("Name", exact=True).first.fill("held back")
    page.context.set_offline(True)
    page.get_by_role("button", name="Save reward config").click()
    expect(page.locator("#connection")).to_contain_text("Not saved")
    page.context.set_offline(False)
    expect(page.locator("#connection")).to_be_hidden()
    complaints.heard.clear()  # of the requests without a network
    asked: list[str] = []

    def leave(dialog: Dialog) -> None:
        asked.append(dialog.type)
        dialog.accept()

    page.on("dialog", leave)
    page.goto(f"{site.url}/rewards/")
    assert asked == ["beforeunload"]
    page.goto(f"{site.url}/rewards/new/")
    page.locator("textarea[name=completion]").first.fill("Never saved, so never missed.")
    page.goto(f"{site.url}/rewards/")
    assert asked == ["beforeunload"]
    assert complaints.heard == []


def test_what_drowns_the_others_is_mended_with_one_click(
    site: Stack, signed_in: None, page: Page, complaints: Complaints
) -> None:
    page.goto(f"{site.url}/rewards/new/")
    row = add(page, "different characters", "Unique characters")
    balance = page.locator("#balance")
    expect(balance).to_contain_text("unique_chars dominates the other components")
    balance.get_by_role("button", name=re.compile("^Set its weight")).click()
    expect(balance).not_to_contain_text("dominates")
    weight = row.get_by_label("Weight")
    assert 0 < float(weight.input_value()) < 0.1
    row.get_by_label("Ignore case").check()
    weight.fill("1")
    balance.get_by_role("button", name=re.compile("^Use ")).click()
    expect(row).to_contain_text("Unique characters, normalized")
    expect(balance).not_to_contain_text("dominates")
    assert row.get_by_label("Name").input_value() == "unique_chars"
    expect(row.get_by_label("Ignore case")).to_be_checked()
    assert complaints.heard == []


def test_a_config_is_changed_compared_taken_away_and_brought_back(
    site: Stack, signed_in: None, page: Page, complaints: Complaints, tmp_path: Path
) -> None:
    page.goto(f"{site.url}/rewards/new/")
    page.get_by_label("Name", exact=True).first.fill("changed twice")
    page.get_by_role("button", name="Save reward config").click()
    page.locator("[data-component]").first.get_by_label("Weight").fill("0.5")
    page.get_by_label("What changes").fill("less form")
    page.get_by_role("button", name="Save changes").click()
    expect(page.locator("h1")).to_contain_text("v2")
    page.locator("#content summary").filter(has_text="More").first.click()
    page.get_by_role("link", name="Versions").click()
    expect(page.locator(".versions li").first).to_contain_text("less form")
    expect(page.locator(".versions li").first).to_contain_text("1 → 0.5")
    document = downloaded(page, page.get_by_role("link", name="YAML").first.click, tmp_path)
    page.goto(f"{site.url}/rewards/import/")
    page.get_by_label("A YAML file").set_input_files(document)
    page.get_by_role("button", name="Open in the editor").click()
    taken = "A reward config with this name already exists."
    expect(page.locator(".errorlist").get_by_text(taken)).to_be_visible()
    expect(page.locator(".banner.bad")).to_contain_text(f"Name: {taken}")
    page.get_by_label("Name", exact=True).first.fill("brought back")
    page.get_by_role("button", name="Save reward config").click()
    expect(page.locator("h1")).to_contain_text("brought back v1")
    assert page.locator("[data-component]").first.get_by_label("Weight").input_value() == "0.5"
    # Its name is taken, which the editor says beside the field, with that status.
    assert [line for line in complaints.heard if "422" not in line] == []


def test_no_reward_page_is_wider_than_the_window(
    site: Stack, signed_in: None, page: Page, complaints: Complaints
) -> None:
    config = site.django(LONG_NAMES)
    paths = ["", "library/", "import/", f"{config}/", f"{config}/versions/", f"{config}/v1/", "?archived=1"]
    assert seeing.too_wide(page, *[f"{site.url}/rewards/{path}" for path in paths]) == []
    page.goto(f"{site.url}/rewards/new/")
    page.get_by_role("button", name="Add component").click()
    body = page.locator(".library-dialog .dialog-body")
    for size in (seeing.PHONE, seeing.WIDE):
        seeing.resize(page, size)
        expect(body).to_be_visible()
        assert body.evaluate("body => body.scrollWidth <= body.clientWidth"), size
    assert complaints.heard == []
