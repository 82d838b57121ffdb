"""`bench sinks` on a run so short that only its shape means anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks import sinks

pytestmark = [pytest.mark.trainer, pytest.mark.processes, pytest.mark.timeout(300)]


def test_blocks_with_and_without_a_sink_are_compared_within_a_run(
    trainer_python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRPO_TRAINER_PYTHON", str(trainer_python))
    figures = sinks.main(["--pairs=2", "--block=2", "--sinks=hangs"])
    low, high = figures["hangs_step_ratio_interval"]
    assert 0 < low <= figures["hangs_step_ratio"] <= high
    assert figures["hangs_step_ms"] > 0
    assert figures["hangs_process_percent"] >= 0
