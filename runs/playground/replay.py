"""A run's stored completions scored anew by another config: what would have been ranked and pushed otherwise.

`score` gives each group its new scores until the time is up; `compare` sets them beside what the run itself gave.
Plain computation: which groups, and of which rows, is replay_source's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from controlplane.rewards.turns import Turn
from runs.completions import groups
from runs.playground.completions_source import completion
from runs.playground.evaluating import ComponentScores, How, column
from runs.playground.ordering import SAME, PairCounts, order, pairs, ranks
from runs.playground.scoring import Bar, diverging, variance_shares
from workers.contract import RewardSpec
from workers.rewards import LIBRARY, Failure
from workers.rewards.advantages import advantages, mean
from workers.rewards.reward import Reward

MOVERS = 12
SHOWN_GROUPS = 24
SHOWN_MEMBERS = 32
"""Of a group, those that change most."""
FAILURES = 5
"""Of a component, shown with their tracebacks."""


@dataclass(frozen=True)
class Stored:
    """A prompt group as the run has it, with its texts and its row."""

    pk: int
    step: int
    row: Mapping[str, Any]
    prompt: str
    completions: Sequence[groups.StoredCompletion]


@dataclass(frozen=True)
class Rescored:
    stored: Stored
    columns: list[ComponentScores]
    """A component each, in the config's order."""


@dataclass(frozen=True)
class Member:
    """One completion, before and now."""

    number: int
    text: str
    before: float | None
    now: float | None
    rank_before: int | None
    rank_now: int | None
    """1 is the best of its group; equal totals share a rank."""
    advantage_before: float | None
    advantage_now: float
    scores: list[float | None]

    @property
    def change(self) -> float:
        """The run reckoned in single precision: what that leaves between two equal ones is no change."""
        by = self.advantage_now - (self.advantage_before or 0.0)
        return by if abs(by) > SAME else 0.0

    @property
    def excerpt(self) -> str:
        """What a line of a table has room for."""
        text = " ".join(self.text[:1000].split())
        if text:
            return text[:140] + ("…" if len(text) > 140 else "")
        return "white space only" if self.text else "nothing"

    @property
    def climbed(self) -> int:
        """Ranks, up is positive."""
        return 0 if self.rank_before is None or self.rank_now is None else self.rank_before - self.rank_now

    @property
    def fell(self) -> int:
        return -self.climbed

    @property
    def turned(self) -> bool:
        """Made likelier before and less likely now, or the other way round."""
        return (self.advantage_before or 0.0) * self.advantage_now < 0


@dataclass(frozen=True)
class GroupReplay:
    stored: Stored
    members: list[Member]
    pairs: PairCounts
    flat_before: bool
    flat_now: bool

    @property
    def reordered(self) -> bool:
        return bool(self.pairs.turned or self.pairs.told_apart or self.pairs.made_equal)

    @property
    def shown(self) -> list[Member]:
        most = sorted(self.members, key=lambda one: -abs(one.change))[:SHOWN_MEMBERS]
        return sorted(most, key=lambda one: one.number)

    @property
    def moved(self) -> float:
        """The mean size of its advantages' changes."""
        return mean([abs(one.change) for one in self.members]) or 0.0


@dataclass(frozen=True)
class Mover:
    group: GroupReplay
    member: Member
    before: Bar
    now: Bar


@dataclass
class ComponentReplay:
    """A component over everything that was scored."""

    spec: RewardSpec
    reward: Reward
    how: How
    why: str
    mean: float | None = None
    before: float | None = None
    """The mean of the run's own component of this name."""
    share: float | None = None
    """Of a group's variance, on average over groups that have any."""
    seconds: float | None = None
    none: int = 0
    """Completions that it doesn't apply to, failed ones included."""
    failed: int = 0
    failures: list[tuple[Stored, Failure]] = field(default_factory=list)

    @property
    def milliseconds(self) -> float:
        return 1000 * (self.seconds or 0.0)

    @property
    def counts(self) -> bool:
        return self.how in (How.SCORED, How.RECORDED)


