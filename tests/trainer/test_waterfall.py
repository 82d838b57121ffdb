"""The record of a step's phases: windows, overlaps, what is left out."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import pytest

from tests.trainer.test_timing import Clock
from workers.contract.reports.lines import problem_of
from workers.contract.reports.waterfall import MAX_SPANS, Span, overlap, packed, read, union
from workers.contract.wire.names import EventKind
from workers.trainer.recording.waterfall import Waterfall


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def written() -> list[tuple[int, Mapping[str, Any]]]:
    return []


@pytest.fixture
def recorder(clock: Clock, written: list[tuple[int, Mapping[str, Any]]]) -> Waterfall:
    return Waterfall(lambda *line: written.append(line), clock=clock, wall=lambda: 1e9 + clock.now)


def test_what_goes_on_over_the_end_of_a_step_is_in_both(
    recorder: Waterfall, clock: Clock, written: list[tuple[int, Mapping[str, Any]]]
) -> None:
    clock.work(100)
    recorder.step_begins(1)
    with recorder.within("trainer", "update"):
        clock.work(3)
    generating = recorder.within("vllm", "generation")
    generating.__enter__()
    with recorder.within("trainer", "saving"):
        clock.work(1)
    recorder.step_begins(2)
    clock.work(5)
    threading.Thread(target=generating.__exit__, args=(None, None, None)).start()
    while recorder._open:
        pass
    recorder.training_ends(2)
    assert written == [
        (
            1,
            {
                "began": 1e9 + 100,
                "seconds": 4,
                "spans": [
                    Span("trainer", "update", 0, 3),
                    Span("trainer", "saving", 3, 1),
                    Span("vllm", "generation", 3, 1),
                ],
            },
        ),
        (2, {"began": 1e9 + 104, "seconds": 5, "spans": [Span("vllm", "generation", 0, 5)]}),
    ]
    for step, data in written:
        sent = {**data, "spans": [list(span) for span in data["spans"]]}
        assert problem_of(EventKind.SPANS, step, sent) == ""


def test_of_short_steps_some_are_written_and_a_step_that_was_not_finished_is_not(
    recorder: Waterfall, clock: Clock, written: list[tuple[int, Mapping[str, Any]]]
) -> None:
    for step in range(1, 21):
        recorder.step_begins(step)
        clock.work(0.5)
    recorder.training_ends(19)
    assert [step for step, _ in written] == [1, 5, 9, 13, 17]


def test_overlapping_spans_become_one_and_adjacent_ones_stay() -> None:
    pairs = [Span("a", "x", 0, 2), Span("a", "x", 2, 2), Span("b", "x", 1, 2), Span("b", "x", 2, 3)]
    spans = [*pairs, Span("a", "x", 9, 1e-9)]
    assert packed(spans, 10) == [Span("a", "x", 0, 2), Span("b", "x", 1, 4), Span("a", "x", 2, 2)]


def test_a_step_of_many_spans_is_told_in_as_many_as_fit() -> None:
    spans = [Span("trainer", "update", i, 0.9) for i in range(1000)]
    told = packed(spans, 1000)
    assert 0 < len(told) <= MAX_SPANS
    assert union(told) >= 900
    assert read({"spans": [list(span) for span in told]}) == told


def test_seconds_in_which_two_lanes_work_side_by_side() -> None:
    some, others = [Span("a", "x", 0, 4), Span("a", "x", 3, 3)], [Span("b", "x", 5, 5)]
    assert (union(some), overlap(some, others)) == (6, 1)
