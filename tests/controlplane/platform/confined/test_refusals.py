"""What people and programs read when a child didn't finish a request's work."""

from __future__ import annotations

import pytest

from controlplane.platform.confined.limits import Busy, NotFinished, StoppedAtLimit
from controlplane.platform.confined.pool import ChildPool
from runs.insight.scoring.evaluating import ScoreSource
from runs.insight.scoring.scoring import try_on
from tests.controlplane.people import operator
from tests.runs.api.clients import Program
from workers.contract.run.spec import RewardSpec

SLOW = "Reading this document took longer than 10 seconds, so it was stopped."


def failing(monkeypatch: pytest.MonkeyPatch, error: NotFinished) -> None:
    def run(*_: object) -> bytes:
        raise error

    monkeypatch.setattr(ChildPool, "run", run)


@pytest.mark.django_db
@pytest.mark.parametrize(("error", "status"), [(Busy("Reading this document"), 503), (StoppedAtLimit(SLOW), 422)])
def test_a_page_and_the_api_say_why(monkeypatch: pytest.MonkeyPatch, error: NotFinished, status: int) -> None:
    client, program = operator(), Program()
    failing(monkeypatch, error)
    page = client.post("/runs/new/import", {"import_text": "learning_rate: 1"})
    answer = program.post("preflight", {"document": "learning_rate: 1"})
    assert (page.status_code, answer.status_code) == (status, status)
    assert str(error).replace("'", "&#x27;") in page.content.decode()
    assert answer.json()["error"]["what"] == str(error)
    assert [response.headers.get("Retry-After") for response in (page, answer)] == ["5" if status == 503 else None] * 2


def test_a_component_that_takes_too_long_has_no_score_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, StoppedAtLimit(SLOW))
    trial = try_on([RewardSpec(name="right", function="numeric_match")], {"row": 0, "answer": "4"}, ["4", "5"])
    [column] = [scored.column for scored in trial.columns]
    assert (column.how, column.why, column.values) == (ScoreSource.LATE, SLOW, [None, None])


@pytest.mark.django_db
def test_a_pattern_whose_check_is_stopped_is_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    client = operator()
    failing(monkeypatch, StoppedAtLimit(SLOW))
    form = {"name": "x", "aggregation": "sum_then_normalize", "row": ["c0"], "c0-function": "regex_match"}
    values = {"c0-name": "a", "c0-weight": "1", "c0-p_pattern": "never tried before", "c0-p_mode": "anywhere"}
    page = client.post("/rewards/new/", form | values)
    assert page.status_code == 422
    assert SLOW in page.content.decode()
