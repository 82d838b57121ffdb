"""The control plane away under an open page, in a real Chromium: the page says so, and goes on without a gap."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.browser.conftest import sign_in
from tests.browser.driving import ASSESSED, until
from tests.browser.test_run_page import A_RUN, SIZE
from tests.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.processes]

TRAINED = """
from runs.intake.host_api.ingest import accept
from runs.engine.models import Attempt
from tests.runs import builders
attempt = Attempt.objects.get(run_id=run)
first = attempt.last_seq + 1
accept(attempt, [builders.train(i, reward=i / 100, loss=0.1) for i in range(first, first + 10)])
result = first + 9
"""
SEEN = """
from datetime import timedelta
from django.utils import timezone
from runs.engine.models import Attempt
seen = timezone.now() - timedelta(seconds=ago)
Attempt.objects.filter(run_id=run).update(last_seen_at=seen)
"""
ASKED = """
from runs.engine.models import Attempt
Attempt.objects.filter(run_id=run).update(stop_mode="save")
"""
STEPS = "document.querySelector('[data-chart=reward] [data-plot]').data.find(trace => trace.customdata).x"


@pytest.fixture
def run(site: Stack, context: BrowserContext) -> str:
    sign_in(site, context, "operator")
    return str(site.django(A_RUN, name="through an outage"))


def test_a_run_out_of_reach_heals_on_the_page_and_in_the_list_by_itself(
    site: Stack, run: str, page: Page, context: BrowserContext
) -> None:
    listed = context.new_page()
    listed.goto(f"{site.url}/runs/")
    page.goto(f"{site.url}/runs/{run}/")
    expect(page.locator("#run-status .chip.running")).to_be_visible()
    banner, row = page.get_by_text("Unreachable since"), listed.locator(f"#row-{run}")
    site.django(SEEN, run=run, ago=100_000)
    # The site was up for long enough by then: silence counts from its own start.
    expect(banner).to_be_visible()
    expect(row).to_contain_text("unreachable for")
    until(page, lambda: site.django(SEEN, run=run, ago=0) or banner.is_hidden())
    until(listed, lambda: site.django(SEEN, run=run, ago=0) or "unreachable" not in row.inner_text())
    listed.close()


def test_a_head_that_was_read_in_a_moment_that_no_frame_told_of_is_read_again(
    site: Stack, run: str, page: Page
) -> None:
    site.django(ASSESSED, run=run)
    page.goto(f"{site.url}/runs/{run}/")
    expect(page.locator("#run-status .chip.running")).to_be_visible()
    stale = '<div id="run-notices" data-region data-state="another">A moment of its own.</div>'
    page.route("**/head/", lambda route: route.fulfill(body=stale), times=1)
    site.django(ASKED, run=run)
    expect(page.get_by_text("A moment of its own.")).to_be_visible()
    expect(page.get_by_text("A moment of its own.")).to_be_hidden()


def test_several_are_chosen_by_keyboard_kept_while_the_list_moves_and_stopped(
    site: Stack, run: str, page: Page
) -> None:
    second = str(site.django(A_RUN, name="another"))
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{site.url}/runs/")
    for each in (run, second):
        page.locator(f"#row-{each} input").focus()
        page.keyboard.press("Space")
    page.locator(f"#row-{run} a.name").focus()
    site.django(TRAINED, run=run)
    expect(page.locator(f"#row-{run}")).to_contain_text("40")
    expect(page.locator(f"#row-{run} a.name")).to_be_focused()
    expect(page.locator("#selection")).to_contain_text("2 selected")
    page.locator("#selection [data-dialog=stop-now]").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_contain_text("another")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Asked 2 runs to stop now.")).to_be_visible()


# --- last: from a restart of the web on, a run's silence counts anew ---------------------------------------------


@contextlib.contextmanager
def web_away(site: Stack) -> Iterator[None]:
    """Killed outright, and not there for as long as the block lasts."""
    program = site.fleet.programs()["web"]
    os.kill(site.fleet.pids()["web"], signal.SIGKILL)
    site.fleet.stop(["web"])
    try:
        yield
    finally:
        site.fleet.start(program)


def test_the_page_says_that_the_web_is_gone_and_goes_on_without_a_gap(
    site: Stack, run: str, page: Page, context: BrowserContext
) -> None:
    other = context.new_page()
    for each in (page, other):
        each.goto(f"{site.url}/runs/{run}/")
        until(each, lambda each=each: each.evaluate(SIZE) == 30)
    form = context.new_page()
    form.goto(f"{site.url}/datasets/rows/")
    rows, check = form.locator("[name=rows]"), form.get_by_role("button", name="Check", exact=True)
    with web_away(site):
        form.bring_to_front()
        rows.fill("kept")
        # It hears of the web from nothing but the pointer's way to its button.
        until(form, lambda: (rows.hover(), check.hover()) and form.locator("#connection").is_visible())
        check.click()
        expect(form.locator("#connection")).to_contain_text("What you entered is still here")
        expect(rows).to_have_value("kept")
        form.close()
        page.bring_to_front()
        expect(page.locator("#connection")).to_contain_text("Offline: this page shows the state of")
        page.route("**/healthz", lambda route: route.abort())  # as where nothing listens for it
        with page.expect_event("requestfailed", lambda request: "healthz" in request.url):
            page.locator("[data-nav=datasets]").click()
        expect(page.locator("#connection")).to_contain_text("can’t be opened")
        page.unroute("**/healthz")
        last = site.django(TRAINED, run=run)
    for each in (page, other):
        expect(each.locator("#connection")).to_be_hidden()
        each.bring_to_front()
        until(each, lambda each=each: each.evaluate(SIZE) == last)
        assert each.evaluate(STEPS) == list(range(1, last + 1))
        expect(each.locator("[data-step]")).to_have_text(str(last))
    other.close()
