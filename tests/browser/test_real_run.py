"""Every section of a run's page against real runs of a tiny model: what it shows is what the trainer wrote."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from controlplane.platform.templatetags.figures import fixed, sig
from runs.insight.health.presets import value_text
from tests.browser import real_runs
from tests.browser.conftest import Complaints, sign_in
from tests.browser.driving import (
    MARKS,
    chart,
    choose,
    columns,
    compared,
    curves,
    documents,
    downloaded,
    seconds,
    since_first,
    until,
    without,
    zoom,
)
from tests.browser.real_runs import CHARTS, GRPO, OTHER, PRESET, SOLVED, STEPS, RealRun
from tests.stack import Stack

pytestmark = [*real_runs.MARKS]


@pytest.fixture(scope="module")
def stack(training_site: Stack) -> Stack:
    return training_site


@pytest.fixture(scope="module")
def launched(stack: Stack) -> tuple[RealRun, RealRun]:
    return real_runs.launch(stack, "to its end"), real_runs.launch(stack, "until it is stopped", **OTHER)


@pytest.fixture
def run(launched: tuple[RealRun, RealRun]) -> RealRun:
    """It has trained to its last step."""
    launched[0].wait_for_end("succeeded")
    return launched[0]


@pytest.fixture
def living(launched: tuple[RealRun, RealRun]) -> RealRun:
    """In the middle of its training, until a test stops it."""
    launched[1].wait_for_step(3)
    return launched[1]


@pytest.fixture
def stopped(living: RealRun) -> RealRun:
    if living.state()[0] == "running":
        with living.stack.client() as client:
            client.post(f"/runs/{living.id}/stop", data={"mode": "now"})
    living.wait_for_end("stopped")
    return living


@pytest.fixture(autouse=True)
def signed_in(stack: Stack, context: BrowserContext, complaints: Complaints) -> Iterator[None]:
    """No page logs an error, throws, or asks for what isn't there."""
    sign_in(stack, context)
    yield
    assert complaints.heard == []


# --- while it trains -------------------------------------------------------------------------------------------


def test_a_reload_in_the_middle_of_the_run_loses_no_step(living: RealRun, page: Page) -> None:
    page.goto(living.address)
    expect(page.locator("#run-status .chip")).to_have_text("Running")
    expect(page.locator("[data-max-steps]")).to_have_text("100,000")
    before = len(curves(page, "reward")["reward"])
    until(page, lambda: len(curves(page, "reward")["reward"]) > before)
    page.reload()
    until(page, lambda: len(curves(page, "reward")["reward"]) > before + 2)
    drawn, written = curves(page, "reward")["reward"], living.values("reward")
    assert list(drawn) == list(range(1, len(drawn) + 1))
    assert drawn == {step: written[step] for step in drawn}
    shown = int(page.locator("[data-step]").inner_text().replace(",", ""))
    assert before < shown <= len(living.values("reward"))


def test_without_beta_there_is_no_kl_and_with_one_update_nothing_is_clipped(living: RealRun, page: Page) -> None:
    page.goto(living.address)
    expect(page.locator("[data-tile=kl]")).to_contain_text("off: β is 0")
    expect(chart(page, "reward")).to_be_visible()
    expect(chart(page, "kl")).to_have_count(0)
    expect(chart(page, "clip")).to_contain_text("0 by construction, because there is one update per batch.")
    assert set(curves(page, "clip")["all"].values()) == {0}


def test_its_log_grows_as_the_trainer_writes(living: RealRun, page: Page) -> None:
    page.goto(f"{living.address}?tab=logs")
    view = page.locator("[data-log-view]")
    for _ in range(2):  # what is there, and what comes
        step = max(living.values("num_tokens"))
        told = f"'num_tokens': '{living.values('num_tokens')[step]:.4g}'"
        expect(view).to_contain_text(told)
        living.wait_for_step(step + 2)


