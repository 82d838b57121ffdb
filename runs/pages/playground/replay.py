"""Scoring of a run's stored completions with another config, and the comparison of ranks and advantages.

`score` scores groups until the time is up; `compare` compares the results with the run's. They get
their data as arguments: replay_source selects the groups and their rows.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

from controlplane.catalogue.rewards.turns import TrialTurn
from runs.engine.sentences import counted
from runs.insight.completions import groups
from runs.insight.scoring.evaluating import ComponentScores, ScoreSource, column
from runs.insight.scoring.ordering import TOLERANCE, PairCounts, order, pairs, ranks
from runs.insight.scoring.scoring import variance_shares
from runs.pages.playground.completions_source import completion
from workers.contract.run.spec import RewardSpec, outcome_weights
from workers.rewards.advantages import advantages, mean
from workers.rewards.library import LIBRARY
from workers.rewards.reward import Failure, Reward

MAX_MOVERS = 12
MAX_SHOWN_GROUPS = 24
MAX_SHOWN_MEMBERS = 32
"""Maximum number of members shown per group: those that change most."""
FAILURES = 5


@dataclass(frozen=True)
class StoredGroup:
    """A prompt group as the run stored it, with its completions and its row."""

    pk: int
    step: int
    row: Mapping[str, Any]
    prompt: str
    completions: Sequence[groups.StoredCompletion]

    @property
    def label(self) -> str:
        number = self.row.get("row")
        return f"Step {self.step}" if number is None else f"Step {self.step}, row {number}"


@dataclass(frozen=True)
class RescoredGroup:
    stored: StoredGroup
    columns: list[ComponentScores]


class ReplayNote(NamedTuple):
    tone: str
    text: str
    title: str = ""


@dataclass(frozen=True)
class GroupMember:
    """One completion with its scores in the run and in the replay."""

    number: int
    text: str
    before: float | None
    now: float | None
    rank_before: int | None
    rank_now: int | None
    """The rank in the replay: 1 is the best of the group, and equal totals share a rank."""
    advantage_before: float | None
    advantage_now: float
    scores: list[float | None]

    @property
    def change(self) -> float:
        """The change in advantage, or 0 if it is within single precision, in which the run computed."""
        difference = self.advantage_now - (self.advantage_before or 0.0)
        return difference if abs(difference) > TOLERANCE else 0.0

    @property
    def excerpt(self) -> str:
        text = " ".join(self.text[:1000].split())
        if text:
            return text[:140] + ("…" if len(text) > 140 else "")
        return "white space only" if self.text else "nothing"

    @property
    def rank_change(self) -> ReplayNote:
        ranks_gained = 0 if self.rank_before is None or self.rank_now is None else self.rank_before - self.rank_now
        if not ranks_gained:
            return ReplayNote("muted", "=", "Same rank as in the run")
        tone, text = ("good", f"↑{ranks_gained}") if ranks_gained > 0 else ("bad", f"↓{-ranks_gained}")
        return ReplayNote(tone, text, f"From rank {self.rank_before}")

    @property
    def turned(self) -> bool:
        return (self.advantage_before or 0.0) * self.advantage_now < 0


@dataclass(frozen=True)
class GroupReplay:
    stored: StoredGroup
    members: list[GroupMember]
    pairs: PairCounts
    flat_before: bool
    flat_now: bool

    @property
    def reordered(self) -> bool:
        return bool(self.pairs.turned or self.pairs.untied or self.pairs.made_equal)

    @property
    def note(self) -> ReplayNote:
        if self.flat_now:
            return ReplayNote("chip warn", "loses its spread")
        if self.flat_before:
            return ReplayNote("chip good", "gains spread")
        if self.pairs.turned:
            return ReplayNote("chip warn", f"{self.pairs.turned} of {self.pairs.all} pairs inverted")
        if self.reordered:
            return ReplayNote(
                "muted small", f"{counted(self.pairs.untied, 'tie')} broken, {self.pairs.made_equal} created"
            )
        return ReplayNote("muted small", "same order")

    @property
    def shown(self) -> list[GroupMember]:
        changed_members = sorted(self.members, key=lambda member: -abs(member.change))[:MAX_SHOWN_MEMBERS]
        return sorted(changed_members, key=lambda member: member.number)

    @property
    def left_out(self) -> str:
        count, total = min(len(self.members), MAX_SHOWN_MEMBERS), len(self.members)
        return f"Only the {count} of its {total} completions that change most are shown." if count < total else ""

    @property
    def moved(self) -> float:
        return mean([abs(member.change) for member in self.members]) or 0.0


@dataclass
class ComponentReplay:
    spec: RewardSpec
    reward: Reward
    how: ScoreSource
    why: str
    mean: float | None = None
    before: float | None = None
    """The mean of the run's component of this name."""
    share: float | None = None
    """Share of a group's variance, averaged over the groups that have any."""
    seconds: float | None = None
    none: int = 0
    """Number of completions without a score, including failed ones."""
    failed: int = 0
    failures: list[tuple[StoredGroup, Failure]] = field(default_factory=list)

    @property
    def counts(self) -> bool:
        return self.how in (ScoreSource.SCORED, ScoreSource.RECORDED)


