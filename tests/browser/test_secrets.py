"""The secrets page in a real Chromium: a key goes in, is changed and deleted, and is never on a page."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.browser.conftest import Complaints, sign_in
from tests.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.processes]

FORGET = "from controlplane.platform.accounts.models import Secret\nSecret.objects.all().delete()"
KEY_OF = "from controlplane.platform.accounts.models import Secret\nresult = Secret.objects.get(name='JUDGE').key()"


@pytest.fixture(autouse=True)
def as_it_was(site: Stack, context: BrowserContext) -> Iterator[None]:
    sign_in(site, context, "admin")
    yield
    site.django(FORGET)


def test_a_key_is_kept_changed_and_deleted(site: Stack, page: Page, complaints: Complaints) -> None:
    page.goto(f"{site.url}/settings/")
    page.get_by_role("link", name="Secrets").click()
    page.get_by_label("Name").fill("JUDGE")
    page.get_by_label("Address").fill("https://judge.example/v1")
    page.get_by_label("Key", exact=True).fill("sk-first")
    page.get_by_role("button", name="Save secret").click()
    expect(page.get_by_role("row", name="JUDGE")).to_contain_text("https://judge.example/v1")
    assert site.django(KEY_OF) == "sk-first"
    assert "sk-first" not in page.content()

    page.get_by_role("link", name="Change JUDGE").click()
    assert page.get_by_label("Key", exact=True).input_value() == ""
    page.get_by_label("Key", exact=True).fill("sk-second")
    page.get_by_role("button", name="Save secret").click()
    expect(page.get_by_text("JUDGE was saved.")).to_be_visible()
    assert site.django(KEY_OF) == "sk-second"

    page.get_by_role("button", name="Delete JUDGE").click()
    dialog = page.get_by_role("dialog", name="Delete JUDGE?")
    expect(dialog).to_contain_text("Runs that start from now on don't get it.")
    dialog.get_by_role("button", name="Delete secret").click()
    expect(page.get_by_text("No secrets yet")).to_be_visible()
    assert complaints.heard == []