def test_save_and_stop_leaves_a_checkpoint_and_a_receipt(living: RealRun, page: Page) -> None:
    page.goto(living.address)
    page.locator("#run-actions summary", has_text="Stop").click()
    page.get_by_role("button", name="Save and stop").first.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Save and stop").click()
    expect(page.locator("#run-status .chip")).to_have_text("Stopped")
    expect(page.locator("#run-chips summary")).to_have_text("Resources released")
    receipt = page.locator("#run-chips .receipt")
    expect(receipt).to_contain_text("All processes ended; all resources released.")
    expect(receipt.locator("dt", has_text="Still running").locator("+ dd")).to_have_text("none")
    status, step, reason, _ = living.state()
    assert (status, reason) == ("stopped", "stopped_by_user")
    assert [line["step"] for line in living.lines("checkpoint")][-1] == step == max(living.values("reward"))
    assert (living.folder / f"checkpoints/checkpoint-{step}/model.safetensors").exists()
    expect(page.get_by_role("button", name=f"Resume from step {step}")).to_be_visible()
    page.get_by_role("tab", name="Checkpoints").click()
    expect(page.locator(".checkpoints td[data-label=Step]").first).to_have_text(str(step))


# --- the head --------------------------------------------------------------------------------------------------


def test_the_head_says_how_it_ended_and_keeps_tags_and_notes(run: RealRun, page: Page) -> None:
    page.goto(run.address)
    expect(page.locator(".status-line")).to_contain_text(f"step {STEPS} of {STEPS}")
    expect(page.locator(".status-line")).to_contain_text("Finished all steps.")
    expect(page.locator("[data-progress]")).to_have_attribute("value", str(STEPS))
    expect(page.get_by_role("button", name="Stop")).to_have_count(0)
    about, notes = page.locator("#run-about"), page.locator("#run-notes")
    about.get_by_label("Add a tag").fill("tiny")
    about.get_by_label("Add a tag").press("Enter")
    expect(about.get_by_role("listitem")).to_have_text(["tiny"])
    notes.get_by_role("button", name="Add a note").click()
    notes.get_by_role("textbox", name="Notes").fill("A model of a million weights.")
    notes.get_by_role("button", name="Save notes").click()
    expect(notes.get_by_role("button", name="Save notes")).to_have_count(0)
    page.reload()
    expect(about.get_by_role("listitem")).to_have_text(["tiny"])
    expect(notes.locator("summary")).to_have_text("A model of a million weights.")


def test_the_tiles_say_the_last_values(run: RealRun, page: Page) -> None:
    page.goto(run.address)
    for metric in ("reward", "kl", "entropy"):
        last = list(run.values(metric).values())[-1]
        expect(page.locator(f"[data-tile={metric}] [data-figure]")).to_have_text(sig(last))


def test_a_clone_begins_with_its_settings(run: RealRun, page: Page) -> None:
    page.goto(run.address)
    page.get_by_role("link", name="Clone").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Clone of to its end")
    for name in ("beta", "learning_rate", "num_generations", "max_steps"):
        assert float(page.locator(f"[name={name}]").input_value()) == GRPO[name]
    expect(page.locator("[name=model]")).to_have_value(str(run.stack.installation.models_dir / "tiny"))
    expect(page.locator("[name=profile] option:checked")).to_have_text(re.compile("One CPU slot"))


# --- charts ----------------------------------------------------------------------------------------------------


def test_charts_have_every_value_that_the_trainer_wrote(run: RealRun, page: Page) -> None:
    page.goto(run.address)
    saved = [line["step"] for line in run.lines("checkpoint")]
    for id_, by, lines in CHARTS:
        drawn = curves(page, id_)
        for line, metric in lines.items():
            assert drawn[line] == pytest.approx({step: by * value for step, value in run.values(metric).items()})
        assert [x for x, text in page.evaluate(MARKS, id_) if "checkpoint" in text] == saved


def test_the_parts_of_each_steps_time_lie_on_each_other(run: RealRun, page: Page) -> None:
    page.goto(f"{run.address}?c.filter=goes")
    drawn = curves(page, "step-split")
    assert list(drawn) == ["generation", "rewards", "log-probabilities", "update"]
    generation = run.values("time/generation_s")
    assert drawn["update"] == pytest.approx(run.values("time/update_s"))
    assert {step: drawn["generation"][step] for step in generation} == pytest.approx(generation)


