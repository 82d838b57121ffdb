"""The head of a run's page in a real Chromium: notes and tags of several people, one click to the spec, time zones."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect

from tests.browser.conftest import Complaints, sign_in
from tests.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.processes]

A_RUN = """
from runs.intake.host_api.ingest import accept
from tests.runs import builders
run = builders.a_run("head", hardware={"rollout": "colocate", "trainer_gpus": 8})
accept(builders.an_attempt(run=run), [builders.train(i, reward=i / 100, epoch=i / 40) for i in range(1, 11)])
result = run.pk
"""
ANOTHER = """
from runs.engine import tags
from runs.pages.run_page import notes
from runs.engine.models import Run
from tests.runs import builders
tags.tag([run], builders.a_user(), ["theirs"])
notes.write(Run.objects.get(pk=run), "Theirs.", notes.edition(""), builders.a_user())
"""
JUDGED = """
from datetime import timedelta
from django.db.models import Q
from django.utils import timezone
from runs.insight.health.presets import Presets
from runs.insight.health.tick import look_at
from runs.intake.host_api.ingest import accept
from runs.engine.models import Run
from tests.runs import builders
now = Run.objects.get(pk=run)
accept(now.latest(), [builders.train(i, reward=i / 100, epoch=i / 40) for i in range(now.last_seq + 1, until + 1)])
# As if a while had passed: values of the same verdict are told at a slower pace.
later = timezone.now() + timedelta(minutes=until)
result = any(look_at(r, Presets().of(r), later) for r in map(Run.objects.get, [Q(pk=run)] * 3))  # a tick may be first
"""
TIMED = """
from runs.intake.host_api.ingest import accept
from runs.engine.models import Run
from tests.runs import builders
now = Run.objects.get(pk=run)
accept(now.latest(), [builders.train(i, reward=0.1, epoch=0.2, step_time=4.0) for i in range(11, 15)])
"""
TAGGED = """
from runs.engine import tags
from tests.runs import builders
tags.tag([run], builders.a_user(), ["later"])
"""
ENDED = """
from runs.intake.host_api.ingest import accept
from runs.engine.models import Run
from tests.runs import builders
now = Run.objects.get(pk=run).latest()
accept(now, [builders.ended(now.last_seq + 1, "completed")])
"""
STOPPED = """
from controlplane.platform.accounts.models import User
from runs.engine.scheduling import stopping
from workers.contract.wire.names import StopMode
from runs.engine.models import Run
stopping.request_stop(Run.objects.get(pk=run).latest(), StopMode.SAVE, User.objects.get(username="admin"))
"""


@pytest.fixture
def run(site: Stack, context: BrowserContext) -> str:
    sign_in(site, context)
    return str(site.django(A_RUN))


@pytest.fixture
def in_tokyo(site: Stack, browser: Browser) -> Iterator[Page]:
    context = browser.new_context(timezone_id="Asia/Tokyo", viewport={"width": 1440, "height": 900})
    sign_in(site, context)
    yield context.new_page()
    context.close()


def visit(site: Stack, page: Page, run: str, query: str = "") -> Locator:
    """Answers once the page listens."""
    page.goto(f"{site.url}/runs/{run}/{query}")
    expect(page.locator("html")).to_have_attribute("data-live", "open")
    return page.locator("#run-about")


def test_a_tag_is_added_by_keyboard_and_the_next_one_after_it(
    site: Stack, run: str, page: Page, complaints: Complaints
) -> None:
    about = visit(site, page, run)
    about.get_by_label("Add a tag").focus()
    for tag in ("math", "baseline"):
        page.keyboard.type(tag)
        page.keyboard.press("Enter")
        expect(about.get_by_role("button", name=f"Remove the tag {tag}")).to_be_visible()
        expect(about.get_by_label("Add a tag")).to_be_focused()
    about.get_by_role("button", name="Remove the tag math").click()
    expect(about.get_by_role("listitem")).to_have_text(["baseline"])
    assert complaints.heard == []


def test_what_somebody_else_says_of_a_run_comes_by_itself(site: Stack, run: str, page: Page) -> None:
    about = visit(site, page, run)
    site.django(ANOTHER, run=run)
    expect(about.get_by_role("listitem")).to_have_text(["theirs"])
    notes = page.locator("#run-notes")
    expect(notes).to_contain_text("Theirs.")
    expect(notes).to_contain_text("olga")


def test_a_note_in_the_making_outlives_what_happens_and_meets_the_others(site: Stack, run: str, page: Page) -> None:
    visit(site, page, run)
    notes = page.locator("#run-notes")
    text = notes.get_by_role("textbox", name="Notes")
    notes.get_by_role("button", name="Add a note").click()
    text.fill("Mine.")
    page.locator("#panel-charts").click(position={"x": 5, "y": 5})  # which closes other drawers
    site.django(ANOTHER, run=run)
    site.django(STOPPED, run=run)
    expect(page.locator("#run-status")).to_contain_text("asked to save and stop")
    expect(text).to_have_value("Mine.")
    notes.get_by_role("button", name="Save notes").click()
    expect(notes.get_by_role("alert")).to_contain_text("olga has changed the notes since you opened them.")
    expect(text).to_have_value("Mine.")
    text.fill("Theirs. **Mine.**")
    notes.get_by_role("button", name="Save notes").click()
    expect(notes.locator("strong")).to_have_text("Mine.")
    site.django(TAGGED, run=run)
    expect(page.locator("#run-about").get_by_role("listitem")).to_have_text(["later", "theirs"])
    expect(notes.locator("strong")).to_be_visible()


@pytest.mark.parametrize("width", [1440, 390])
def test_a_stop_in_progress_moves_nothing(site: Stack, run: str, page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 844})
    site.django("from runs.engine.models import Run\nRun.objects.filter(pk=run).update(max_steps=5000)", run=run)
    site.django(TIMED, run=run)
    visit(site, page, run)
    expect(page.locator("[data-eta]")).to_contain_text("left")
    below = page.get_by_role("tab").first
    before = below.bounding_box()
    site.django(STOPPED, run=run)
    expect(page.locator("#run-status")).to_contain_text("asked to save and stop by admin")
    assert below.bounding_box() == before


IN_EACH_STATE = """
from django.utils import timezone
from runs.intake.host_api.ingest import accept
from runs.engine.models import Attempt, Run
from runs.engine.states import RunStatus
from tests.browser.driving import ASSESSED
from tests.runs import builders
from tests.runs.builders import FREE
runs = {}
for name in ("queued", "starting", "running", "stopping", "failed", "succeeded"):
    long = name + " qwen2.5-1.5b-lora-r16-beta0.04" * 2
    run = builders.a_run(long, hardware={"rollout": "colocate", "trainer_gpus": 8})
    Run.objects.filter(pk=run.pk).update(tags=["one", "two", "three", "four"], notes="**Long** notes. " * 40)
    runs[name] = run.pk
    if name == "queued":
        continue
    attempt = builders.an_attempt(RunStatus.STARTING if name == "starting" else RunStatus.RUNNING, run=run)
    if name != "starting":
        accept(attempt, [builders.train(i, reward=i / 100, step_time=4.0) for i in range(1, 31)])
        exec(ASSESSED, {"run": run.pk})
        Run.objects.filter(pk=run.pk).update(max_steps=40)
    if name in ("failed", "succeeded"):
        attempt.refresh_from_db()
        reason = "completed" if name == "succeeded" else "trainer_exited"
        accept(attempt, [builders.ended(attempt.last_seq + 1, reason, detail="It broke. " * 20)])
        Attempt.objects.filter(pk=attempt.pk).update(receipt=FREE)
    if name == "stopping":
        asked = {"stop_mode": "now", "stop_requested_at": timezone.now()}
        Attempt.objects.filter(pk=attempt.pk).update(status="stopping", **asked)
