"""The tick comes by a clock that can't be set."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta

import pytest

from controlplane.celery import Every, app


@pytest.mark.parametrize("ago", [-3600, 5, 3600], ids=["a clock set back since", "in time", "late"])
def test_a_round_is_due_after_its_time_and_after_a_run_of_the_future(ago: int) -> None:
    every = Every(5)
    assert every.is_due(every.now() - timedelta(seconds=ago)) == (True, 5)


def test_a_round_is_not_due_before_its_time() -> None:
    every = Every(5000)
    due, seconds = every.is_due(every.now() - timedelta(seconds=1000))
    assert not due
    assert 3900 < seconds <= 4000  # the clock goes on meanwhile


def test_it_is_the_time_of_day_until_somebody_sets_it() -> None:
    assert abs(Every(5).now() - datetime.now(UTC)) < timedelta(minutes=1)


def test_beat_keeps_its_schedules_in_a_file() -> None:
    for entry in app.conf.beat_schedule.values():
        again = pickle.loads(pickle.dumps(entry["schedule"]))
        assert (type(again), again.run_every) == (Every, entry["schedule"].run_every)
