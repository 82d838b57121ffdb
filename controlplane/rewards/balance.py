"""How far each component of a config can move the total, and whether one drowns the others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from controlplane.rewards.models import NORMALIZE_THEN_SUM
from controlplane.templatetags.figures import significant
from workers.contract import RewardSpec
from workers.rewards import LIBRARY

TIMES = 4.0
"""A component drowns the others if its part of the total spans so many times that of the largest other, over and above
what their weights say: 1 beside 0.2 says five times by itself."""
BY_WEIGHT = 25.0
"""And if it spans so many times that one, whatever the weights say; 1 beside 0.05 is how people weigh a format."""
NORMALISED = {"unique_chars": "unique_chars_normalised"}
"""Of a reward without a bound: the one that says the same between 0 and 1."""


@dataclass(frozen=True)
class Span:
    """One component's part of the total, by its weight."""

    spec: RewardSpec
    title: str
    low: float | None
    """None: no bound."""
    high: float | None
    usual: tuple[float, float] | None
    """Between which its part usually lies; None: nobody knows."""
    raw: tuple[float, float] | None
    """The same before the weight."""
    place: int = 0
    """In the config, by which it has its colour."""
    bar: tuple[float, float] = (0.0, 0.0)
    """Where its bar begins, and how wide it is, of 100 on the axis that all components share."""

    @property
    def words(self) -> str:
        return in_words(self.low, self.high)

    @property
    def unbounded(self) -> bool:
        return self.low is None or self.high is None

    @property
    def size(self) -> float:
        return self.usual[1] - self.usual[0] if self.usual else 0.0

    @property
    def said(self) -> float:
        """What its weight says of it: its size, if it scored from 0 to 1. A narrower range is a weight, too."""
        scale = abs(self.raw[1] - self.raw[0]) if self.raw else 1.0
        return abs(self.spec.weight) * min(scale, 1.0)


@dataclass(frozen=True)
class Drowns:
    """A component that leaves the others nothing to say, and what would mend it."""

    span: Span
    times: float
    """Of the span of the largest of the others."""
    largest: Span
    """Of the others."""
    size: float
    """Its span."""
    weight: float
    """That gives the one that drowns them the same."""
    instead: str
    """Key of the reward that says the same between 0 and 1; "": none."""
    instead_title: str


@dataclass(frozen=True)
class Balance:
    spans: list[Span]
    low: float | None
    high: float | None
    zero: float
    """Where 0 is on the shared axis, of 100."""
    normalised: bool
    """Each component by itself, before the weights."""
    drowns: Drowns | None

    @property
    def words(self) -> str:
        return in_words(self.low, self.high)


def in_words(low: float | None, high: float | None) -> str:
    """A range for people; None: no bound."""
    if low is None:
        return "no bounds" if high is None else f"up to {significant(high)}"
    return f"{significant(low)} and up" if high is None else f"{significant(low)} to {significant(high)}"


def balance(specs: Sequence[RewardSpec | None], aggregation: str) -> Balance:
    """Of a config's components; None: one that is wrong as it stands. It and what the library doesn't have are left
    out."""
    spans = [_span(spec, place) for place, spec in enumerate(specs) if spec is not None and spec.function in LIBRARY]
    lows = [span.low for span in spans]
    highs = [span.high for span in spans]
    shown = [edge for span in spans for edge in _shown(span)]
    left, right = min([0.0, *shown]), max([0.0, *shown])
    width = (right - left) or 1.0
    placed = [_placed(span, left, width) for span in spans]
    return Balance(
        spans=placed,
        low=None if None in lows else math.fsum(low for low in lows if low is not None),
        high=None if None in highs else math.fsum(high for high in highs if high is not None),
        zero=round(-100 * left / width, 2),
        normalised=aggregation == NORMALIZE_THEN_SUM,
        drowns=_drowns(placed, aggregation),
    )


def expected(spec: RewardSpec) -> tuple[float, float | None]:
    """Its lowest and highest score; with the default parameters where its own are wrong."""
    reward = LIBRARY[spec.function]
    return reward.range if reward.check(spec.params) else reward.expected(spec.params)


def _span(spec: RewardSpec, place: int) -> Span:
    reward = LIBRARY[spec.function]
    low, high = expected(spec)
    raw = (low, high) if high is not None else reward.typical
    edges = [spec.weight * low, None if high is None else spec.weight * high]
    if spec.weight < 0:
        edges.reverse()
    if spec.weight == 0:
        edges = [0.0, 0.0]
    usual = None
    if raw is not None and spec.weight:
        first, last = sorted(spec.weight * edge for edge in raw)
        usual = (first, last)
    return Span(spec, reward.title, edges[0], edges[1], usual, raw, place)


def _shown(span: Span) -> tuple[float, ...]:
    """The bar of one without a bound is what it usually gives."""
    if span.low is not None and span.high is not None:
        return (span.low, span.high)
    return span.usual or ()


def _placed(span: Span, left: float, width: float) -> Span:
    edges = _shown(span)
    if not edges:
        return span
    begin, end = (100 * (edge - left) / width for edge in (min(edges), max(edges)))
    bar = (round(begin, 2), round(max(end - begin, 0.5), 2))
    return replace(span, bar=bar)


def _drowns(spans: Sequence[Span], aggregation: str) -> Drowns | None:
    """Where each is normalised by itself, scales don't matter: the weights alone are the spans."""
    normalised = aggregation == NORMALIZE_THEN_SUM
    sizes = [(abs(span.spec.weight) if normalised else span.size, span) for span in spans]
    counted = sorted((one for one in sizes if one[0] > 0), key=lambda one: one[0], reverse=True)
    if len(counted) < 2:
        return None
    (size, span), (other, largest) = counted[:2]
    said = size / other if normalised else span.said / largest.said
    if size < other * min(TIMES * max(said, 1.0), BY_WEIGHT):
        return None
    instead = "" if normalised else NORMALISED.get(span.spec.function, "")
    return Drowns(
        span=span,
        times=size / other,
        largest=largest,
        size=other,
        weight=_rounded(span.spec.weight * other / size),
        instead=instead,
        instead_title=LIBRARY[instead].title if instead else "",
    )


def _rounded(number: float) -> float:
    """To two digits, as people write weights."""
    return float(f"{number:.2g}")
