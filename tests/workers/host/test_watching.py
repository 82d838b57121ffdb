"""Word from the host that a run's page was opened, to a real supervisor."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.waiting import wait_until
from tests.workers.supervisor.attempts import attempt
from workers.contract.wire.names import StopMode

pytestmark = pytest.mark.processes
MANY = 100
"""Steps, 2 s of them: more than are on their way where each is sent at once."""


def test_a_supervisor_that_gathers_lines_sends_them_once_its_page_is_opened(tmp_path: Path) -> None:
    with attempt(tmp_path, trainer="forever", batch_s=3600.0) as made:
        assert not made.folder.mark_watched()
        made.control.watched = False
        made.launch()

        def gathered() -> set[int]:
            written = {line["step"] for line in made.outbox() if line["kind"] == "train"}
            return written - set(made.control.train_steps())

        wait_until(lambda: len(gathered()) >= MANY, made.why)
        step = max(gathered())
        assert made.folder.mark_watched()
        made.wait_for_step(step)
        made.ask_to_stop(StopMode.NOW)
        made.wait_for_end()
    assert not made.folder.mark_watched()
