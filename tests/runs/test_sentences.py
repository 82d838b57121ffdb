"""What a run's header says to people while it starts."""

from __future__ import annotations

import pytest

from runs import ingest, queries, sentences
from runs.models import Run, RunEvent
from runs.states import RunStatus
from tests.runs.builders import an_attempt, event
from workers.contract import OutboxLine

pytestmark = pytest.mark.django_db


def header_after(*lines: OutboxLine) -> str:
    ingest.accept(an_attempt(RunStatus.STARTING), list(lines))
    return str(queries.summary(queries.with_attempts(Run.objects.all()).get())["sentence"])


@pytest.mark.parametrize(
    ("figures", "says"),
    [
        ({}, "Downloading the model."),
        ({"download/done_mib": 1144.4}, "Downloading the model, 1.2 GB so far."),
        ({"download/done_mib": 1144.4, "download/total_mib": 2956.4}, "Downloading the model, 1.2 of 3.1 GB."),
        ({"download/done_mib": 0.0, "download/total_mib": 95.4}, "Downloading the model, 0.0 of 0.10 GB."),
    ],
)
def test_a_download_says_how_far_it_has_come(figures: dict[str, float], says: str) -> None:
    phase = event(1, "phase", phase="fetching_model", detail="fetching some/model")
    assert header_after(phase, OutboxLine(2, 2.0, "system", None, figures)) == says


def test_a_second_server_is_named_as_such() -> None:
    started = RunEvent(kind="process_started", data={"role": "vllm-2", "pid": 7})
    assert sentences.of_event(started) == "Started the vLLM 2 process (pid 7)."
