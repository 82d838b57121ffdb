"""Balance of a reward config: how much each component can change the total, and whether one dominates the others."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from controlplane.catalogue.rewards.models import NORMALIZE_THEN_SUM
from controlplane.catalogue.versioned import checking
from controlplane.platform.confined.limits import NotFinished
from controlplane.platform.templatetags.figures import significant
from workers.contract.run.row_names import applies
from workers.contract.run.spec import RewardSpec, outcome_weights
from workers.rewards.library import LIBRARY

MIN_RATIO = 4.0
"""Ratio of spans in the total, relative to the ratio of the weights, from which a component dominates the largest other
one: weights of 1 and 0.2 by themselves mean a ratio of five."""
MIN_RATIO_BY_WEIGHT = 25.0
"""Ratio of spans from which a component dominates whatever the weights; for a format, 1 and 0.05 are usual."""
NORMALISED_REPLACEMENTS = {"unique_chars": "unique_chars_normalised"}
"""Keys of unbounded rewards, each with the key of an equivalent between 0 and 1."""


@dataclass(frozen=True)
class ScoreSpan:
    """Weighted part of the total that a component contributes."""

    spec: RewardSpec
    title: str
    low: float | None
    """None if there is no lower bound."""
    high: float | None
    usual: tuple[float, float] | None
    """Usual range of the weighted part; None if unknown."""
    raw: tuple[float, float] | None
    """Usual range without the weight."""
    index: int = 0
    """Position in the config, which determines its colour."""
    bar: tuple[float, float] = (0.0, 0.0)
    """Start and width of the bar, in percent of the axis that all components share."""

    @property
    def range(self) -> str:
        return describe_range(self.low, self.high)

    @property
    def unbounded(self) -> bool:
        return self.low is None or self.high is None

    @property
    def size(self) -> float:
        return self.usual[1] - self.usual[0] if self.usual else 0.0

    @property
    def expected_size(self) -> float:
        """Size that the weight suggests for scores from 0 to 1, or for the usual scores if their range is narrower."""
        scale = abs(self.raw[1] - self.raw[0]) if self.raw else 1.0
        return abs(self.spec.weight) * min(scale, 1.0)


@dataclass(frozen=True)
class Dominance:
    """Component that dominates the others, with values that would remedy that."""

    span: ScoreSpan
    times: float
    """Ratio to the span of the largest other component."""
    largest: ScoreSpan
    """Largest other component."""
    size: float
    """Span of the largest other component."""
    weight: float
    """Weight that would make both spans equal."""
    instead: str
    """Key of the equivalent reward between 0 and 1; "" if there is none."""
    instead_title: str


@dataclass(frozen=True)
class Balance:
    spans: list[ScoreSpan]
    low: float | None
    high: float | None
    zero: float
    """Position of 0, in percent of the shared axis."""
    normalised: bool
    """True if each component is normalised separately, before the weights apply."""
    drowns: Dominance | None

    @property
    def range(self) -> str:
        return describe_range(self.low, self.high)


def describe_range(low: float | None, high: float | None) -> str:
    """Describe a range, in which None means no bound."""
    if low is None:
        return "no bounds" if high is None else f"up to {significant(high)}"
    return f"{significant(low)} and up" if high is None else f"{significant(low)} to {significant(high)}"


def balance(specs: Sequence[RewardSpec | None], aggregation: str) -> Balance:
    """Compute the balance of a config's components in the outcome, ignoring invalid (None) and unknown ones."""
    scored_specs = [(index, spec) for index, spec in enumerate(specs) if spec is not None and spec.function in LIBRARY]
    weights = outcome_weights([spec for _, spec in scored_specs])
    spans = [
        _span(replace(spec, weight=weight), index) for (index, spec), weight in zip(scored_specs, weights, strict=True)
    ]
    edges = [0.0, *(edge for span in spans for edge in _bar_edges(span) or ())]
    start = min(edges)
    width = (max(edges) - start) or 1.0
    bars = [_with_bar(span, start, width) for span in spans]
    return Balance(
        spans=bars,
        low=_total(_limited(span.low, span.spec, min) for span in spans),
        high=_total(_limited(span.high, span.spec, max) for span in spans),
        zero=round(-100 * start / width, 2),
        normalised=aggregation == NORMALIZE_THEN_SUM,
        drowns=_dominance(bars, aggregation),
    )