def test_a_metric_that_nobody_foresaw_has_a_chart(run: RealRun, page: Page) -> None:
    page.goto(run.address)
    page.keyboard.press("/")
    page.keyboard.type("eval_kl")
    expect(page.locator("[data-group='Other evaluation metrics'] [data-chart]:visible")).to_have_count(1)
    expect(page.locator("[data-chart]:visible")).to_have_count(1)
    assert list(curves(page, "other-eval-kl").values()) == [run.values("eval_kl")]
    page.wait_for_url(re.compile("c.filter=eval_kl"))


def test_the_same_points_by_tokens_and_by_time_pinned_and_zoomed(run: RealRun, page: Page) -> None:
    page.goto(run.address)
    choose(page, "kl", "Pin to the top")
    expect(page.locator("[data-group=''] [data-chart=kl]")).to_be_visible()
    assert zoom(page, "reward", 0.25, 0.5) == pytest.approx((STEPS * 0.25, STEPS * 0.5), abs=STEPS * 0.06)
    page.wait_for_url(re.compile(r"c\.range=step:"))
    page.reload()
    expect(page.locator("[data-group=''] [data-chart=kl]")).to_be_visible()
    page.get_by_label("x axis").select_option("Tokens")
    until(page, lambda: max(curves(page, "kl")["KL"]) == max(run.values("num_tokens").values()))
    page.get_by_label("x axis").select_option("Time")
    moments = since_first({line["t"]: line["data"]["kl"] for line in run.lines("train") if "kl" in line["data"]})
    until(page, lambda: since_first(curves(page, "kl")["KL"]) == moments)


def test_a_chart_is_saved_as_a_picture_and_as_every_value(run: RealRun, page: Page, tmp_path: Path) -> None:
    page.goto(run.address)
    curves(page, "reward")
    picture = downloaded(page, lambda: choose(page, "reward", "Save as PNG"), tmp_path)
    assert picture.read_bytes().startswith(b"\x89PNG")
    rows = columns(downloaded(page, lambda: choose(page, "reward", "Save all values as CSV"), tmp_path))
    for metric in ("reward", "reward_std", "eval_reward"):
        assert {int(row["step"]): float(row[metric]) for row in rows if row[metric]} == run.values(metric)


# --- health ----------------------------------------------------------------------------------------------------


def test_a_finding_says_its_value_its_bound_and_where_that_comes_from(run: RealRun, page: Page) -> None:
    run.stack.django(PRESET)
    page.goto(run.address)
    card = page.locator("#run-health > details")
    card.locator("> summary").click()
    card.get_by_label("Thresholds").select_option("For tiny models")
    card.get_by_role("button", name="Use", exact=True).click()
    expect(card).to_contain_text("Health: unhealthy")
    finding = card.locator(".finding.bad")
    value = value_text(median(list(run.values("grad_norm").values())[-20:]), "number")
    expect(finding.locator(".num")).to_have_text(value)
    expect(finding).to_contain_text("warning above 0.001, bad above 0.002")
    expect(finding).to_contain_text("Threshold: Measured on a tiny model.")
    card.evaluate("(card) => [card, ...card.querySelectorAll('details')].forEach((each) => (each.open = true))")
    drift = card.get_by_role("row", name="KL drift")
    expect(drift.locator("[data-label=Value]")).to_have_text(
        value_text(median(list(run.values("kl").values())[-10:]), "number")
    )


# --- completions -----------------------------------------------------------------------------------------------


def test_a_step_has_the_completions_that_the_trainer_scored(run: RealRun, page: Page) -> None:
    groups = [line for line in run.samples() if line["step"] == 1]
    page.goto(f"{run.address}?tab=completions&s.step=1")
    expect(page.locator(".found")).to_have_text(f"{sum(len(group['completions']) for group in groups)} completions")
    shown = page.locator("tbody.group")
    expect(shown).to_have_count(len(groups))
    for group in groups:
        card = shown.filter(has=page.get_by_role("link", name=f"Row {group['row']}", exact=True))
        expect(card.locator("td.total")).to_have_text([fixed(one["reward"]) for one in group["completions"]])
        expect(card.locator("[data-label=Tokens]")).to_have_text([str(one["tokens"]) for one in group["completions"]])
        expect(card.locator(".prompt-line")).to_have_text(group["prompt"])


