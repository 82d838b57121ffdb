"""Word from the host that a run's page was opened, to a real supervisor."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.workers.supervisor.attempts import RUN, attempt, wait_until
from workers.contract import StopMode
from workers.host import watching

pytestmark = pytest.mark.processes


def test_a_supervisor_that_gathers_lines_sends_them_once_its_page_is_opened(tmp_path: Path) -> None:
    with attempt(tmp_path, trainer="forever", batch_s=3600.0) as made:
        assert not watching.say_watched(RUN, 1, made.settings)
        made.control.watched = False
        made.launch()
        wait_until(lambda: any(line["kind"] == "train" and line["step"] == 3 for line in made.outbox()), made.why)
        assert 3 not in made.control.train_steps()
        assert watching.say_watched(RUN, 1, made.settings)
        made.wait_for_step(3)
        made.ask_to_stop(StopMode.NOW)
        made.wait_for_end()
    assert not watching.say_watched(RUN, 1, made.settings)
