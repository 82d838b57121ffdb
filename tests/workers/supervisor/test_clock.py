"""A host's clock that is set while a run trains: nothing ends, nothing is lost, no duration is negative."""

from __future__ import annotations

import sys
from glob import glob
from pathlib import Path

import pytest

from tests.waiting import wait_until
from tests.workers.supervisor.attempts import attempt

pytestmark = pytest.mark.processes

FAKETIME = next(iter(glob("/usr/lib/*/faketime/libfaketime.so.1")), "")


@pytest.mark.skipif(not FAKETIME, reason="libfaketime is not installed (Debian: faketime), so no clock can be set")
@pytest.mark.parametrize("to", ["-1h", "+1h", "1970-01-01 02:00:00"], ids=["an hour back", "an hour on", "1970"])
def test_a_clock_that_is_set_while_a_run_trains_changes_nothing(tmp_path: Path, to: str) -> None:
    clock = tmp_path / "clock"
    clock.write_text("+0\n")
    # Of the supervisor alone: what its trainer and the control plane say comes by other clocks.
    preload = (f"LD_PRELOAD={FAKETIME}", f"FAKETIME_TIMESTAMP_FILE={clock}", "FAKETIME_NO_CACHE=1")
    command = ("/usr/bin/env", *preload, "FAKETIME_DONT_FAKE_MONOTONIC=1", sys.executable, "-m", "workers.supervisor")
    with attempt(tmp_path, trainer="steps:30,pause:0.05", supervisor_command=command) as made:
        made.launch()
        made.wait_for_step(5)
        before = made.control.of_kind("system")[-1]["t"]
        clock.write_text(f"{to}\n")
        wait_until(lambda: abs(made.control.of_kind("system")[-1]["t"] - before) > 3_000, made.why)
        ended = made.wait_for_end()
        assert ended["reason"] == "completed"
        assert ended["receipt"]["seconds_to_gone"] >= 0
        assert made.control.train_steps() == list(range(1, 31))
        made.wait_until_gone()
        assert list(made.control.lines) == list(range(1, len(made.control.lines) + 1))
        assert list(made.control.lines.values()) == made.outbox()
        assert min(line["t"] for line in made.outbox()) >= 0
