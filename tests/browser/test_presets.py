"""The pages of the settings in a real Chromium: health presets and what a run then says, and where alerts go."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Locator, Page, expect

from tests.browser.conftest import Complaints, sign_in
from tests.browser.driving import chart, curves, until
from tests.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.processes]

# Eight GPUs are more than the host has, so nothing is started: the test itself says what the supervisor would.
A_RUN = """
from runs.insight.health import tick
from runs.insight.health.presets import preset_of
from runs.intake.host_api.ingest import accept
from runs.engine.models import Run
from django.utils import timezone
from tests.runs import builders
run = builders.a_run("judged", hardware={"rollout": "colocate", "trainer_gpus": 8}, grpo={"max_steps": 90, "beta": 0.1})
lines = [builders.train(i, reward=0.1, kl=0.25, frac_reward_zero_std=0.2, loss=0.1) for i in range(1, 41)]
accept(builders.an_attempt(run=run), lines)
run = Run.objects.get(pk=run.pk)
tick.look_at(run, preset_of(run), timezone.now(), with_events=False)
result = run.pk
"""
PRESET = """
from runs.engine.models import HealthPreset
found = HealthPreset.objects.filter(name=name).first()
result = found and {"bounds": found.bounds, "source": found.source}
"""
MORE_STEPS = """
from django.utils import timezone
from runs.insight.health import tick
from runs.insight.health.presets import preset_of
from runs.intake.host_api.ingest import accept
from runs.engine.models import Run
from tests.runs import builders
lines = [builders.train(i, reward=0.1, kl=0.25, frac_reward_zero_std=0.2, loss=0.1) for i in range(41, 81)]
accept(Run.objects.get(pk=run).latest(), lines)
result = tick.look_at(found := Run.objects.get(pk=run), preset_of(found), timezone.now(), with_events=False)
"""
GO_BY = """
from runs.engine.models import HealthPreset, Run
Run.objects.filter(pk=run).update(preset=HealthPreset.objects.create(name="Close", bounds=bounds))
"""
LINES = (
    """id => (document.querySelector(`[data-chart='${id}'] [data-plot]`)?.layout?.shapes ?? []).map(line => line.y0)"""
)
TOP = "id => document.querySelector(`[data-chart='${id}'] [data-plot]`)._fullLayout.yaxis.range[1]"
DEFAULT = "from runs.engine.models import HealthPreset\nresult = HealthPreset.objects.get(is_default=True).name"
FORGET = """
from runs.engine.alerts.models import AlertTarget
from runs.engine.models import HealthPreset
AlertTarget.objects.all().delete()
HealthPreset.objects.filter(slug=None).update(is_default=False)
HealthPreset.objects.filter(slug=None).delete()
HealthPreset.objects.filter(slug="mixed").update(is_default=True)
"""


@pytest.fixture(autouse=True)
def as_it_was(site: Stack, context: BrowserContext) -> Iterator[None]:
    """Other tests of this installation go by the shipped preset, and tell nobody."""
    sign_in(site, context, "admin")
    yield
    site.django(FORGET)


@pytest.fixture
def webhook() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """(its address on this machine, the messages that it was sent)"""
    heard: list[dict[str, Any]] = []

    class Hook(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            heard.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hook) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/hook", heard
        server.shutdown()


def test_a_preset_is_copied_changed_and_a_run_that_goes_by_it_is_judged_anew(
    site: Stack, page: Page, complaints: Complaints
) -> None:
    run = site.django(A_RUN)
    a_copy(site, page)
    page.get_by_label("Name").fill("Strict on KL")
    page.get_by_label("Source of the numbers").fill("A talk.")
    bound(page, "kl", "warning").fill("0.2")
    bound(page, "kl", "bad").fill("0.24")
    page.get_by_role("button", name="Save preset").click()
    expect(page.get_by_text("Saved the preset Strict on KL.")).to_be_visible()
    expect(page.get_by_role("row", name="Strict on KL")).to_contain_text("A talk.")
    stored = site.django(PRESET, name="Strict on KL")
    assert stored["bounds"]["kl"] == {"warning": 0.2, "bad": 0.24}
    card = health(site, page, run)
    expect(card).to_contain_text("Health: healthy")
    card.locator("> summary").click()
    card.get_by_label("Thresholds").select_option("Strict on KL")
    card.get_by_role("button", name="Use", exact=True).click()
    expect(card).to_contain_text("Health: unhealthy")
    found = card.locator(".finding.bad")
    expect(found).to_contain_text("KL drift")
    expect(found.locator(".num")).to_have_text("0.25")
    expect(found).to_contain_text("warning above 0.2, bad above 0.24")
    expect(found).to_contain_text("Threshold: Preset “Strict on KL”.")
    page.goto(f"{site.url}/settings/health/")
    expect(page.get_by_role("row", name="Strict on KL").locator("[data-label='Runs with this preset']")).to_have_text(
        "1"
    )
    assert complaints.heard == []


def test_bounds_are_lines_on_the_charts_and_one_far_away_leaves_the_curve_its_room(
    site: Stack, page: Page, complaints: Complaints
) -> None:
    run = site.django(A_RUN)
    near = {"kl": {"warning": 0.3, "bad": 2.0}, "zero_spread": {"warning": 0.15, "bad": 0.98}}
    site.django(GO_BY, run=run, bounds=near)
    page.goto(f"{site.url}/runs/{run}/")
    assert drawn(page, "kl") == [0.3]
    expect(chart(page, "kl").get_by_text("warning", exact=True)).to_be_visible()
    assert page.evaluate(TOP, "kl") < 1.5 * 0.25
    assert drawn(page, "zero-spread") == [15]
    page.goto(f"{site.url}/settings/health/")
    page.get_by_role("link", name="Close").click()
    bound(page, "kl", "warning").fill("0.1")
    bound(page, "kl", "bad").fill("0.2")
    page.get_by_role("button", name="Save preset").click()
    page.goto(f"{site.url}/runs/{run}/")
    assert drawn(page, "kl") == [0.1, 0.2]
    chart(page, "kl").locator("summary").click()
    page.get_by_label("Logarithmic").check()
    until(page, lambda: page.evaluate(LINES, "kl") == [0.2], "the far line of a logarithmic axis did not go")
    assert complaints.heard == []


def test_an_open_page_shows_newer_values_of_health_though_the_verdict_stays(site: Stack, page: Page) -> None:
    run = site.django(A_RUN)
    card = health(site, page, run)
    expect(card).to_contain_text("as of step 40")
    assert site.django(MORE_STEPS, run=run)
    expect(card).to_contain_text("as of step 80")
    expect(card).to_contain_text("Health: healthy")


def test_wrong_bounds_are_named_beside_their_fields_and_nothing_is_saved(
    site: Stack, page: Page, complaints: Complaints
) -> None:
    a_copy(site, page)
    name = page.get_by_label("Name").input_value()
    before = site.django(PRESET, name=name)
    bound(page, "kl", "warning").fill("3")
    bound(page, "length_cap", "warning").fill("170")
    page.get_by_role("button", name="Save preset").click()
    told = page.get_by_role("alert").filter(has_text="2 fields to correct.")
    expect(told).to_contain_text("The worse bound must be above the milder one.")
    expect(told).to_contain_text("At most 100.")
    told.get_by_role("link", name="KL drift").click()
    expect(bound(page, "kl", "bad")).to_be_focused()
    expect(bound(page, "kl", "warning")).to_have_value("3")
    assert site.django(PRESET, name=name) == before
    # The one answer that Chromium itself logs is the refusal.
    assert {said.split()[0] for said in complaints.heard} <= {"422", "error:"}


def test_a_preset_becomes_the_default_and_a_deleted_one_leaves_its_runs_to_it(
    site: Stack, page: Page, complaints: Complaints
) -> None:
    a_copy(site, page)
    page.get_by_label("Name").fill("Ours")
    page.get_by_role("button", name="Save preset").click()
    page.get_by_role("button", name="Make Ours the default").click()
    expect(page.get_by_text("Runs without a preset now use Ours")).to_be_visible()
    expect(page.get_by_role("row", name="Ours").locator(".chip")).to_have_text("default")
    assert site.django(DEFAULT) == "Ours"
    page.get_by_role("link", name="Ours").click()
    expect(page.get_by_role("button", name="Delete…")).to_have_count(0)
    a_copy(site, page)
    name = page.get_by_label("Name").input_value()
    page.get_by_role("button", name="Delete…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("use the default")
    dialog.get_by_role("button", name="Delete preset").click()
    expect(page.get_by_text(f"Deleted the preset {name}.")).to_be_visible()
    assert site.django(PRESET, name=name) is None
    assert complaints.heard == []


def test_a_target_of_alerts_is_added_tried_edited_and_deleted(
    site: Stack, page: Page, complaints: Complaints, webhook: tuple[str, list[dict[str, Any]]]
) -> None:
    address, heard = webhook
    page.goto(f"{site.url}/settings/")
    page.get_by_role("link", name="Alerts").click()
    expect(page.get_by_text("No alert targets yet")).to_be_visible()
    page.get_by_label("Name").fill("Team channel")
    page.get_by_label("Address").fill(address)
    page.get_by_label("The webhook may be inside our network").check()
    page.get_by_role("button", name="Add target").click()
    expect(page.get_by_text("Team channel is saved. Send a test")).to_be_visible()
    expect(page.locator("td .anywhere")).not_to_contain_text("/hook")
    page.get_by_role("button", name="Send a test").click()
    sent = page.locator("#deliveries tbody tr")
    expect(sent.locator(".chip")).to_have_text("Sent")
    expect(sent).to_contain_text("Team channel")
    assert len(heard) == 1
    page.get_by_role("link", name="Edit Team channel").click()
    page.get_by_label("Enabled").uncheck()
    page.get_by_role("button", name="Save target").click()
    expect(page.get_by_text("Team channel is saved.")).to_be_visible()
    expect(page.locator("[data-label=State] .chip", has_text="Off")).to_be_visible()
    page.get_by_role("button", name="Delete Team channel").click()
    dialog = page.get_by_role("dialog", name="Delete Team channel?")
    dialog.get_by_role("button", name="Delete target").click()
    expect(page.get_by_text("No alert targets yet")).to_be_visible()
    assert complaints.heard == []


def a_copy(site: Stack, page: Page) -> None:
    """Of the shipped mixed preset; its page is open, with the rules that the tests change."""
    page.goto(f"{site.url}/settings/health/")
    page.get_by_role("button", name="Clone Mixed", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Copy of Mixed")
    for group in ("Completions", "Policy"):
        page.get_by_role("heading", name=group).click()


def bound(page: Page, rule: str, level: str) -> Locator:
    return page.locator(f"[name='{rule}-{level}']")


def drawn(page: Page, id_: str) -> list[float]:
    """Where a chart has its lines, in its own figures, once its curve is drawn."""
    curves(page, id_)
    lines: list[float] = page.evaluate(LINES, id_)
    return lines


def health(site: Stack, page: Page, run: str) -> Locator:
    page.goto(f"{site.url}/runs/{run}/")
    return page.locator("#run-health > details")
