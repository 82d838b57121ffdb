"""The measure of the gateway measures what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks import gateway

pytestmark = [pytest.mark.trainer, pytest.mark.processes]


def test_both_ways_are_asked_equally_often(trainer_python: Path) -> None:
    told = gateway.measure(agents=4, each=3, answer_s=0.1)
    assert told["gateway_requests"] == 4 * 2
    assert told["direct_p95_ms"] >= 100
    assert told["gateway_added_p95_ms"] == pytest.approx(told["gateway_p95_ms"] - told["direct_p95_ms"], abs=0.02)
