"""A reward config's whole way in a real Chromium: built of three components, one of which runs code, tried, replayed
against stored completions, saved, and used in a real run on the CPU whose own rewards the replay then gives again."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Locator, Page, expect

from controlplane.platform.templatetags.figures import sig
from tests.browser import real_runs
from tests.browser.conftest import Complaints, sign_in
from tests.stack import Stack
from tests.waiting import wait_until

pytestmark = [*real_runs.MARKS]

GOOD = "<think>\nTwo of each.\n</think>\n```python\ndef double(n):\n    return n + n\n```\n<answer>4</answer>"
"""Every component's highest score."""
HANGS = "```python\nwhile True:\n    pass\n```"
CATALOGUE = """
from controlplane.platform.accounts.models import User
from controlplane.catalogue.hardware.models import HardwareProfile
from controlplane.catalogue.rewards import saving
from runs.engine.scheduling import launching
from runs.intake.host_api import uploads
from runs.engine.models import Attempt
from tests.datasets import ready_version

tests = ["assert double(2) == 4", "assert double(5) == 10"]
rows = [{"prompt": f"Write double(n), then say double({n}).", "answer": str(2 * n), "test_cases": tests}
        for n in range(8)]
version = ready_version("doubles", rows, columns=["prompt", "answer", "test_cases"])
old = saving.make("length alone", [{"name": "short", "function": "length", "params": {"target": 10, "maximum": 400}}])
small = HardwareProfile.objects.create(
    name="One slot", spec={"rollout": "transformers", "cpu_slots": 1, "threads": 1}, batch=batch)
# More GPUs than the host has: nothing of it is started.
large = HardwareProfile.objects.create(name="Eight GPUs", spec={"rollout": "colocate", "trainer_gpus": 8}, batch=batch)
run = launching.submit(launching.LaunchRequest(name="before", host=None, model=model, profile=large,
    grpo={"max_steps": 2, "bf16": False, "gradient_checkpointing": False, "seed": 1, **batch},
    dataset_version=version, reward_version=old), user=User.objects.get(username="operator"))
lines = [
    {"step": step, "row": 2, "prompt": rows[2]["prompt"], "answer": "4", "completions": [
        {"text": text, "tokens": 9, "end": "eos", "rewards": {"short": short}, "reward": short, "advantage": advantage}
        for text, short, advantage in ((good, 0.2, -0.7), ("I don't know.", 1.0, 0.7))]}
    for step in (1, 2, 3)
]
uploads.samples(Attempt.objects.get(run=run), 1, lines)
result = [version.pk, run.pk]
"""
READY = """
from controlplane.catalogue.hardware.models import Host
host = Host.objects.filter(name="testhost").first()
result = bool(host and host.inventory.get("trainer") == "ready" and host.inventory.get("sandbox"))
"""
RUN = """
from runs.engine.models import Attempt
attempt = Attempt.objects.select_related("run").get(run__name=name)
result = [attempt.status, attempt.reason + " " + attempt.detail, attempt.run_id]
"""
SAMPLES = """
from runs.engine.records import SampleRow
result = [one for row in SampleRow.objects.filter(run=run, mode="train") for one in row.data["completions"]]
"""
BATCH = {"per_device_train_batch_size": 4, "num_generations": 4, "max_completion_length": 12}


@pytest.fixture
def stack(training_site: Stack, context: BrowserContext) -> Stack:
    sign_in(training_site, context, "operator")
    return training_site


def test_a_config_is_built_tried_replayed_and_trained_with(stack: Stack, page: Page, complaints: Complaints) -> None:
    model = str(stack.installation.models_dir / "tiny")
    version, before = stack.django(CATALOGUE, model=model, batch=BATCH, good=GOOD)
    build(stack, page, version)
    try_it(page)
    replay(page, "before")
    expect(page.locator("#replay-result .verdict")).to_have_text("The order changes in 3 of 3 groups.")
    expect(tile(page, "Inverted pairs")).to_contain_text("3 of 3")
    expect(page.locator(".movers tbody tr").first).to_contain_text("↑1")
    save(page)
    run = train(stack, page, before)
    compare_with_the_trainers(stack, page, run)
    assert complaints.heard == []