@dataclass(frozen=True)
class RewardReplay:
    groups: list[GroupReplay]
    parts: list[ComponentReplay]
    requested: int
    """Number of groups to score; higher than the number scored if the time was up."""
    aggregation: str
    scale: str

    @property
    def completions(self) -> int:
        return sum(len(group.members) for group in self.groups)

    @property
    def steps(self) -> tuple[int, int]:
        steps = [group.stored.step for group in self.groups]
        return min(steps), max(steps)

    @property
    def pairs(self) -> PairCounts:
        names = PairCounts.__dataclass_fields__
        return PairCounts(*(sum(getattr(group.pairs, name) for group in self.groups) for name in names))

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
        return sum(member.turned for group in self.groups for member in group.members)

    @property
    def change(self) -> float:
        return mean([abs(member.change) for group in self.groups for member in group.members]) or 0.0

    @property
    def shown(self) -> list[GroupReplay]:
        changed_groups = [group for group in self.groups if group.moved or group.reordered]
        return sorted(changed_groups, key=lambda group: (-group.moved, group.stored.pk))[:MAX_SHOWN_GROUPS]

    @property
    def movers(self) -> list[tuple[GroupReplay, GroupMember]]:
        movers = [(group, member) for group in self.groups for member in group.members if member.change]
        movers.sort(key=lambda mover: (-abs(mover[1].change), mover[0].stored.pk, mover[1].number))
        return movers[:MAX_MOVERS]

    @property
    def widest(self) -> float:
        members = [member for group in self.groups for member in group.members]
        return max((max(abs(m.advantage_before or 0.0), abs(m.advantage_now)) for m in members), default=0.0) or 1.0


def score(
    stored_groups: Sequence[StoredGroup],
    specs: Sequence[RewardSpec],
    turn: TrialTurn,
    *,
    ask: bool = False,
    run_spec: Mapping[str, Any] | None = None,
) -> list[RescoredGroup]:
    """Score as many groups as the turn has time for, each with all components or not at all. `run_spec` is the run's
    frozen spec. If a component can't be scored here, the run's scores of an identical component are reused."""
    recorded_names = {spec.name: recorded_as(run_spec or {}, spec) for spec in specs}
    rescored: list[RescoredGroup] = []
    for group in stored_groups:
        if turn.over and rescored:
            break
        texts = [completion(item) for item in group.completions]
        columns = []
        for spec in specs:
            name = recorded_names[spec.name]
            recorded_scores = [item.rewards.get(name) for item in group.completions] if name else None
            columns.append(column(spec, texts, [group.row] * len(texts), turn, ask=ask, recorded=recorded_scores))
        if any(item.how is ScoreSource.LATE for item in columns):
            break
        rescored.append(RescoredGroup(group, columns))
    return rescored


def recorded_as(spec: Mapping[str, Any], component: RewardSpec) -> str:
    """Return the name of the run's component with the same function and parameters that has scored all rows to which
    this one applies, or "" if it has none."""
    defaults = LIBRARY[component.function].defaults()
    for part in spec.get("rewards") or ():
        is_same = isinstance(part, Mapping) and part.get("function") == component.function
        limits = (part.get("applies_to") or []) if isinstance(part, Mapping) else []
        has_scored = not limits or (bool(component.applies_to) and set(component.applies_to) <= set(limits))
        if is_same and has_scored and {**defaults, **(part.get("params") or {})} == {**defaults, **component.params}:
            return str(part.get("name") or "")
    return ""


