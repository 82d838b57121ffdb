"""The logs tab in a real Chromium: a large log through a small window, its live end, search, and the first error."""

from __future__ import annotations

import pytest
from playwright.sync_api import BrowserContext, Page, Route, expect

from tests.browser.conftest import Complaints, sign_in
from tests.browser.driving import until
from tests.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.processes]

A_LOG = """
from runs.engine.records import LogChunk
from tests.runs import builders
attempt = builders.an_attempt(run=builders.a_run("logs", hardware={"rollout": "colocate", "trainer_gpus": 8}))
lines = [b"line %07d: all is well and nothing is to be said of it\\n" % i for i in range(count)]
if count > 1000:
    lines[count // 3] = b"RuntimeError: line %07d is where it broke\\n" % (count // 3)
data = b"".join(lines)
LogChunk.objects.bulk_create(
    (LogChunk(attempt=attempt, name="trainer", offset=at, data=data[at:at + 65536])
     for at in range(0, len(data), 65536)), batch_size=50)
result = attempt.run_id
"""
MORE = """
from runs.intake.host_api import uploads
from runs.engine.models import Run
attempt = Run.objects.get(pk=run).latest()
from runs.engine import queries
uploads.log(attempt, "trainer", queries.log_sizes(attempt)["trainer"], text.encode())
"""
LARGE = 400_000
"""Lines: 22 MB, which is forty times what the window holds."""
HELD = "document.querySelector('[data-log-view]').textContent.length"
VIEW = "document.querySelector('[data-log-view]')"


@pytest.fixture(autouse=True)
def signed_in(site: Stack, context: BrowserContext) -> None:
    sign_in(site, context, "viewer")


@pytest.fixture
def a_log(site: Stack) -> str:
    return str(site.django(A_LOG, count=200))


@pytest.fixture(scope="module")
def large(site: Stack) -> str:
    """No test writes to it."""
    return str(site.django(A_LOG, count=LARGE))


def visit(site: Stack, page: Page, run: str, query: str = "") -> None:
    page.goto(f"{site.url}/runs/{run}/?tab=logs{query}")
    expect(page.locator("html")).to_have_attribute("data-live", "open")


def held_read(site: Stack, page: Page, run: str, text: str) -> Route:
    """The page's request for `text`, which is written now, before it is answered."""
    held: list[Route] = []
    page.route("**/logs/trainer?*offset=*", lambda route: held.append(route))
    view = page.locator("[data-log-view]")
    for _ in range(2):  # a read that was on its way may take the first one
        site.django(MORE, run=run, text=text)
        until(page, lambda: held or text.strip() in (view.text_content() or ""))
        if held:
            return held[0]
    raise AssertionError("two writes were read by requests that began before them")


def line(number: int) -> str:
    return f"line {number:07}"


def test_a_log_opens_at_its_end_and_follows_what_is_written(
    site: Stack, a_log: str, page: Page, complaints: Complaints
) -> None:
    visit(site, page, a_log)
    view = page.locator("[data-log-view]")
    expect(view).to_contain_text(line(199))
    site.django(MORE, run=a_log, text="something new\nand a line in the making")
    expect(view).to_contain_text("and a line in the making")
    site.django(MORE, run=a_log, text=", which is finished\n")
    expect(view).to_contain_text("and a line in the making, which is finished")
    until(page, lambda: page.evaluate(f"{VIEW}.scrollHeight - {VIEW}.scrollTop - {VIEW}.clientHeight") < 24)
    assert complaints.heard == []


def test_a_log_that_grows_while_it_is_scrolled_to_its_end_is_followed_on(site: Stack, a_log: str, page: Page) -> None:
    visit(site, page, a_log)
    expect(page.locator("[data-log-view]")).to_contain_text(line(199))
    read = held_read(site, page, a_log, "the first news\n")
    page.evaluate(f"{VIEW}.dispatchEvent(new Event('scroll'))")  # of the scrolling before, as events come late
    expect(page.get_by_label("Follow")).to_be_checked()
    read.continue_()
    page.unroute_all()
    expect(page.locator("[data-log-view]")).to_contain_text("the first news")
    site.django(MORE, run=a_log, text="the second news\n")
    expect(page.locator("[data-log-view]")).to_contain_text("the second news")


def test_whoever_reads_further_up_stays_there(site: Stack, a_log: str, page: Page) -> None:
    visit(site, page, a_log)
    expect(page.locator("[data-log-view]")).to_contain_text(line(199))
    until(page, lambda: page.evaluate(f"{VIEW}.scrollHeight - {VIEW}.scrollTop - {VIEW}.clientHeight") < 24)
    page.evaluate(f"{VIEW}.scrollTop = 100")
    expect(page.get_by_label("Follow")).not_to_be_checked()
    site.django(MORE, run=a_log, text="more\n" * 50)
    expect(page.locator("[data-log-size-of=trainer]")).not_to_have_text("")
    page.wait_for_timeout(500)
    assert page.evaluate(f"{VIEW}.scrollTop") == 100
    page.get_by_role("button", name="End").click()
    expect(page.locator("[data-log-view]")).to_contain_text("more\nmore")