@dataclass(frozen=True)
class Replay:
    groups: list[GroupReplay]
    parts: list[ComponentReplay]
    wanted: int
    """Groups that were to be scored; more than there are if the time was up."""
    aggregation: str
    scale: str

    @property
    def completions(self) -> int:
        return sum(len(group.members) for group in self.groups)

    @property
    def steps(self) -> tuple[int, int]:
        found = [group.stored.step for group in self.groups]
        return min(found), max(found)

    @property
    def pairs(self) -> PairCounts:
        every = [group.pairs for group in self.groups]
        return PairCounts(*(sum(getattr(one, name) for one in every) for name in PairCounts.__dataclass_fields__))

    @property
    def reordered(self) -> int:
        return sum(group.reordered for group in self.groups)

    @property
    def flat_before(self) -> int:
        return sum(group.flat_before for group in self.groups)

    @property
    def flat_now(self) -> int:
        return sum(group.flat_now for group in self.groups)

    @property
    def turned(self) -> int:
        """Completions that would be pushed the other way."""
        return sum(member.turned for group in self.groups for member in group.members)

    @property
    def change(self) -> float:
        return mean([abs(member.change) for group in self.groups for member in group.members]) or 0.0

    @property
    def most_changed(self) -> list[GroupReplay]:
        return sorted(self.groups, key=lambda group: (-group.moved, group.stored.pk))[:SHOWN_GROUPS]

    @property
    def movers(self) -> list[Mover]:
        every = [(group, member) for group in self.groups for member in group.members if member.change]
        every.sort(key=lambda one: (-abs(one[1].change), one[0].stored.pk, one[1].number))
        few = every[:MOVERS]
        widest = max((max(abs(m.advantage_before or 0.0), abs(m.advantage_now)) for _, m in few), default=0.0) or 1.0
        return [
            Mover(group, m, diverging(m.advantage_before or 0.0, widest), diverging(m.advantage_now, widest))
            for group, m in few
        ]

    @property
    def widest(self) -> float:
        every = [member for group in self.groups for member in group.members]
        return max((max(abs(m.advantage_before or 0.0), abs(m.advantage_now)) for m in every), default=0.0) or 1.0


def score(
    stored: Sequence[Stored],
    specs: Sequence[RewardSpec],
    turn: Turn,
    *,
    ask: bool = False,
    of_run: Mapping[str, Any] | None = None,
) -> list[Rescored]:
    """The groups in their order, as many as the turn has time for: a group is scored by every component or not at all.
    `of_run`: the run's frozen spec. What it gave by the very same component is taken where that can't be scored here.
    """
    own = {spec.name: recorded_as(of_run or {}, spec) for spec in specs}
    made: list[Rescored] = []
    for one in stored:
        if turn.over and made:
            break
        texts = [completion(each) for each in one.completions]
        columns = []
        for spec in specs:
            name = own[spec.name]
            recorded = [each.rewards.get(name) for each in one.completions] if name else None
            columns.append(column(spec, texts, [one.row] * len(texts), turn, ask=ask, recorded=recorded))
        if any(each.how is How.LATE for each in columns):
            break
        made.append(Rescored(one, columns))
    return made


def recorded_as(spec: Mapping[str, Any], wanted: RewardSpec) -> str:
    """The name of the run's own component that is the same function with the same parameters; "" if it has none."""
    defaults = LIBRARY[wanted.function].defaults()
    for part in spec.get("rewards") or ():
        same = isinstance(part, Mapping) and part.get("function") == wanted.function
        if same and {**defaults, **(part.get("params") or {})} == {**defaults, **wanted.params}:
            return str(part.get("name") or "")
    return ""


