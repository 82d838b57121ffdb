"""The run page in a real Chromium: charts that follow and keep their range, a lost connection, themes, keys, widths."""

from __future__ import annotations

import pytest
from playwright.sync_api import BrowserContext, Page, WebSocketRoute, expect

from tests.browser import seeing
from tests.browser.conftest import Complaints, sign_in
from tests.browser.driving import ASSESSED, drag, until
from tests.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.processes]

# Eight GPUs are more than the host has, so nothing is started: the test itself says what the supervisor would.
MANY = """
from tests.browser import completions_data as data
from runs.intake.host_api.ingest import accept
from tests.runs import builders
attempt = data.a_run("long-name-without-a-space-" * 7, 30)
names = [part["name"] for part in attempt.run.spec["rewards"]]
accept(attempt, [builders.train(i, reward=i / 10, **{f"rewards/{n}/mean": 0.5 for n in names}) for i in range(1, 6)])
result = attempt.run_id
"""
A_RUN = """
from runs.intake.host_api.ingest import accept
from tests.runs import builders
run = builders.a_run(name, hardware={"rollout": "colocate", "trainer_gpus": 8})
accept(builders.an_attempt(run=run), [builders.train(i, reward=i / 100, loss=0.1) for i in range(1, 31)])
result = run.pk
"""
MORE = """
from runs.intake.host_api.ingest import accept
from runs.engine.models import Attempt
from tests.runs import builders
attempt = Attempt.objects.get(run_id=run)
first = attempt.last_seq + 1
accept(attempt, [builders.train(i, reward=i / 100, loss=0.1) for i in range(first, first + 10)])
"""
SIZE = "Math.max(0, ...(document.querySelector('[data-chart=reward] [data-plot]')?.data ?? []).map(t => t.x.length))"
IN_A_ROW = """keys => {
  const typed = key => new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true });
  for (const key of keys) document.body.dispatchEvent(typed(key));
}"""
"""As somebody types them, however long this machine takes to pass them on."""
RANGE = "document.querySelector('[data-chart=reward] [data-plot]').layout.xaxis.range"


@pytest.fixture
def signed_in(site: Stack, context: BrowserContext) -> None:
    sign_in(site, context, "admin")


@pytest.fixture
def run(site: Stack, signed_in: None) -> str:
    run = str(site.django(A_RUN, name="<b>bold</b>"))
    site.django(ASSESSED, run=run)
    return run


def test_a_range_that_somebody_zoomed_to_stays_while_numbers_arrive(
    site: Stack, run: str, page: Page, complaints: Complaints
) -> None:
    page.goto(f"{site.url}/runs/{run}/")
    until(page, lambda: page.evaluate(SIZE) == 30)
    drag(page, "reward", 60, 160)
    until(page, lambda: page.evaluate(RANGE)[1] < 25)
    zoomed = page.evaluate(RANGE)
    site.django(MORE, run=run)
    until(page, lambda: page.evaluate(SIZE) == 40)
    assert page.evaluate(RANGE) == zoomed
    assert complaints.heard == []


def test_a_lost_connection_goes_on_where_it_was(site: Stack, run: str, page: Page) -> None:
    sockets: list[WebSocketRoute] = []

    def through(socket: WebSocketRoute) -> None:
        socket.connect_to_server()
        sockets.append(socket)

    page.route_web_socket(f"**/ws/runs/{run}/**", through)
    page.goto(f"{site.url}/runs/{run}/")
    until(page, lambda: sockets and page.evaluate(SIZE) == 30)
    before = len(sockets)
    sockets[-1].close(code=1012)
    site.django(MORE, run=run)
    until(page, lambda: page.evaluate(SIZE) == 40)
    assert "after=" in sockets[-1].url
    assert len(sockets) > before
    expect(page.locator("#connection")).to_be_hidden()


def test_a_chosen_theme_is_there_before_the_first_paint(site: Stack, signed_in: None, page: Page) -> None:
    page.goto(f"{site.url}/runs/")
    assert page.evaluate("document.documentElement.dataset.theme ?? 'system'") == "system"
    page.locator(".rail > [data-theme-toggle]").click()
    page.locator(".rail > [data-theme-toggle]").click()
    page.add_init_script(
        "addEventListener('DOMContentLoaded', () => (window.first = document.documentElement.dataset.theme))"
    )
    page.reload()
    assert page.evaluate("window.first") == "dark"
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark"


def test_keys_go_where_they_say(site: Stack, signed_in: None, page: Page) -> None:
    page.goto(f"{site.url}/hardware/")
    page.evaluate(IN_A_ROW, ["g", "r"])
    expect(page.get_by_role("heading", level=1)).to_have_text("Runs")
    page.wait_for_load_state()  # its modules listen from then on
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("Keyboard shortcuts")
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    expect(page.locator("#run-search")).to_be_focused()
    page.keyboard.type("nothing has this name")
    expect(page.get_by_text("No run matches")).to_be_visible()


def test_a_letter_on_a_fresh_page_goes_nowhere(site: Stack, signed_in: None, page: Page) -> None:
    page.add_init_script(
        """addEventListener("DOMContentLoaded", () => {
            // As typed within the page's first second, whenever this machine gets to it.
            const typed = new KeyboardEvent("keydown", { key: "s", bubbles: true });
            Object.defineProperty(typed, "timeStamp", { value: 300 });
            window.free = document.body.dispatchEvent(typed);
        })"""
    )
    page.goto(f"{site.url}/hardware/")
    assert page.evaluate("window.free") is True
    expect(page).to_have_url(f"{site.url}/hardware/")


def test_the_list_follows_by_itself(site: Stack, run: str, page: Page) -> None:
    page.goto(f"{site.url}/runs/")
    page.mouse.move(0, 0)
    row = page.locator(f"#row-{run}")
    expect(row).to_contain_text("30")
    site.django(MORE, run=run)
    expect(row).to_contain_text("40")


def test_long_names_make_no_page_wider_than_its_window(
    site: Stack, signed_in: None, page: Page, complaints: Complaints
) -> None:
    run = site.django(MANY)
    paths = (f"/runs/{run}/", f"/runs/compare/?runs={run}", "/runs/", "/settings/", f"/runs/{run}/?tab=spec")
    assert seeing.too_wide(page, *[site.url + path for path in paths]) == []
    page.reload()
    expect(page.locator(".spec-cards")).to_be_visible()
    chosen = page.get_by_role("tab", name="Spec").bounding_box()
    assert chosen
    assert 0 <= chosen["x"] <= 390 - chosen["width"]
    assert complaints.heard == []