def test_scrolling_up_is_noticed_even_when_news_come_before_its_event(site: Stack, a_log: str, page: Page) -> None:
    visit(site, page, a_log)
    expect(page.locator("[data-log-view]")).to_contain_text(line(199))
    read = held_read(site, page, a_log, "more\n" * 50)
    page.evaluate("window.addEventListener('scroll', (event) => event.stopImmediatePropagation(), true)")
    page.evaluate(f"{VIEW}.scrollTop = 100")
    read.continue_()
    page.unroute_all()
    expect(page.locator("[data-log-view]")).to_contain_text("more\nmore")
    expect(page.get_by_label("Follow")).not_to_be_checked()
    assert page.evaluate(f"{VIEW}.scrollTop") == 100


def test_a_large_log_is_a_small_window_wherever_somebody_scrolls(
    site: Stack, large: str, page: Page, complaints: Complaints
) -> None:
    visit(site, page, large)
    view = page.locator("[data-log-view]")
    expect(view).to_contain_text(line(LARGE - 1))
    for _ in range(12):
        held = page.locator(".log-part").first.inner_text()[:20]
        page.evaluate(f"{VIEW}.scrollTop = 0")
        until(page, lambda held=held: page.locator(".log-part").first.inner_text()[:20] != held)
        assert page.evaluate(HELD) < 700_000
    assert page.locator(".log-part").count() < 12
    page.get_by_role("button", name="Start", exact=True).click()
    expect(view).to_contain_text(line(0))
    for _ in range(12):
        held = page.locator(".log-part:not(.open)").last.inner_text()[:20]
        page.evaluate(f"{VIEW}.scrollTop = {VIEW}.scrollHeight")
        until(page, lambda held=held: page.locator(".log-part:not(.open)").last.inner_text()[:20] != held)
    assert page.evaluate(HELD) < 700_000
    assert complaints.heard == []


def test_every_line_is_there_once_while_scrolling_down(site: Stack, large: str, page: Page) -> None:
    visit(site, page, large, "&l.at=0")
    expect(page.locator("[data-log-view]")).to_contain_text(line(0))
    page.evaluate(f"{VIEW}.scrollTop = {VIEW}.scrollHeight")
    until(page, lambda: page.locator(".log-part:not(.open)").count() >= 2)
    text = page.evaluate("[...document.querySelectorAll('.log-part')].map(p => p.textContent).join('')")
    lines = text.splitlines()
    assert len(lines) > 2000
    assert [one[:12] for one in lines] == [line(i) for i in range(len(lines))]


def test_the_first_error_of_a_large_log_is_one_click_away(site: Stack, large: str, page: Page) -> None:
    visit(site, page, large)
    page.get_by_role("button", name="First error").click()
    expect(page.locator("[data-log-found]")).to_have_text("1 of 1 error line")
    found = page.locator(".log-view .target")
    expect(found).to_have_text(f"RuntimeError: line {LARGE // 3:07} is where it broke\n")
    expect(found).to_be_in_viewport()


def test_a_search_goes_through_its_matches_and_is_kept_in_the_address(site: Stack, large: str, page: Page) -> None:
    visit(site, page, large)
    expect(page.locator("[data-log-view]")).to_contain_text(line(LARGE - 1))
    page.keyboard.press("/")
    page.keyboard.type("LINE 01234")
    page.keyboard.press("Enter")
    status = page.locator("[data-log-found]")
    expect(status).to_have_text("1 of 100 matches")
    page.keyboard.press("Enter")
    expect(status).to_have_text("2 of 100 matches")
    expect(page.locator(".log-view .target")).to_contain_text(line(123_401))
    page.keyboard.press("Shift+Enter")
    page.keyboard.press("Shift+Enter")
    expect(status).to_have_text("100 of 100 matches")
    expect(page.locator(".log-view .target mark")).to_have_text("line 01234")
    page.wait_for_url("**l.q=*")
    page.reload()
    expect(status).to_have_text("100 matches")
    expect(page.locator(".log-view")).to_contain_text(line(123_499))


def test_nothing_found_is_said_and_that_it_may_be_in_what_was_left_out(site: Stack, a_log: str, page: Page) -> None:
    visit(site, page, a_log)
    page.get_by_label("Search the whole log").fill("no such words")
    page.get_by_role("button", name="Search", exact=True).click()
    expect(page.locator("[data-log-found]")).to_have_text("No matches.")
    page.get_by_role("button", name="First error").click()
    expect(page.locator("[data-log-found]")).to_have_text("No errors in this log.")
    gap = "[5000 bytes left out here; the host has the whole file]\n"
    site.django(MORE, run=a_log, text=gap)
    expect(page.locator(".log-view .left-out")).to_have_text(gap)
    page.get_by_role("button", name="First error").click()
    expect(page.locator("[data-log-found]")).to_have_text(
        "No errors in this log. Parts of this log are stored only on the host."
    )
