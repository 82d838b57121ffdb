"""The comparison in a real Chromium: curves of stored runs, what a person chooses, and a run that goes on."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.browser import seeing
from tests.browser.conftest import Complaints, sign_in
from tests.browser.driving import columns, downloaded, drag_over, until
from tests.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.processes]

# Eight GPUs are more than the host has, so nothing is started: the test itself says what the supervisors would.
RUNS = """
from runs.intake.host_api.ingest import accept
from runs.engine.records import SampleRow
from tests.runs import builders
result = []
for name in ("<b>bold</b>", "second", "third"):
    hardware = {"rollout": "colocate", "trainer_gpus": 8}
    run = builders.a_run(name, hardware=hardware, grpo={"max_steps": 30 + len(result)})
    attempt = builders.an_attempt(run=run)
    accept(attempt, [builders.train(i, reward=i / 100, loss=0.1, num_tokens=50.0 * i) for i in range(1, 31)])
    data = {"row": 5, "prompt": "1+1", "completions": [{"text": f"{name} says 2", "reward": 1.0, "tokens": 3}]}
    for row in (5, 6):
        SampleRow.objects.create(run=run, attempt=attempt, line=row, step=3, row=row, data={**data, "row": row})
    result.append(run.pk)
"""
MORE = """
from runs.intake.host_api.ingest import accept
from runs.engine.models import Attempt
from tests.runs import builders
accept(Attempt.objects.get(run_id=run), [builders.train(i, reward=0.9, loss=0.1) for i in range(31, 41)])
"""
NO_STEPS = """
from tests.runs import builders
hardware = {"rollout": "colocate", "trainer_gpus": 8}
result = [builders.an_attempt(run=builders.a_run(n, hardware=hardware)).run_id for n in ("fresh one", "fresh two")]
"""
FIRST = """
from runs.intake.host_api.ingest import accept
from runs.engine.models import Attempt
from tests.runs import builders
accept(Attempt.objects.get(run_id=run), [builders.train(1, reward=0.9)])
"""
RANGE = "name => document.querySelector(`[data-metric=${name}] .plot`)?.layout?.xaxis?.range"
LINES = (
    "(document.querySelector('[data-metric=reward] .plot')?.data ?? []).map(t => [t.name, t.x.at(-1), t.line.color])"
)


@pytest.fixture
def runs(site: Stack, context: BrowserContext) -> list[str]:
    sign_in(site, context, "viewer")
    return list(site.django(RUNS))


def test_curves_follow_what_a_person_chooses_and_the_address_keeps_it(
    site: Stack, runs: list[str], page: Page, complaints: Complaints, tmp_path: Path
) -> None:
    page.goto(f"{site.url}/runs/compare/?runs={','.join(runs)}&smooth=0")
    until(page, lambda: len(page.evaluate(LINES)) == 3)
    colours = {name: colour for name, _, colour in page.evaluate(LINES)}
    page.get_by_label("Show second in the charts").uncheck()
    page.get_by_role("combobox", name="x axis", exact=True).select_option("tokens")
    until(page, lambda: [line[1] for line in page.evaluate(LINES)] == [1500, 1500])
    page.get_by_text("Metrics", exact=True).click()
    page.get_by_placeholder("Filter").fill("loss")
    page.locator(".choices").get_by_label("Loss", exact=True).check()
    expect(page.locator("[data-metric=loss].drawn")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("[data-metric=reward] .annotation")).to_have_count(2)
    page.locator("[data-metric=loss] summary").click()
    values = downloaded(
        page, page.locator("[data-metric=loss]").get_by_role("button", name="Save every value").click, tmp_path
    )
    rows = columns(values)
    assert [(row["step"], row["loss"]) for row in rows if row["run"] == runs[2]] == [
        (str(i), "0.1") for i in range(1, 31)
    ]
    assert {row["name"] for row in rows} == {"<b>bold</b>", "third"}
    drag_over(page, page.locator("[data-metric=reward] .nsewdrag").first, 40, 120)
    until(page, lambda: {"x", "off", "m", "zoom"} <= set(parse_qs(urlsplit(page.url).query)))
    zoomed = page.evaluate(RANGE, "reward")
    page.reload()
    until(page, lambda: len(page.evaluate(LINES)) == 2)
    until(page, lambda: [page.evaluate(RANGE, name) for name in ("reward", "loss")] == 2 * [pytest.approx(zoomed)])
    assert all(colours[name] == colour for name, _, colour in page.evaluate(LINES))
    expect(page.locator("[data-metric=loss]")).to_be_visible()
    expect(page.get_by_label("Show second in the charts")).not_to_be_checked()
    assert complaints.heard == []


def test_a_run_that_goes_on_keeps_up(site: Stack, runs: list[str], page: Page, complaints: Complaints) -> None:
    page.goto(f"{site.url}/runs/compare/?runs={','.join(runs)}&of=reward&smooth=0")
    row = page.locator(f'tr[data-run="{runs[1]}"]')
    expect(row.locator("[data-final=last]")).to_have_text("0.300")
    until(page, lambda: len(page.evaluate(LINES)) == 3)
    site.django(MORE, run=runs[1])
    expect(row.locator("[data-final=last]")).to_have_text("0.900")
    expect(row.locator("[data-label=Steps]")).to_contain_text("40")
    expect(page.locator("td.wins[data-final=last]")).to_have_text("0.900")
    page.get_by_role("button", name="Last", exact=True).click()
    expect(page.locator("tr[data-run]").first).to_have_attribute("data-run", runs[1])
    page.get_by_role("button", name="Last", exact=True).click()
    expect(page.locator("tr[data-run]").last).to_have_attribute("data-run", runs[1])
    until(page, lambda: [line[1] for line in page.evaluate(LINES)] == [30, 40, 30])
    assert complaints.heard == []


def test_differences_and_the_same_prompt_are_beside_each_other(
    site: Stack, runs: list[str], page: Page, complaints: Complaints
) -> None:
    page.goto(f"{site.url}/runs/compare/?runs={','.join(runs)}")
    expect(page.get_by_role("row", name="grpo.max_steps")).to_contain_text(re.compile(r"30\s+31\s+32"))
    expect(page.locator(".answer")).to_have_count(3)
    expect(page.locator(".answer").first).to_contain_text("<b>bold</b> says 2")
    page.get_by_label("Later prompt").click()
    expect(page.get_by_role("combobox", name="Row")).to_have_value("6")
    until(page, lambda: parse_qs(urlsplit(page.url).query).get("row") == ["6"])
    page.get_by_label("Remove third").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Compare 2 runs")
    expect(page.get_by_role("combobox", name="Row")).to_have_value("6")
    assert complaints.heard == []


def test_it_is_no_wider_than_the_window(site: Stack, runs: list[str], page: Page) -> None:
    assert seeing.too_wide(page, f"{site.url}/runs/compare/?runs={','.join(runs)}") == []
    expect(page.locator(".answer")).to_have_count(3)


def test_the_first_step_of_all_brings_the_curves(site: Stack, context: BrowserContext, page: Page) -> None:
    sign_in(site, context, "viewer")
    runs = list(site.django(NO_STEPS))
    page.goto(f"{site.url}/runs/compare/?runs={','.join(runs)}")
    expect(page.get_by_text("No run has finished a step yet")).to_be_visible()
    expect(page.get_by_label("Logarithmic")).to_be_hidden()
    site.django(FIRST, run=runs[0])
    expect(page.get_by_role("button", name="Enlarge Reward, total")).to_be_visible()
    expect(page.get_by_label("Logarithmic")).to_be_visible()