def build(stack: Stack, page: Page, version: int) -> None:
    page.goto(f"{stack.url}/rewards/new/?version={version}&sample=2")
    page.get_by_label("Name", exact=True).first.fill("double well")
    page.get_by_role("button", name="Remove Think block, strict").click()
    add(page, "tests_passed", "Tests passed")
    add(page, "unique normalized", "Unique characters, normalized")
    components = page.locator("fieldset[data-component]")
    expect(components).to_have_count(3)
    components.nth(1).get_by_label("Weight").fill("2")
    components.nth(2).get_by_label("Weight").fill("0.5")


def add(page: Page, key: str, title: str) -> None:
    page.get_by_role("button", name="Add component").click()
    page.get_by_role("dialog").get_by_role("searchbox").fill(key)
    page.get_by_role("button", name=f"Add {title}").click()


def try_it(page: Page) -> None:
    """The one that has everything right stands first; a program that hangs fails its tests and holds nobody up."""
    completions = page.locator("[name=completion]")
    completions.nth(0).fill(GOOD)
    completions.nth(3).fill(HANGS)
    rows, various = page.locator(".try-scores"), [len(set(text)) / len(text) for text in (GOOD, HANGS)]
    expect(rows.nth(0).locator(".try-total strong")).to_have_text(sig(1 + 2 + various[0] / 2))
    expect(cells(rows.nth(0))).to_have_text(["1", "1", sig(various[0])])
    expect(cells(rows.nth(3))).to_have_text(["0", "0", sig(various[1])])
    expect(rows.nth(0).locator(".advantage.above .num")).to_have_text(re.compile(r"^\+1\.\d"))
    expect(rows.nth(3).locator(".advantage.below")).to_be_visible()


def cells(row: Locator) -> Locator:
    """The components' scores."""
    return row.locator(".try-parts strong")


def replay(page: Page, run: str) -> None:
    card = page.locator("#replay")
    if card.get_by_role("button", name="Another run").count():
        card.get_by_role("button", name="Another run").click()
    card.get_by_role("button", name=re.compile(rf"^{run} ")).click()
    card.get_by_role("button", name="Replay", exact=True).click()


def tile(page: Page, name: str) -> Locator:
    return page.locator(".replay-tiles .tile", has_text=name)


def save(page: Page) -> None:
    page.get_by_role("button", name="Save reward config").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("double well")


def train(stack: Stack, page: Page, before: str) -> str:
    """As the run of before, but with this config and on what the host has."""
    wait_until(lambda: stack.django(READY), lambda: "the host's trainer is not ready")
    page.goto(f"{stack.url}/runs/{before}/")
    page.get_by_role("link", name="Clone").click()
    rewards = page.locator("[name=reward_version]")
    rewards.select_option(rewards.locator("option", has_text="double well").get_attribute("value"))
    page.locator("[name=profile]").select_option(label="One slot · fits testhost")
    page.locator("[name=name]").fill("with double well")
    page.get_by_role("button", name="Launch now").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("with double well")

    def state() -> Any:
        return stack.django(RUN, name="with double well")

    wait_until(lambda: state()[0] in ("succeeded", "failed", "stopped"), lambda: str(state()))
    assert state()[0] == "succeeded", state()
    return str(state()[2])


def compare_with_the_trainers(stack: Stack, page: Page, run: str) -> None:
    """The page's totals and advantages are those that the trainer computed and learned from."""
    told = stack.django(SAMPLES, run=run)
    assert len(told) == 2 * BATCH["num_generations"]
    assert all(list(one["rewards"]) == ["numeric_match", "tests_passed", "unique_chars_normalised"] for one in told)
    assert all(one["rewards"]["tests_passed"] is not None for one in told)
    assert len({one["reward"] for one in told}) > 1
    page.goto(f"{stack.url}/rewards/")
    page.get_by_role("link", name="double well").click()
    replay(page, "with double well")
    expect(page.locator("#replay-result .verdict")).to_have_text("No group's order changes.")
    expect(tile(page, "Advantage sign flipped")).to_contain_text("0 of 8")
    change = tile(page, "Mean change in advantage").locator("dd").inner_text()
    assert abs(float(change.replace("−", "-"))) < 0.001
