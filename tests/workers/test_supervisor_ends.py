"""How an attempt ends, with real supervisors and a trainer that does as it is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.workers.attempts import attempt
from workers.launcher import Launch

pytestmark = pytest.mark.processes


def test_a_run_is_claimed_trained_reported_and_proved_gone(tmp_path: Path) -> None:
    with attempt(tmp_path, trainer="steps:5,samples:2") as made:
        assert made.launch() == Launch.STARTED
        ended = made.wait_for_end()
        assert ended["reason"] == "completed"
        assert ended["exit_codes"] == {"trainer": 0}
        assert ended["receipt"]["free"] is True
        assert made.control.phases() == ["claimed", "preparing", "trainer_starting", "stopping", "verifying"]
        assert made.control.train_steps() == [1, 2, 3, 4, 5]
    assert sorted(made.control.lines) == list(range(1, len(made.outbox()) + 1))
    assert [line["kind"] for line in made.outbox()][-1] == "ended"
    assert len(made.control.samples) == 10
    assert made.control.logs["trainer"].startswith(b"fake trainer of rtestrun22-1")
