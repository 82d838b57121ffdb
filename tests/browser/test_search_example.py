"""The multi-turn search example by hand: import its settings, make its environment, launch, watch, stop in a call."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from playwright.sync_api import BrowserContext, Page, expect

from controlplane.setup.serving.processes import BASE_DIR as ROOT
from tests.browser.conftest import sign_in
from tests.browser.driving import stop_training
from tests.stack import Stack
from tests.trainer.preloaded import Preloaded
from tests.waiting import wait_until
from tests.workers.host.test_host_on_the_stack import HOST, until

pytestmark = [pytest.mark.browser, pytest.mark.processes, pytest.mark.trainer]

SETTINGS = "hyperparameters = {'trainer': 'mt_grpo', 'turn_advantage_coef': 1, 'num_generations': 4, 'max_steps': 2}"
SIZES = {"per_device_train_batch_size": "4", "max_completion_length": "900", "temperature": "0.05"}


def programs(flag: Path) -> list[int]:
    """What the slow search has started, whichever process is above it."""
    found = []
    for process in psutil.process_iter():
        try:
            ours = process.environ().get("SLOW_SEARCH") == str(flag)
            found += [process.pid] if ours and process.name() == "sleep" else []
        except psutil.Error:
            continue
    return found


@pytest.fixture
def searching(tmp_path: Path, preloaded: Preloaded) -> Path:
    folder = tmp_path / "models" / "searching"
    preloaded.run("-m", "tests.trainer.playing", "--searches", folder)
    return folder


def test_the_example_runs_from_the_browser_and_a_stop_in_a_search_leaves_nothing(
    make_stack: Callable[..., Stack],
    context: BrowserContext,
    page: Page,
    trainer_python: Path,
    searching: Path,
    tmp_path: Path,
) -> None:
    slow = tmp_path / "slow"
    stack = make_stack(
        GRPO_TRAINER_PYTHON=str(trainer_python),
        GRPO_TRAINER_COMMAND=trainer(trainer_python, slow),
        GRPO_MODEL_ROOTS=str(searching.parent),
    )
    until(stack, HOST, lambda found: found and found["inventory"].get("trainer") == "ready")
    sign_in(stack, context)
    example(stack, page)
    launch(page, str(searching), "searches")
    expect(page.locator("#run-status .chip.succeeded")).to_be_visible(timeout=240_000)
    page.get_by_role("tab", name="Completions").click()
    page.get_by_role("link", name="Full text of completion 1 of the group").first.click()
    expect(page.locator(".part.call dd").first).to_have_text("river")
    expect(page.locator(".part.tool .no-loss").first).to_be_visible()
    slow.touch()
    page.get_by_role("link", name="Clone").first.click()
    page.locator("[name=name]").fill("stopped in a search")
    page.get_by_role("button", name="Launch now").click()
    wait_until(lambda: bool(programs(slow)), lambda: "no search is under way")
    stop_training(page)
    assert programs(slow) == []


def trainer(python: Path, slow: Path) -> str:
    words = ["/usr/bin/env", f"PYTHONPATH={ROOT}", f"SLOW_SEARCH={slow}", str(python), "-m", "tests.trainer.playing"]
    return json.dumps(words)


def example(stack: Stack, page: Page) -> None:
    page.goto(f"{stack.url}/runs/new/")
    page.get_by_role("link", name="Import a config").click()
    page.locator("#id_import_text").fill(SETTINGS)
    page.get_by_role("button", name="Fill the form").click()
    page.get_by_role("button", name="Create the search example").click()
    again = page.get_by_role("button", name="Choose the sample")
    for _ in range(60):
        page.wait_for_load_state()
        if not again.count():
            break
        again.click()
    expect(page.locator("#id_dataset_version option:checked")).to_contain_text("Sample encyclopaedia questions")


def launch(page: Page, model: str, name: str) -> None:
    page.locator("[name=model]").fill(model)
    page.locator("[name=profile]").select_option(label="CPU · fits testhost")
    for field, value in {**SIZES, "name": name}.items():
        page.locator(f"[name={field}]").fill(value)
    page.get_by_role("button", name="Launch now").click()
    expect(page.get_by_role("heading", name=name)).to_be_visible()