result = runs
"""
PLACES = """() => {
  const of = (selector) => document.querySelector(selector).getBoundingClientRect();
  const content = [...document.querySelectorAll("#run-now > *, .tiles, #run-cause > *, .panel:not([hidden])")]
    .map((each) => each.getBoundingClientRect()).filter((each) => each.height);
  const foot = innerWidth > 700 ? innerHeight : of(".rail").top;
  return {
    head: of(".run-bar").top - of(".top").top,
    bar: of(".run-bar").height,
    seen: (foot - Math.min(...content.map((each) => each.top))) / foot,
    panel: of(".panel:not([hidden])").top < foot,
  };
}"""
"""Heights in px; `seen`: the share of the window below the top of what the tab holds; `panel`: it is in sight."""


def test_in_every_state_the_head_is_low_and_a_tab_is_in_view_at_once(
    site: Stack, run: str, page: Page, complaints: Complaints
) -> None:
    for state, each in site.django(IN_EACH_STATE).items():
        visit(site, page, each)
        for width, most, least in ((1440, 120, 0.75), (390, 150, 0.7)):
            page.set_viewport_size({"width": width, "height": 844})
            places = page.evaluate(PLACES)
            assert places["head"] <= most, (state, width, places)
            assert places["bar"] == 44
            assert places["seen"] >= least, (state, width, places)
            assert places["panel"] or state == "failed", (state, width, places)
    assert complaints.heard == []


def test_tabs_and_stop_stay_in_sight_and_a_tab_begins_below_them(site: Stack, run: str, page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    visit(site, page, run)
    page.locator("[data-chart]").last.scroll_into_view_if_needed()
    expect(page.locator("#run-status")).not_to_be_in_viewport()
    expect(page.locator("#run-actions summary", has_text="Stop")).to_be_in_viewport()
    bar = page.locator(".run-bar").bounding_box()
    assert bar
    assert bar["y"] == 0
    page.get_by_role("tab", name="Completions").click()
    bar, panel = (page.locator(part).bounding_box() for part in (".run-bar", "#panel-completions"))
    assert bar
    assert panel
    assert bar["y"] + bar["height"] <= panel["y"] < 220


def test_the_browsers_tab_says_how_far_a_run_is_and_how_it_ended(site: Stack, run: str, page: Page) -> None:
    site.django("from runs.engine.models import Run\nRun.objects.filter(pk=run).update(max_steps=40)", run=run)
    visit(site, page, run)
    expect(page).to_have_title("25% · head · GRPO control plane")
    ring = page.locator("link[rel=icon]").get_attribute("href")
    site.django(TIMED, run=run)
    expect(page).to_have_title("35% · head · GRPO control plane")
    assert page.locator("link[rel=icon]").get_attribute("href") != ring
    site.django(ENDED, run=run)
    expect(page).to_have_title("✓ head · GRPO control plane")


@pytest.mark.parametrize(("link", "fold"), [("spec", "json"), ("commands", "commands")])
def test_spec_and_commands_are_one_click_away(site: Stack, run: str, page: Page, link: str, fold: str) -> None:
    visit(site, page, run)
    page.locator(".breadcrumb").get_by_role("link", name=link, exact=True).click()
    expect(page.locator(f"details[data-fold={fold}]")).to_have_attribute("open", "")
    expect(page.locator(f"details[data-fold={fold}] pre").first).to_be_in_viewport()
    expect(page.get_by_role("tab", name="Spec")).to_have_attribute("aria-selected", "true")


def test_times_are_those_of_the_viewers_own_clock(site: Stack, run: str, in_tokyo: Page) -> None:
    visit(site, in_tokyo, run, "?tab=events")
    line = in_tokyo.locator(".timeline time[data-form=clock]").first
    expect(line).to_have_attribute("data-local", "")
    ours = in_tokyo.evaluate(
        "t => new Date(t).toLocaleTimeString('sv-SE', {timeZone: 'Asia/Tokyo'})", line.get_attribute("datetime")
    )
    expect(line).to_have_text(ours)
    assert "GMT+9" in (line.get_attribute("title") or "")


def test_tabs_are_reached_by_keys_and_kept_in_the_address(site: Stack, run: str, page: Page) -> None:
    visit(site, page, run)
    page.get_by_role("tab", name="Charts").focus()
    page.keyboard.press("ArrowLeft")
    expect(page.get_by_role("tab", name="Spec")).to_be_focused()
    page.keyboard.press(" ")
    expect(page.get_by_role("heading", name="Model and data")).to_be_visible()
    page.wait_for_url("**/?tab=spec")
    page.reload()
    expect(page.get_by_role("tab", name="Spec")).to_have_attribute("aria-selected", "true")


def test_phases_go_on_and_new_events_come_on_top(site: Stack, run: str, page: Page, complaints: Complaints) -> None:
    visit(site, page, run, "?tab=events")
    going = page.locator(".spans .going .took")
    before = going.inner_text()
    expect(going).not_to_have_text(before)
    site.django(ANOTHER, run=run)
    expect(page.locator(".timeline li").first).to_contain_text("Changed the notes. olga")
    assert complaints.heard == []


def test_folds_and_the_focus_stay_when_the_head_is_read_anew(site: Stack, run: str, page: Page) -> None:
    assert site.django(JUDGED, run=run, until=10)  # else the first assessment would come some time in this test
    visit(site, page, run)
    card = page.locator("#run-health > details")
    inner = card.locator("details.checks")
    card.locator("> summary").click()
    inner.locator("> summary").click()
    before = card.evaluate_handle("card => card")
    site.django(ANOTHER, run=run)
    expect(page.locator("#run-notes")).to_contain_text("Theirs.")
    assert card.evaluate("(card, before) => card === before", before), "nothing of it had changed"
    assert site.django(JUDGED, run=run, until=20)
    expect(card).to_contain_text("step 20")
    expect(card).to_have_attribute("open", "")
    expect(inner).to_have_attribute("open", "")
    expect(inner.locator("> summary")).to_be_focused()


def test_a_dialog_that_a_menu_opened_gives_the_focus_back_to_it(site: Stack, run: str, page: Page) -> None:
    visit(site, page, run)
    menu = page.locator("#run-actions summary", has_text="Stop")
    menu.click()
    page.get_by_role("button", name="Stop now").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    expect(menu).to_be_focused()
