"""The endpoint for agents on a run's page, in a real Chromium."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.browser.conftest import sign_in
from tests.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.processes]

A_RUN = """
from runs.engine.models import Attempt
from tests.runs import builders
run = builders.a_run("agents", hardware={"rollout": "colocate", "trainer_gpus": 8})
run.spec["episodes"] = {"gateway": {"kind": kind}}
run.last_metrics = {"gateway/waits_s": 95.0, "gateway/sessions_open": 3.0, "gateway/requests": 16.0}
run.save(update_fields=["spec", "last_metrics"])
attempt = builders.an_attempt(run=run)
Attempt.objects.filter(pk=attempt.pk).update(placement={"host": "box", "ports": [21000, 21001]})
result = run.pk
"""


@pytest.mark.parametrize("kind", ["agents", "atropos"])
def test_the_key_is_shown_to_an_operator_who_asks(site: Stack, context: BrowserContext, page: Page, kind: str) -> None:
    sign_in(site, context)
    run = site.django(A_RUN, kind=kind)
    page.goto(f"{site.url}/runs/{run}/")
    card = page.locator(".gateway")
    card.locator("summary").click()  # it was used, so it is folded
    expect(card.get_by_text("http://127.0.0.1:2100").first).to_be_visible()
    expect(card.locator('[data-tile="gateway/waits_s"]')).to_have_text(re.compile(r"95\s*s\s+now"))
    page.get_by_role("button", name="Show key").click()
    expect(page.locator("#gateway-key code")).to_contain_text("sk-")
