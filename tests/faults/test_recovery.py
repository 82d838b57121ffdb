"""Runs that ask for it are resumed by themselves after the death of a program, once nothing of them is left."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import invariants
from tests.faults.harness import ARun, Product, with_server
from tests.faults.situations import booted_anew

pytestmark = pytest.mark.processes

ATTEMPTS = """
from runs.engine.models import Attempt
result = list(Attempt.objects.filter(run_id=run).order_by("number").values_list("number", flat=True))
"""
REASONS = {
    "vllm": "vllm_exited",
    "engine": "vllm_exited",
    "supervisor": "supervisor_lost",
}


def next_attempt(run: ARun) -> ARun:
    again = ARun(run.product, run.run, run.number + 1)
    run.product.until(
        lambda: again.number in run.product.stack.django(ATTEMPTS, run=run.run), lambda: run.why(run.look())
    )
    run.product.runs.append(again)
    return again


def comes_to_its_end(again: ARun) -> None:
    again.until_process("trainer")
    again.open_gate("trainer")
    invariants.check(again, status="succeeded", reason="completed")


@pytest.mark.telling
@pytest.mark.parametrize("program", REASONS)
def test_a_run_goes_on_by_itself_after_the_death_of(product: Product, program: str) -> None:
    run = product.launch(with_server(), resumes=1)
    run.until_step(2)
    run.kill(program)
    comes_to_its_end(next_attempt(run))
    invariants.check(run, status="failed", reason=REASONS[program])


def test_a_run_goes_on_by_itself_after_a_reboot_of_its_host(product: Product, tmp_path: Path) -> None:
    run = product.launch(with_server(), resumes=1)
    run.until_step(2)
    with booted_anew(product, [run], tmp_path):
        comes_to_its_end(next_attempt(run))
    assert run.look()["reason"] == "host_lost"


def test_the_resumes_of_a_run_are_counted(product: Product) -> None:
    run = product.launch(with_server(), resumes=1)
    run.until_step(2)
    run.kill("supervisor")
    again = next_attempt(run)
    again.until_process("trainer")
    again.kill("supervisor")
    invariants.check(again, status="failed", reason="supervisor_lost")
    product.stack.django(
        "from runs.housekeeping import tick\nfrom django.utils import timezone\ntick.tick(timezone.now())"
    )
    assert product.stack.django(ATTEMPTS, run=run.run) == [1, 2]