def test_completions_are_filtered_by_a_reward_and_two_are_compared(run: RealRun, page: Page) -> None:
    every = [one for line in run.samples() if line["step"] == 1 for one in line["completions"]]
    paid = [one for one in every if one["rewards"]["thinks"] >= SOLVED]
    page.goto(f"{run.address}?tab=completions&s.step=1")
    page.get_by_role("combobox", name="Score", exact=True).select_option("thinks")
    page.get_by_label("Min", exact=True).fill(str(SOLVED))
    page.get_by_label("Min", exact=True).press("Enter")
    expect(page.locator(".found")).to_contain_text(f"{len(paid)} completion{'' if len(paid) == 1 else 's'} match")
    page.get_by_role("link", name="Open group").first.click()
    row = int(page.locator(".group-page h3").first.inner_text().removeprefix("Row "))
    group = next(line for line in run.samples() if (line["step"], line["row"]) == (1, row))
    page.locator("#diff-a").select_option("1")
    page.locator("#diff-b").select_option("2")
    page.get_by_role("button", name="Show differences").click()
    for completion, other in ((0, "ins"), (1, "del")):  # thinking is shown as a part of its own, without its marks
        words = re.sub(r"</?think>|\s", "", group["completions"][completion]["text"])
        assert words in re.sub(r"</?think>|\s", "", without(page.locator("[data-diff]"), other))


def test_a_prompt_is_followed_through_the_run(run: RealRun, page: Page) -> None:
    lines = run.samples()
    row = max({line["row"] for line in lines}, key=lambda row: sum(line["row"] == row for line in lines))
    visits = [line for line in lines if line["row"] == row]
    page.goto(f"{run.address}?tab=completions&s.prompt={row}")
    dots = page.locator("svg.visits a")
    expect(dots).to_have_count(len(visits))
    for dot, visit in zip(dots.all(), visits, strict=True):
        rewards = [one["reward"] for one in visit["completions"]]
        told = f"reward {fixed(min(rewards))} to {fixed(max(rewards))}, mean {fixed(sum(rewards) / len(rewards))}"
        expect(dot.locator("title")).to_contain_text(f"Step {visit['step']}: ")
        expect(dot.locator("title")).to_contain_text(told)


def test_the_map_and_its_export_tell_the_prompts_apart(run: RealRun, page: Page, tmp_path: Path) -> None:
    visits: dict[int, list[list[bool]]] = {}
    for line in run.samples():
        visits.setdefault(line["row"], []).append([one["rewards"]["accuracy"] >= SOLVED for one in line["completions"]])
    solved = {row: [one for visit in of_row[-3:] for one in visit] for row, of_row in visits.items()}
    sometimes = sorted(row for row, of in solved.items() if any(of) and not all(of))
    page.goto(f"{run.address}?tab=completions&s.view=prompts")
    expect(page.locator(".verdict")).to_contain_text(f"{len(sometimes)} of {len(solved)} prompts are solved sometimes")
    canvas = page.locator("[data-map] canvas")
    expect(canvas).to_have_attribute("width", re.compile(r"\d+"))
    canvas.hover(position={"x": 3, "y": 3})
    share = 100 * sum(solved[0]) / len(solved[0])
    tip = page.locator(".map-tip")
    expect(tip).to_contain_text("Row 0:")
    assert float(re.findall(r"Row 0: (\d+)% solved", tip.inner_text())[0]) == pytest.approx(share, abs=1)
    page.goto(f"{run.address}?tab=completions&s.view=prompts&s.class=sometimes")
    export = page.locator(".export")
    saved = downloaded(page, export.get_by_role("link", name="JSON", exact=True).click, tmp_path)
    assert json.loads(saved.read_text())["rows"] == sometimes
    lines = documents(downloaded(page, export.get_by_role("link", name="JSONL").click, tmp_path))
    assert [line["row"] for line in lines] == sometimes


# --- logs, timeline, checkpoints -------------------------------------------------------------------------------


def test_the_log_is_searched_and_downloaded_whole(run: RealRun, page: Page, tmp_path: Path) -> None:
    written = (run.folder / "logs" / "trainer.log").read_bytes()
    page.goto(f"{run.address}?tab=logs")
    saved = downloaded(page, page.locator("[data-log-download]").click, tmp_path)
    assert saved.read_bytes() == written
    page.keyboard.press("/")
    page.keyboard.type("'EVAL_REWARD':")
    page.keyboard.press("Enter")
    count = sum(b"'eval_reward':" in line for line in written.splitlines())
    expect(page.locator("[data-log-found]")).to_have_text(f"1 of {count} matches")
    expect(page.locator(".log-view .target mark").first).to_have_text("'eval_reward':")


