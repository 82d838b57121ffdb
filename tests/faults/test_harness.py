"""The undisturbed run, checked as every disturbed one is; and each gate holds its state."""

from __future__ import annotations

import pytest

from tests.faults import invariants
from tests.faults.harness import CPU, Product, on_gpus, with_server

pytestmark = pytest.mark.processes


@pytest.mark.parametrize("hardware", [CPU, on_gpus(2), with_server()], ids=["cpu", "gpus", "server"])
def test_an_undisturbed_run_ends_well_and_in_order(product: Product, hardware: dict) -> None:
    run = product.launch(hardware, trainer="steps:20")
    row = invariants.check(run, status="succeeded", reason="completed")
    assert row["step"] == 20


def test_the_gates_hold_a_run_in_each_state(product: Product) -> None:
    run = product.launch(with_server(), trainer="gate,gate_save", vllm="gate", supervisor="gate")
    assert run.until(lambda seen: seen["phase"] == "preparing")["status"] == "starting"
    assert set(run.processes()) == {"supervisor"}
    run.open_gate("supervisor")
    run.until(lambda seen: seen["phase"] == "vllm_starting")
    run.until_process("supervisor", "vllm", "engine")
    run.open_gate("vllm")
    run.until_status("running")
    run.until_step(3)
    assert product.gpus.used()[run.look()["placement"]["server_gpus"][0]] > 60_000
    run.stop("save")
    assert run.until(lambda seen: seen["phase"] == "stopping")["status"] == "stopping"
    run.until_process("trainer")
    held = run.look()["placement"]["gpus"][0]
    product.gpus.others(held, 5000)
    run.open_gate("save")
    assert run.until(lambda seen: seen["phase"] == "verifying")["status"] == "stopping"
    assert "trainer" not in run.processes()
    product.gpus.others(held, 0)
    invariants.check(run, status="stopped", reason="stopped_by_user")