def compare(
    rescored: Sequence[Rescored],
    specs: Sequence[RewardSpec],
    *,
    aggregation: str,
    scale: str | bool = "group",
    wanted: int | None = None,
) -> Replay:
    """`scale`: the run's scale_rewards. Steps are batches: what TRL takes over a batch is taken over the groups of one
    step that are here."""
    made: list[GroupReplay] = []
    for _, of_step in groupby(rescored, key=lambda one: one.stored.step):
        # Whole groups of one size, as TRL has them; a run that changed its size within a step has none.
        of_size = sorted(of_step, key=lambda one: len(one.stored.completions))
        for _, some in groupby(of_size, key=lambda one: len(one.stored.completions)):
            made += _batch(list(some), aggregation, scale)
    places = {one.stored.pk: place for place, one in enumerate(rescored)}
    made.sort(key=lambda group: places[group.stored.pk])
    shares = [_shares(one.columns, aggregation) for one in rescored]
    parts = [_part(place, spec, rescored) for place, spec in enumerate(specs)] if rescored else []
    for place, part in enumerate(parts):
        part.share = mean([each[place] for each in shares])
    told = "normalised by component" if aggregation == "normalize_then_sum" else str(scale)
    return Replay(made, parts, len(rescored) if wanted is None else wanted, aggregation, told)


def _batch(some: Sequence[Rescored], aggregation: str, scale: str | bool) -> list[GroupReplay]:
    size = len(some[0].stored.completions)
    counted = [place for place, one in enumerate(some[0].columns) if any(each.columns[place].counts for each in some)]
    if not counted or not size:
        return []
    values = [[value for one in some for value in one.columns[place].values] for place in counted]
    weights = [some[0].columns[place].spec.weight for place in counted]
    result = advantages(values, weights, size, aggregation, scale)
    return [
        _group(
            one,
            result.totals[at * size : (at + 1) * size],
            result.advantages[at * size : (at + 1) * size],
            flat=result.zero_spread[at],
        )
        for at, one in enumerate(some)
    ]


def _group(one: Rescored, totals: Sequence[float | None], pushed: Sequence[float], *, flat: bool) -> GroupReplay:
    told = one.stored.completions
    before = [each.reward for each in told]
    ranks_before, ranks_now = ranks(before), ranks(totals)
    members = [
        Member(
            number=each.number,
            text=each.text or "",
            before=each.reward,
            now=totals[place],
            rank_before=ranks_before[place],
            rank_now=ranks_now[place],
            advantage_before=each.advantage,
            advantage_now=pushed[place],
            scores=[column.values[place] for column in one.columns],
        )
        for place, each in enumerate(told)
    ]
    given = [total for total in before if total is not None]
    return GroupReplay(
        one.stored,
        members,
        pairs(before, totals),
        flat_before=len(given) < 2 or order(max(given), min(given)) == 0,
        flat_now=flat,
    )


def _part(place: int, spec: RewardSpec, rescored: Sequence[Rescored]) -> ComponentReplay:
    columns = [one.columns[place] for one in rescored]
    worst = next((one for one in columns if not one.counts), columns[0])
    part = ComponentReplay(spec, columns[0].reward, worst.how, worst.why)
    values = [value for one in columns for value in one.values]
    part.mean = mean(values)
    part.before = mean([each.rewards.get(spec.name) for one in rescored for each in one.stored.completions])
    part.none = sum(value is None for value in values)
    part.failed = sum(len({failure.index for failure in one.failures}) for one in columns)
    part.failures = _few((one.stored, failure) for one in rescored for failure in one.columns[place].failures)
    taken = [one.seconds for one in columns if one.seconds is not None]
    part.seconds = math.fsum(taken) if taken else None
    return part


def _shares(columns: Sequence[ComponentScores], aggregation: str) -> list[float | None]:
    """Each component's share of one group's variance."""
    counted = iter(variance_shares([one for one in columns if one.counts], aggregation))
    return [next(counted) if one.counts else None for one in columns]


def _few(failures: Iterable[tuple[Stored, Failure]]) -> list[tuple[Stored, Failure]]:
    """The first of each message."""
    seen: dict[str, tuple[Stored, Failure]] = {}
    for stored, failure in failures:
        seen.setdefault(failure.message, (stored, failure))
        if len(seen) == FAILURES:
            break
    return list(seen.values())
