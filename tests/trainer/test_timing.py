"""A step's time, part by part: each second counts for one part."""

from __future__ import annotations

import pytest

from workers.contract.wire.names import StepPart
from workers.trainer.recording.timing import StepTimes


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now

    def work(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def times(clock: Clock) -> StepTimes:
    return StepTimes(clock=clock)


def prepare(times: StepTimes, clock: Clock) -> None:
    with times.within(StepPart.PREPARING):
        clock.work(0.5)
        with times.within(StepPart.GENERATION):
            times.timed(StepPart.WEIGHT_SYNC, clock.work)(2)
            clock.work(10)
        with times.within(StepPart.LOGPS):
            clock.work(3)
        with times.within(StepPart.REWARDS):
            clock.work(4)


def test_a_part_inside_another_one_is_counted_once(times: StepTimes, clock: Clock) -> None:
    with times.step():
        prepare(times, clock)
        clock.work(5)
    clock.work(1)
    times.step_done()
    assert times.pop() == {
        "time/generation_s": 10,
        "time/weight_sync_s": 2,
        "time/rewards_s": 4,
        "time/logps_s": 3,
        "time/update_s": 6,
    }


def test_the_batches_of_one_step_are_summed_and_a_step_without_generation_has_none(
    times: StepTimes, clock: Clock
) -> None:
    for _ in range(2):
        clock.work(100)  # data is loaded
        for _ in range(3):
            with times.step():
                clock.work(2)
            clock.work(0.5)
        times.step_done()
        assert times.pop() == {"time/update_s": 7.5}


def test_what_an_evaluation_takes_between_two_steps_is_no_steps(times: StepTimes, clock: Clock) -> None:
    with times.step():
        clock.work(2)
    times.step_done()
    prepare(times, clock)
    assert times.pop() == {"time/update_s": 2}
    prepare(times, clock)
    assert times.pop() == {}


def test_a_part_that_fails_is_closed(times: StepTimes, clock: Clock) -> None:
    with pytest.raises(ZeroDivisionError), times.step(), times.within(StepPart.REWARDS):
        clock.work(1 / 0)
    assert times.part is None


def test_a_device_is_waited_for_before_the_next_part_is_charged(clock: Clock) -> None:
    times = StepTimes(clock=clock, finish=lambda: clock.work(7))
    with times.step(), times.within(StepPart.PREPARING), times.within(StepPart.LOGPS):
        clock.work(1)
    times.step_done()
    assert times.pop() == {"time/logps_s": 8, "time/update_s": 7}
