"""What pages promise to everybody, in a real Chromium: a name for every control, text that can be read in both themes,
no motion where none is wanted, no page wider than its window, nothing that axe calls serious, and nothing that jumps
while data comes in."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.browser import seeing
from tests.browser.conftest import sign_in
from tests.browser.seeing import PHONE, WIDE, resize, settled, visit
from tests.stack import Stack
from tests.waiting import LIMIT_MS

pytestmark = [pytest.mark.browser, pytest.mark.processes]

DATA = "from tests.browser import people_data\nresult = people_data."
JUMP = 0.1
"""What Chromium calls a good score of layout shifts."""
AXE_LOOKS_AT = ((PHONE, "dark"), (WIDE, "light"))
"""Each width and each theme once: axe takes seconds on a long page, and contrast is checked in all four without it."""
SICK = """<!doctype html><title> </title><style>
  p { transition: color 0.2s } p::after { animation: go 1s infinite; content: "" } @keyframes go { to { opacity: 0 } }
</style><body style="width: 2000px; background: #222; color: #444">
<h1>Sick</h1><h3 id="same">Skips a level</h3><p id="same">faint</p><button></button><input><a href="#x"></a>
<div style="background: #fff"><p class="veil" style="color: #000; opacity: 0.3">seen through</p></div>
<p style="color: #fff">well</p><button disabled>off</button></body>"""


@pytest.fixture(scope="module")
def paths(site: Stack) -> Iterator[dict[str, str]]:
    """What a page is of -> its path."""
    rows = [
        {
            "question": f"Ann sold {2 * n} clips in April, and half as many in May. And in all?",
            "answer": f"#### {3 * n}",
        }
        for n in range(1, 41)
    ]
    yield site.django(f"{DATA}everything(rows)", rows=rows)
    site.django(f"{DATA}forget()")


@pytest.fixture
def still(site: Stack, browser: Browser) -> Iterator[BrowserContext]:
    """Of somebody who wants no motion."""
    context = browser.new_context(reduced_motion="reduce")
    context.set_default_timeout(LIMIT_MS)
    context.add_init_script(seeing.STEADY)
    sign_in(site, context, "admin")
    yield context
    context.close()


def wrong_with(page: Page, address: str) -> list[str]:
    """All that is wrong with one page, in one visit."""
    page.emulate_media(color_scheme="light")
    resize(page, WIDE)
    visit(page, address)
    moved = seeing.shifted(page)
    found = [f"moved by {moved:.2f}: {page.evaluate('window.shifted')}"] if moved >= JUMP else []
    for script in (seeing.SHAPE, seeing.NAMELESS, seeing.MOVES, seeing.WIDER):
        found += page.evaluate(script)
    resize(page, PHONE)
    found += settled(page, seeing.WIDER)
    page.evaluate(seeing.UNFOLD)
    for size, theme in ((PHONE, "light"), (PHONE, "dark"), (WIDE, "dark"), (WIDE, "light")):
        resize(page, size)
        page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]  # it takes literals
        problems = settled(page, seeing.FAINT)
        if (size, theme) in AXE_LOOKS_AT:
            problems += seeing.barriers(page)
        found += [f"{theme} at {size[0]}: {problem}" for problem in problems]
    return found


def test_what_is_wrong_with_a_page_is_found(page: Page) -> None:
    page.set_content(SICK)
    assert page.evaluate(seeing.SHAPE) == ["the id same twice", "no language", "no title", "h3 after h1: Skips a level"]
    assert page.evaluate(seeing.MOVES) == ["p.", "p.::after", "p.veil", "p.veil::after"]
    assert page.evaluate(seeing.WIDER) == ["2008 pixels wide in a window of 1440"]
    assert page.evaluate(seeing.NAMELESS) == ["<button></button>", "<input>", '<a href="#x"></a>']
    assert [each.partition(" ")[2] for each in page.evaluate(seeing.FAINT)] == [
        "h1.: Sick",
        "h3.: Skips a level",
        "p.: faint",
        "p.veil: seen through",
    ]


def test_every_page_can_be_read_and_reached_and_stands_still(
    site: Stack, paths: dict[str, str], still: BrowserContext
) -> None:
    page = still.new_page()
    found = {of: wrong_with(page, site.url + path) for of, path in paths.items()}
    still.clear_cookies()
    found["sign in"] = wrong_with(page, f"{site.url}/sign-in/")
    assert {of: wrong for of, wrong in found.items() if wrong} == {}


def test_the_axis_of_a_young_run_names_no_step_twice(site: Stack, paths: dict[str, str], still: BrowserContext) -> None:
    page = still.new_page()
    page.goto(f"{site.url}/runs/{site.django(f'{DATA}young_run()')}/")
    marks = page.locator("[data-chart=reward] .xtick")
    expect(marks.first).to_be_visible()
    assert len(set(marks.all_text_contents())) == marks.count()


def test_nothing_jumps_while_data_comes_in(site: Stack, paths: dict[str, str], still: BrowserContext) -> None:
    run = site.django(f"{DATA}young_run()")
    pages = {size[0]: still.new_page() for size in (WIDE, PHONE)}
    moved: dict[str, dict[str, float]] = {}
    for page, size in zip(pages.values(), (WIDE, PHONE), strict=True):
        resize(page, size)
        page.goto(f"{site.url}/runs/{run}/")
        expect(page.locator("html")).to_have_attribute("data-live", "open")
    for what, place, words in (
        ("figures", "#run-status", "42"),
        ("a new metric", "[data-group=Other]", "tools/calls"),
        ("health", "#run-health", "step 42"),
        ("tags", "#run-about", "math"),
        ("notes", "#run-notes", "Does it hold the format?"),
        ("a notice", "#run-status", "asked to save and stop"),
    ):
        site.django(f"{DATA}comes_in(run, what)", run=run, what=what)
        for page in pages.values():
            page.bring_to_front()
            expect(page.locator(place)).to_contain_text(words)
        moved[f"up to {what}"] = {f"at {width}": seeing.shifted(page) for width, page in pages.items()}
    assert max(moved["up to a notice"].values()) < JUMP / 5, moved
