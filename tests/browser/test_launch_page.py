"""The New run page by hand: what a profile fills in, what it leaves alone, and the commands."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Dialog, Page, expect

from tests.browser.conftest import Complaints, sign_in
from tests.browser.driving import stop_training
from tests.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.processes]

ROWS = """
from controlplane.catalogue.datasets.models import DatasetVersion
from controlplane.catalogue.hardware.models import HardwareProfile
from tests.datasets import ready_version
from tests.runs.builders import rewards_named

version = DatasetVersion.objects.filter(dataset__name="for launches").first() or ready_version(
    "for launches", [{"prompt": f"{number}+1?", "answer": str(number + 1)} for number in range(64)]
)
rewards = rewards_named("for launches", [{"name": "variety", "function": "unique_chars"}])
spec = {"rollout": "transformers", "cpu_slots": 1}
lora = {"r": 4, "alpha": 12, "dropout": 0.1, "target_modules": ["q_proj"]}
made = {}
for name, columns in {
    "small": {"lora": lora, "batch": {"num_generations": 4, "max_completion_length": 64}},
    "large": {"lora": None, "batch": {"num_generations": 16, "max_completion_length": 128}},
}.items():
    made[name] = HardwareProfile.objects.get_or_create(name=name, defaults={"spec": spec, **columns})[0].pk
result = {"dataset_version": version.pk, "reward_version": rewards.pk, "profiles": made}
"""


@pytest.fixture
def rows(site: Stack, context: BrowserContext, page: Page) -> dict[str, Any]:
    """The page is open with everything chosen but the profile."""
    found: dict[str, Any] = site.django(ROWS)
    sign_in(site, context)
    model = site.installation.models_dir / "tiny"
    chosen = f"dataset_version={found['dataset_version']}&reward_version={found['reward_version']}"
    page.goto(f"{site.url}/runs/new/?{chosen}&model={model}")
    page.get_by_label("Hardware profile").select_option("")  # a run of another test may have brought one
    return found


def choose(page: Page, rows: dict[str, Any], name: str) -> None:
    page.get_by_label("Hardware profile").select_option(str(rows["profiles"][name]))


def held(page: Page) -> tuple[str, str, bool, str]:
    """(generations per prompt, completion length, trains a LoRA, its rank)"""
    numbers = [page.locator(f"#id_{name}").input_value() for name in ("num_generations", "max_completion_length")]
    return numbers[0], numbers[1], page.locator("#id_use_lora").is_checked(), page.locator("#id_lora_r").input_value()


def test_a_verdict_that_the_network_keeps_old_says_so_until_it_is_new(
    page: Page, context: BrowserContext, rows: dict[str, Any]
) -> None:
    expect(page.locator("#preflight .verdict")).to_contain_text("Still to choose")
    context.set_offline(True)
    page.locator("#id_temperature").fill("0")
    expect(page.locator("#preflight .outdated")).to_contain_text("may be out of date")
    context.set_offline(False)
    expect(page.locator("#preflight .finding.stop")).to_contain_text("0 is not a valid temperature")
    expect(page.locator("#preflight .outdated")).to_be_hidden()
    temperature = page.locator("#id_temperature")
    expect(temperature).to_have_accessible_description(re.compile("0 is not a valid temperature"))
    temperature.fill("1")
    expect(page.locator("#id_temperature_error")).to_have_count(0)


def test_a_fold_opens_for_what_is_new_and_wrong_in_it(page: Page, rows: dict[str, Any]) -> None:
    inside = page.locator("#id_top_p")
    expect(page.locator("#preflight .verdict")).to_contain_text("Still to choose")
    expect(inside).to_be_hidden()
    inside.evaluate("field => { field.value = '3'; field.dispatchEvent(new Event('change', {bubbles: true})); }")
    expect(inside).to_be_visible()
    page.locator("details.fold", has=inside).locator("summary").click()
    with page.expect_response("**/runs/new/check"):
        page.get_by_label("Name of the run").fill("closed again")
    expect(page.locator("#preflight .finding.stop")).to_contain_text("At most 1")
    expect(inside).to_be_hidden()


def listening(page: Page) -> list[str]:
    """What the browser asks from now on; each question is answered with yes."""
    asked = list[str]()

    def answer(dialog: Dialog) -> None:
        asked.append(dialog.type)
        dialog.accept()

    page.on("dialog", answer)
    return asked


def test_leaving_what_was_typed_is_asked_about_and_the_back_button_keeps_it_in_and_out_of_folds(
    page: Page, rows: dict[str, Any]
) -> None:
    asked = listening(page)
    typed = {"learning_rate": "3e-6", "beta": "0.07", "max_steps": "41", "name": "mine", "lora_dropout": "0.37"}
    for name, text in typed.items():
        page.locator(f"#id_{name}").evaluate("(field) => field.closest('details')?.setAttribute('open', '')")
        page.locator(f"#id_{name}").fill(text)
    page.get_by_role("link", name="Datasets", exact=True).first.click()
    page.wait_for_url("**/datasets/")
    assert asked == ["beforeunload"]
    page.go_back()
    for name, text in typed.items():
        expect(page.locator(f"#id_{name}")).to_have_value(text)


def test_tab_goes_from_field_to_field_and_f1_tells_what_one_is_for(page: Page, rows: dict[str, Any]) -> None:
    page.locator("#id_num_generations").focus()
    page.keyboard.press("F1")
    bubble = page.locator("#why")
    expect(bubble).to_have_text(re.compile(re.escape(page.locator("#id_num_generations_helptext").inner_text())))
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.matches('input, select')")
    expect(bubble).to_be_hidden()


def test_a_profile_fills_in_what_it_was_made_for_and_leaves_what_was_typed(
    page: Page, rows: dict[str, Any], complaints: Complaints
) -> None:
    choose(page, rows, "small")
    assert held(page) == ("4", "64", True, "4")
    page.get_by_label("Completion length").fill("48")
    choose(page, rows, "large")
    assert held(page) == ("16", "48", False, "16")
    page.get_by_role("button", name="Use the profile's maximum completion length: 128").click()
    choose(page, rows, "small")
    assert held(page) == ("4", "64", True, "4")
    assert complaints.heard == []


def test_the_commands_follow_the_form_and_a_download_leaves_it_to_be_launched(
    page: Page, rows: dict[str, Any], complaints: Complaints
) -> None:
    asked = listening(page)
    choose(page, rows, "small")
    page.locator("details.commands > summary").click()
    expect(page.locator(".command pre")).to_contain_text("CUDA_VISIBLE_DEVICES=''")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download dry run").click()
    assert download.value.suggested_filename == "draft-1-dry-run.zip"
    # Enter in a field launches; it doesn't download.
    page.get_by_label("Name of the run").fill("by Enter")
    page.get_by_label("Name of the run").press("Enter")
    expect(page.get_by_role("heading", name="by Enter")).to_be_visible()
    assert asked == []
    expect(page.locator("#run-status .chip.running")).to_be_visible()
    stop_training(page)
    assert complaints.heard == []
