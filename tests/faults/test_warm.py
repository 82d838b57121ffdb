"""A warm server on a whole product: killed runs leave it alone, its own death is proved, and it gives way."""

from __future__ import annotations

import pytest

from tests.faults import invariants
from tests.faults.harness import ARun, Product, on_gpus, with_server

pytestmark = pytest.mark.processes

KEPT = with_server(keep_warm_minutes=15)


def server_of(run: ARun) -> ARun:
    run_id, _, number = run.look()["placement"]["warm"]["attempt_id"].rpartition("-")
    server = ARun(run.product, run_id, int(number))
    if all(one.run != run_id for one in run.product.runs):
        run.product.runs.append(server)
    return server


def test_a_warm_server_outlives_its_runs_and_nothing_else(product: Product) -> None:
    first = product.launch(KEPT, steps=100)
    first.until_step(1)
    server = server_of(first)
    engine = server.processes()["engine"].pid
    first.kill("supervisor")
    invariants.check(first, status="failed", reason="supervisor_lost")
    assert server.processes()["engine"].pid == engine

    second = product.launch(KEPT, steps=100)
    second.until_step(1)
    assert server_of(second).attempt_id == server.attempt_id
    second.stop("now")
    invariants.check(second, status="stopped", reason="stopped_by_user")

    third = product.launch(KEPT, steps=100, trainer="gate,ignore_term")
    third.until_step(1)
    server.kill("supervisor")
    row = invariants.check(third, status="failed", reason="vllm_exited")
    assert "The warm server" in row["detail"]
    invariants.check(server, status="failed", reason="supervisor_lost")

    fourth = product.launch(KEPT)
    fourth.until_step(1)
    another = server_of(fourth)
    assert another.attempt_id != server.attempt_id
    fourth.open_gate("trainer")
    invariants.check(fourth, status="succeeded", reason="completed")
    everything = product.launch(on_gpus(8))
    everything.until_step(1)
    invariants.check(another, status="succeeded", reason="completed")
    everything.open_gate("trainer")
    invariants.check(everything, status="succeeded", reason="completed")
