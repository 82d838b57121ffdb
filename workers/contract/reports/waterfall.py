"""Timeline of a step: when each phase began and how long it took, in one lane for each worker. Standard library only.

Lanes may overlap, and so may phases of a lane: what is generated for the next batch while this one trains is in this
step's record. The trainer writes lines of EventKind.SPANS.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

TRAINER, REWARDS, REWARD = "trainer", "rewards", "reward:"
"""Lanes, in addition to SERVER_ROLES of the vLLM servers: the first rank's GPU, the wait for rewards, and for each
reward component REWARD followed by its name."""
SERVER = "vllm"
OPTIMIZER, EXTRA = "optimizer", "extra"
"""Phases in addition to those of StepPart: the optimizer's step, and an additional round of dynamic sampling."""
MAX_SPANS = 120
MAX_LANE_LENGTH = 80
_MAX_S = 4e9
_MIN_VISIBLE_SHARE = 1 / 2_000
"""Share of a step below which a span can't be seen in a drawing."""


class Span(NamedTuple):
    lane: str
    phase: str
    start: float
    seconds: float

    @property
    def end(self) -> float:
        return self.start + self.seconds


def packed(spans: Iterable[Span], window: float) -> list[Span]:
    """Drop spans too short to be visible, and join the others until at most MAX_SPANS are left: overlapping ones of the
    same lane and phase, then those with the shortest gaps. `window`: the step's duration in seconds."""
    merged_spans = _join(spans, 0.0)
    visible_spans = [span for span in merged_spans if span.seconds >= window * _MIN_VISIBLE_SHARE]
    gap = window * _MIN_VISIBLE_SHARE
    while len(visible_spans) > MAX_SPANS:
        visible_spans, gap = _join(visible_spans, gap), 2 * gap
    return [Span(lane, phase, round(start, 4), round(seconds, 4)) for lane, phase, start, seconds in visible_spans]


def _join(spans: Iterable[Span], gap: float) -> list[Span]:
    """Join spans of the same lane and phase that overlap or are at most `gap` seconds apart. Without a gap, spans that
    only touch stay separate, such as the micro-batches of a step."""
    last_index: dict[tuple[str, str], int] = {}
    merged_spans: list[Span] = []
    for span in sorted(spans, key=lambda span: (span.start, span.end)):
        key = (span.lane, span.phase)
        previous_span = merged_spans[last_index[key]] if key in last_index else None
        if previous_span is not None and (
            span.start < previous_span.end or (gap and span.start <= previous_span.end + gap)
        ):
            merged_spans[last_index[key]] = previous_span._replace(
                seconds=max(previous_span.end, span.end) - previous_span.start
            )
        else:
            last_index[key] = len(merged_spans)
            merged_spans.append(span)
    return merged_spans


def union(spans: Iterable[Span]) -> float:
    """Return the seconds that at least one of the spans covers."""
    total, until = 0.0, float("-inf")
    for span in sorted(spans, key=lambda span: span.start):
        total += max(0.0, span.end - max(span.start, until))
        until = max(until, span.end)
    return total


def overlap(first: Iterable[Span], second: Iterable[Span]) -> float:
    """Return the seconds that are covered by spans of both lists."""
    first, second = list(first), list(second)
    return union(first) + union(second) - union([*first, *second])


def read(data: Mapping[str, Any]) -> list[Span]:
    """Read the spans of a line's data, which `are_spans` has accepted."""
    return [Span(str(lane), str(phase), float(start), float(seconds)) for lane, phase, start, seconds in data["spans"]]


def are_spans(spans: object) -> bool:
    return isinstance(spans, list) and len(spans) <= MAX_SPANS and all(_is_span(span) for span in spans)


def is_seconds(value: object) -> bool:
    """Return whether a value is a number of seconds, within a step or since 1970."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _MAX_S


def _is_span(value: object) -> bool:
    if not isinstance(value, list) or len(value) != 4:
        return False
    lane, phase, start, seconds = value
    are_named = all(isinstance(name, str) and 0 < len(name) <= MAX_LANE_LENGTH for name in (lane, phase))
    return are_named and is_seconds(start) and is_seconds(seconds)
