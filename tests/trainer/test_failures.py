"""Rows that rewards failed on: when they are told, how they are counted, and when they end a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from workers.rewards.reward import Failure
from workers.trainer.scoring.failures import MIN_BATCHES, WINDOW, FailureNote, Failures

ROWS = list(range(100, 110))


class Run:
    """Batches of ten completions, of which some fail."""

    def __init__(self, share: float = 0.5, spared: tuple[str, ...] = ()) -> None:
        self.events: list[dict[str, Any]] = []
        self.failures = Failures(
            share=share, event=lambda _, data, step: self.events.append({**data, "step": step}), exempt_rewards=spared
        )
        self.step = 0

    def batch(
        self, *failed: int, reward: str = "judge", gather: Callable[..., list[FailureNote]] = lambda mine: mine
    ) -> str:
        """The verdict after it."""
        self.step += 1
        self.failures.note(
            reward, ROWS, [Failure(index, "http", "It answered 503.", "a traceback") for index in failed]
        )
        self.failures.judge_batch(self.step, gather)
        return self.failures.verdict


def test_failures_are_told_at_the_first_the_tenth_and_the_hundredth() -> None:
    run = Run(share=1.0)
    for _ in range(30):
        run.batch(2, 3, 4, 5)
    assert [(event["count"], event["of"], event["step"]) for event in run.events] == [
        (4, 10, 1),
        (12, 30, 3),
        (100, 250, 25),
    ]


def test_an_event_names_the_reward_the_row_and_what_it_said(capsys: pytest.CaptureFixture[str]) -> None:
    run = Run()
    run.batch(3)
    [event] = run.events
    assert {name: event[name] for name in ("reward", "row", "message", "count", "of")} == {
        "reward": "judge",
        "row": 103,
        "message": "It answered 503.",
        "count": 1,
        "of": 10,
    }
    assert "a traceback" in capsys.readouterr().err


def test_a_reward_of_evaluations_only_is_told_and_never_ends_the_run() -> None:
    run = Run(spared=("judge",))
    assert {run.batch(*range(10)) for _ in range(WINDOW)} == {""}
    run.failures.judge_at_end()
    assert run.failures.verdict == ""
    assert run.events


def test_a_reward_that_fails_on_everything_ends_the_run_after_a_few_batches() -> None:
    run = Run()
    verdicts = [run.batch(*range(10)) for _ in range(MIN_BATCHES)]
    assert verdicts[:-1] == [""] * (MIN_BATCHES - 1)
    assert verdicts[-1] == (
        "The reward judge failed on 40 of the 40 completions of its last 4 batches, but the run allows only 50%: "
        "It answered 503."
    )


def test_one_bad_batch_among_good_ones_ends_nothing() -> None:
    run = Run()
    assert [run.batch(*(range(10) if number == 2 else ())) for number in range(2 * WINDOW)] == [""] * 2 * WINDOW


def test_only_the_last_batches_count() -> None:
    run = Run()
    for _ in range(100):
        assert run.batch() == ""
    verdicts = [run.batch(*range(10)) for _ in range(WINDOW)]
    assert [bool(verdict) for verdict in verdicts] == [False] * (WINDOW // 2) + [True] * (WINDOW // 2)


@pytest.mark.parametrize(
    ("share", "failed", "ends"), [(0.5, 5, False), (0.5, 6, True), (0.0, 1, True), (1.0, 10, False)]
)
def test_the_run_ends_above_its_share_and_never_at_it(share: float, failed: int, ends: bool) -> None:
    run = Run(share=share)
    for _ in range(WINDOW):
        run.batch(*range(failed))
    assert bool(run.failures.verdict) is ends


def test_a_training_of_fewer_batches_is_judged_at_its_end() -> None:
    run = Run()
    assert run.batch(*range(10)) == ""
    run.failures.judge_at_end()
    assert "10 of the 10 completions of its batch" in run.failures.verdict


def test_rewards_are_judged_each_by_itself() -> None:
    run = Run(share=0.4)
    for _ in range(WINDOW):
        run.batch(0, 1, 2, reward="one")
        run.batch(3, 4, 5, reward="two")
    assert run.failures.verdict == ""
    assert {event["reward"] for event in run.events} == {"one", "two"}


def test_ranks_count_together_and_end_at_the_same_step() -> None:
    mine, other = Run(share=0.3), Run(share=0.3)
    for _ in range(MIN_BATCHES):
        theirs = [FailureNote("judge", 10, 10, "http", "It answered 503.", 7)]
        good = [FailureNote("judge", 10, 0)]
        one = mine.batch(gather=lambda notes, theirs=theirs: [*notes, *theirs])
        two = other.batch(*range(10), gather=lambda notes, good=good: [*good, *notes])
    assert one == two != ""
    told = [[(event["count"], event["of"], event["step"]) for event in run.events] for run in (mine, other)]
    assert told == [[(10, 20, 1)]] * 2
    assert (mine.events[0]["row"], other.events[0]["row"]) == (7, 100)


def test_two_failures_of_one_row_are_one_row() -> None:
    run = Run()
    run.batch(3, 3, 3)
    assert (run.events[0]["count"], run.events[0]["of"]) == (1, 10)