def test_the_timeline_has_the_phases_with_their_durations_and_every_save(run: RealRun, page: Page) -> None:
    page.goto(f"{run.address}?tab=events")
    spans = page.locator(".spans li")
    expect(spans.filter(has_text="Trainer: importing libraries")).to_be_visible()
    took = run.lines("trained")[0]["t"] - run.lines("training")[0]["t"]
    training = seconds(spans.filter(has=page.get_by_text("Training", exact=True)).locator(".took"))
    assert training >= int(took) - 1  # it goes on until the process has ended
    stages = {line["data"]["stage"]: line["t"] for line in run.lines("stage")}
    importing = stages["loading model"] - stages["importing libraries"]
    assert seconds(spans.filter(has_text="importing libraries").locator(".took")) == pytest.approx(importing, abs=2)
    for step in [line["step"] for line in run.lines("checkpoint")]:
        expect(page.locator(".timeline li", has_text=f"Saved a checkpoint at step {step} (")).to_be_visible()


def test_the_checkpoints_are_those_that_were_saved_and_what_is_gone_is_said(run: RealRun, page: Page) -> None:
    page.goto(f"{run.address}?tab=checkpoints")
    steps = [line["step"] for line in run.lines("checkpoint")]
    expect(page.locator(".checkpoints td[data-label=Step] strong")).to_have_text([str(s) for s in reversed(steps)])
    for row in page.locator(".checkpoints tbody tr").all():
        there = (run.stack.runs_dir / row.locator("code").get_attribute("title") / "model.safetensors").exists()
        expect(row.get_by_text("deleted", exact=True)).to_have_count(0 if there else 1)
        expect(row.get_by_role("button", name="Copy the folder")).to_have_count(1 if there else 0)
    page.get_by_role("link", name="Train on").first.click()
    expect(page.locator("#inspection dl")).to_contain_text("Parameters")


# --- beside others ---------------------------------------------------------------------------------------------


def test_the_list_has_its_figures_and_finds_it(run: RealRun, stopped: RealRun, page: Page) -> None:
    page.goto(f"{run.stack.url}/runs/")
    row = page.locator(f"#row-{run.id}")
    expect(row.locator(".steps")).to_contain_text(f"{STEPS}")
    expect(row.locator(".reward .value")).to_have_text(sig(list(run.values("reward").values())[-1]))
    assert len((row.locator(".spark polyline").get_attribute("points") or "").split()) > 10
    page.locator("select[name=status]").select_option("succeeded")
    expect(page.locator("#run-list a.name", has_text="until it is stopped")).to_have_count(0)
    expect(page.locator("#run-list a.name", has_text="to its end")).to_have_count(1)
    page.locator("select[name=status]").select_option("")
    page.keyboard.press("/")
    page.keyboard.type("until it")
    expect(page.locator("#run-list a.name")).to_have_text(["until it is stopped"])


def test_two_runs_beside_each_other(run: RealRun, stopped: RealRun, page: Page) -> None:
    page.goto(f"{run.stack.url}/runs/compare/?runs={run.id},{stopped.id}&m=reward&of=reward")
    until(page, lambda: len(compared(page, "reward")) == 2)
    for each in (run, stopped):
        # Many curves are sent in five digits.
        assert compared(page, "reward")[each.name] == pytest.approx(each.values("reward"), rel=1e-4)
        values, row = list(each.values("reward").values()), page.locator(f'tr[data-run="{each.id}"]')
        expect(row.locator("[data-final=last]")).to_have_text(sig(values[-1]))
        expect(row.locator("[data-final=best]")).to_have_text(sig(max(values)))
    for name, (of_run, of_other) in {"beta": ("0.02", "0"), "num_iterations": ("2", "1")}.items():
        cells = page.get_by_role("row", name=f"grpo.{name}").locator("td")
        expect(cells).to_have_text([of_run, of_other])
    expect(page.locator(".answer")).to_have_count(2)
