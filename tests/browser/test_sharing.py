"""What leaves a run's page in a real Chromium: a link for somebody without an account, a report, a notification."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.browser.conftest import Complaints, sign_in
from tests.browser.driving import curves, downloaded, until
from tests.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.processes]

A_RUN = """
from runs.intake.host_api.ingest import accept
from tests.runs import builders
run = builders.a_run("kettle", hardware={"rollout": "colocate", "trainer_gpus": 8})
accept(builders.an_attempt(run=run), [builders.train(i, reward=i / 100) for i in range(1, 11)])
result = run.pk
"""
MORE = """
from runs.intake.host_api.ingest import accept
from runs.engine.models import Run
from tests.runs import builders
accept(Run.objects.get(pk=run).latest(), [builders.train(11, reward=0.5)])
"""
FAILED = """
from runs.engine.models import Run
from runs.engine.states import RunStatus
from runs.engine.transitions import move
move(Run.objects.get(pk=run).latest(), RunStatus.FAILED, reason="host_lost", actor="test")
"""
# The headless browser refuses every notification, whatever it is told.
NOTIFICATIONS = """
window.told = [];
window.Notification = class {
  static permission = "default";
  static asked = 0;
  static requestPermission() {
    Notification.permission = ["denied", "granted"][Notification.asked++];
    return Promise.resolve(Notification.permission);
  }
  constructor(title, options) { window.told.push([title, options.body]); }
  addEventListener() {}
};
"""


@pytest.fixture
def run(site: Stack, context: BrowserContext) -> str:
    sign_in(site, context)
    return str(site.django(A_RUN))


@pytest.fixture
def visitor(browser: Browser, complaints: Complaints) -> Iterator[Page]:
    """Somebody without an account, in a browser of their own."""
    context = browser.new_context(viewport={"width": 390, "height": 844})
    page = context.new_page()
    page.on("pageerror", lambda error: complaints.heard.append(f"thrown: {error}"))
    yield page
    context.close()


def test_a_link_shows_the_run_live_until_it_is_revoked(site: Stack, page: Page, visitor: Page, run: str) -> None:
    page.goto(f"{site.url}/runs/{run}/")
    page.get_by_label("More", exact=True).click()
    page.get_by_role("link", name="Share a link").click()
    page.get_by_role("button", name="Create link").click()
    page.get_by_role("button", name="Copy link").click()
    expect(page.get_by_text("Copied", exact=True)).to_be_attached()
    visitor.clock.install()
    visitor.goto(page.locator("#share-address").inner_text())
    expect(visitor.get_by_role("heading", name="kettle")).to_be_visible()
    expect(visitor.locator('[data-chart="reward"] [data-value]')).to_have_text("0.100")
    visitor.locator('[data-chart="reward"]').scroll_into_view_if_needed()
    expect(visitor.locator('[data-chart="reward"].drawn')).to_be_visible()
    assert len(next(iter(curves(visitor, "reward").values()))) == 10
    assert visitor.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert visitor.locator("a[href]").count() == 0
    site.django(MORE, run=run)
    visitor.clock.run_for(16_000)
    expect(visitor.locator('[data-chart="reward"] [data-value]')).to_have_text("0.500")
    page.goto(f"{site.url}/runs/{run}/share/")
    page.get_by_role("button", name="Revoke").click()
    expect(page.get_by_text("The link was revoked")).to_be_visible()
    visitor.clock.run_for(16_000)
    expect(visitor.get_by_role("heading", name="This link has ended")).to_be_visible()


def test_a_report_is_of_the_run_and_of_what_the_comparison_shows(
    site: Stack, page: Page, run: str, tmp_path: Path
) -> None:
    page.goto(f"{site.url}/runs/{run}/")
    page.get_by_label("More", exact=True).click()
    saved = downloaded(page, page.get_by_role("link", name="Download a report").click, tmp_path)
    assert "charts/reward.svg" in str(zipfile.ZipFile(saved).namelist())
    page.goto(f"{site.url}/runs/compare/?runs={run}")
    page.locator("#axis").select_option("time")
    saved = downloaded(page, page.get_by_role("link", name="Report").click, tmp_path)
    with zipfile.ZipFile(saved) as packed:
        assert b"Running time, s" in packed.read("comparison-report/charts/01.svg")


def test_a_bell_tells_what_the_browser_refuses_and_then_that_the_run_failed(site: Stack, page: Page, run: str) -> None:
    page.add_init_script(NOTIFICATIONS)
    page.goto(f"{site.url}/runs/{run}/")
    page.get_by_role("button", name="Notify me about this run").click()
    expect(page.get_by_text("This installation has no mail server")).to_be_visible()
    notify = page.locator("[data-notify]")
    notify.click()
    expect(page.get_by_text("Your browser blocks notifications")).to_be_visible()
    notify.click()
    expect(page.get_by_text("On. Keep this page open")).to_be_visible()
    site.django(FAILED, run=run)
    until(page, lambda: page.evaluate("window.told.length"), "nothing is told")
    assert page.evaluate("window.told") == [["Failed: kettle", "The host restarted or was marked as lost."]]