def compare(
    rescored: Sequence[RescoredGroup],
    specs: Sequence[RewardSpec],
    *,
    aggregation: str,
    scale: str | bool = "group",
    requested: int | None = None,
) -> RewardReplay:
    """Compare rescored groups with the run, whose scale_rewards is `scale`.

    Each step is treated as a batch: what TRL computes over a batch is computed over the available groups of the step.
    """
    replays: list[GroupReplay] = []
    for _, of_step in groupby(rescored, key=lambda scored: scored.stored.step):
        # TRL requires groups of one size; a step has several sizes if the run changed it.
        of_size = sorted(of_step, key=lambda scored: len(scored.stored.completions))
        for _, same_size in groupby(of_size, key=lambda scored: len(scored.stored.completions)):
            replays += _batch(list(same_size), aggregation, scale)
    order_of = {scored.stored.pk: index for index, scored in enumerate(rescored)}
    replays.sort(key=lambda group: order_of[group.stored.pk])
    shares = [_shares(scored.columns, aggregation) for scored in rescored]
    parts = [_part(index, spec, rescored) for index, spec in enumerate(specs)] if rescored else []
    for index, part in enumerate(parts):
        part.share = mean([group_shares[index] for group_shares in shares])
    scaling = "normalized by component" if aggregation == "normalize_then_sum" else str(scale)
    return RewardReplay(replays, parts, len(rescored) if requested is None else requested, aggregation, scaling)


def _batch(batch: Sequence[RescoredGroup], aggregation: str, scale: str | bool) -> list[GroupReplay]:
    size = len(batch[0].stored.completions)
    counted_indexes = [
        index for index, group in enumerate(batch[0].columns) if any(scored.columns[index].counts for scored in batch)
    ]
    if not counted_indexes or not size:
        return []
    values = [[value for group in batch for value in group.columns[index].values] for index in counted_indexes]
    weights = outcome_weights([batch[0].columns[index].spec for index in counted_indexes])
    result = advantages(values, weights, size, aggregation, scale)
    return [
        _group(
            group,
            result.totals[position * size : (position + 1) * size],
            result.advantages[position * size : (position + 1) * size],
            is_flat=result.zero_spread[position],
        )
        for position, group in enumerate(batch)
    ]


def _group(
    rescored: RescoredGroup, totals: Sequence[float | None], new_advantages: Sequence[float], *, is_flat: bool
) -> GroupReplay:
    completions = rescored.stored.completions
    before = [item.reward for item in completions]
    ranks_before, ranks_now = ranks(before), ranks(totals)
    members = [
        GroupMember(
            number=item.number,
            text=item.text or "",
            before=item.reward,
            now=totals[index],
            rank_before=ranks_before[index],
            rank_now=ranks_now[index],
            advantage_before=item.advantage,
            advantage_now=new_advantages[index],
            scores=[column.values[index] for column in rescored.columns],
        )
        for index, item in enumerate(completions)
    ]
    recorded_totals = [total for total in before if total is not None]
    return GroupReplay(
        rescored.stored,
        members,
        pairs(before, totals),
        flat_before=len(recorded_totals) < 2 or order(max(recorded_totals), min(recorded_totals)) == 0,
        flat_now=is_flat,
    )


def _part(index: int, spec: RewardSpec, rescored: Sequence[RescoredGroup]) -> ComponentReplay:
    columns = [group.columns[index] for group in rescored]
    worst_group = next((group for group in columns if not group.counts), columns[0])
    part = ComponentReplay(spec, columns[0].reward, worst_group.how, worst_group.why)
    values = [value for group in columns for value in group.values]
    part.mean = mean(values)
    part.before = mean([item.rewards.get(spec.name) for group in rescored for item in group.stored.completions])
    part.none = sum(value is None for value in values)
    part.failed = sum(len({failure.index for failure in group.failures}) for group in columns)
    part.failures = _first_of_each(
        (group.stored, failure) for group in rescored for failure in group.columns[index].failures
    )
    seconds = [group.seconds for group in columns if group.seconds is not None]
    part.seconds = math.fsum(seconds) if seconds else None
    return part


def _shares(columns: Sequence[ComponentScores], aggregation: str) -> list[float | None]:
    shares = iter(variance_shares([scores for scores in columns if scores.counts], aggregation))
    return [next(shares) if scores.counts else None for scores in columns]


def _first_of_each(failures: Iterable[tuple[StoredGroup, Failure]]) -> list[tuple[StoredGroup, Failure]]:
    """Return the first failure for each distinct message, up to FAILURES."""
    by_message: dict[str, tuple[StoredGroup, Failure]] = {}
    for stored, failure in failures:
        by_message.setdefault(failure.message, (stored, failure))
        if len(by_message) == FAILURES:
            break
    return list(by_message.values())