def expected_range(spec: RewardSpec) -> tuple[float, float | None]:
    """Return the lowest and highest score of a component, with default parameters if its own are invalid or
    can't be judged now: a config stays readable, and preflight says which of its parameters weren't checked."""
    reward = LIBRARY[spec.function]
    try:
        return reward.range if checking.problems(reward, spec.params) else reward.expected(spec.params)
    except NotFinished:
        return reward.range


def _limited(bound: float | None, spec: RewardSpec, extreme: Callable[[float, float], float]) -> float | None:
    """Return a component's bound in the totals of all rows, to which a limited component may add nothing."""
    return extreme(bound, 0.0) if bound is not None and spec.applies_to else bound


def _may_meet(spec: RewardSpec, other: RewardSpec) -> bool:
    """Return whether two components are expected to score the same rows."""
    return not spec.applies_to or applies(other, spec.applies_to)


def _total(bounds: Iterable[float | None]) -> float | None:
    limits = list(bounds)
    return None if None in limits else math.fsum(bound for bound in limits if bound is not None)


def _span(spec: RewardSpec, index: int) -> ScoreSpan:
    reward = LIBRARY[spec.function]
    low, high = expected_range(spec)
    raw = (low, high) if high is not None else reward.typical
    edges = [spec.weight * low, None if high is None else spec.weight * high]
    if spec.weight < 0:
        edges.reverse()
    if spec.weight == 0:
        edges = [0.0, 0.0]
    usual_range = None
    if raw is not None and spec.weight:
        first, last = sorted(spec.weight * edge for edge in raw)
        usual_range = (first, last)
    return ScoreSpan(spec, reward.title, edges[0], edges[1], usual_range, raw, index)


def _bar_edges(span: ScoreSpan) -> tuple[float, float] | None:
    return span.usual if span.low is None or span.high is None else (span.low, span.high)


def _with_bar(span: ScoreSpan, start: float, width: float) -> ScoreSpan:
    if (edges := _bar_edges(span)) is None:
        return span
    bar_start, bar_end = (100 * (edge - start) / width for edge in edges)
    return replace(span, bar=(round(bar_start, 2), round(max(bar_end - bar_start, 0.5), 2)))


def _dominance(spans: Sequence[ScoreSpan], aggregation: str) -> Dominance | None:
    normalised = aggregation == NORMALIZE_THEN_SUM
    sizes = [(abs(span.spec.weight) if normalised else span.size, span) for span in spans]
    ranked = sorted((entry for entry in sizes if entry[0] > 0), key=lambda entry: entry[0], reverse=True)
    if not ranked:
        return None
    size, span = ranked[0]
    if not (others := [(other_size, other) for other_size, other in ranked[1:] if _may_meet(span.spec, other.spec)]):
        return None
    next_size, largest = others[0]
    ratio = size / next_size if normalised else span.expected_size / largest.expected_size
    if size < next_size * min(MIN_RATIO * max(ratio, 1.0), MIN_RATIO_BY_WEIGHT):
        return None
    replacement = "" if normalised else NORMALISED_REPLACEMENTS.get(span.spec.function, "")
    return Dominance(
        span=span,
        times=size / next_size,
        largest=largest,
        size=next_size,
        weight=float(f"{span.spec.weight * next_size / size:.2g}"),  # as people write weights
        instead=replacement,
        instead_title=LIBRARY[replacement].title if replacement else "",
    )
