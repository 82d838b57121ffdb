"""A config pasted on the New run page: the form fills, what was typed stays, and what can't be taken is listed."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Complaints
from tests.browser.test_launch_page import rows as rows

pytestmark = [pytest.mark.browser, pytest.mark.processes]

CONFIG = """\
rl: grpo
trl:
  num_generations: 6
  beta: 0.05
  reward_funcs: [mine]
micro_batch_size: 6
learning_rate: fast
colour: blue
vllm:
  gpu_memory_utilization: 0.61
"""


def test_a_pasted_config_fills_the_form_beside_what_was_typed(
    page: Page, rows: dict[str, Any], complaints: Complaints
) -> None:
    page.locator("#id_temperature").fill("0.8")
    page.get_by_role("link", name="Import a config").click()
    expect(page.locator("#id_import_text")).to_be_visible()
    page.locator("#id_import_text").fill(CONFIG)
    page.get_by_role("button", name="Fill the form").click()
    report = page.get_by_role("status").filter(has_text="Imported: Axolotl YAML")
    expect(report).to_contain_text("Unknown keys")
    expect(report).to_contain_text("colour (line 8)")
    expect(page.locator("#id_num_generations")).to_have_value("6")
    expect(page.locator("#id_temperature")).to_have_value("0.8")
    expect(page.locator("#id_learning_rate_field")).to_contain_text("Enter a number.")  # as the checks say
    with page.expect_popup() as opened:
        page.get_by_role("button", name="Open as a new profile").click()
    expect(opened.value.locator("#id_server_gpu_memory_utilization")).to_have_value("0.61")
    page.get_by_role("link", name="β, KL weight").click()
    expect(page.locator("#id_beta")).to_be_focused()
    assert [heard for heard in complaints.heard if "422" not in heard] == []


def test_a_config_that_can_not_be_read_says_why_and_stays(page: Page, rows: dict[str, Any]) -> None:
    page.get_by_role("link", name="Import a config").click()
    page.locator("#id_import_text").fill("trl:\n\tbeta: 1\n")
    page.get_by_role("button", name="Fill the form").click()
    expect(page.locator("#id_import_text_error")).to_contain_text("Line 2")
    expect(page.locator("#id_import_text")).to_have_value("trl:\n\tbeta: 1\n")
