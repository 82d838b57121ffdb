"""Changes in one prompt's episodes over its visits: statistics of each visit, and two episodes turn by turn."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from django.db.models import QuerySet

from runs.engine.gain import mean
from runs.engine.records import SampleRow
from runs.insight.completions import episodes
from runs.insight.completions.episodes import StoredEpisode, TurnPair
from runs.insight.completions.groups import StoredCompletion, completions

MAX_VISITS = 16
"""Maximum number of visits whose messages are read: the first, the last and others evenly spread between them."""
MAX_TURNS = 8


@dataclass(frozen=True)
class EpisodeVisit:
    """Averages over the episodes of one visit."""

    pk: int
    step: int
    reward: float | None
    turns: float
    calls: float
    failures: float
    tools: str
    """The tools called, most frequent first, each with its number of calls."""
    turn_rewards: list[float | None]
    """The mean reward of each of MAX_TURNS turns; None if no episode has a reward for the turn."""
    best: StoredCompletion

    @property
    def key(self) -> str:
        return f"{self.pk}.{self.best.number}"


@dataclass(frozen=True)
class EpisodeChange:
    visits: list[EpisodeVisit]
    turns: list[int]
    before: EpisodeVisit
    after: EpisodeVisit
    pairs: list[TurnPair]

    @property
    def slice(self) -> str:
        return f":{len(self.turns)}"

    @property
    def widest(self) -> float:
        turns = (turn for pair in self.pairs for turn in (pair.before, pair.after) if turn)
        return max((abs(turn.advantage or 0.0) for turn in turns), default=0.0) or 1.0


def change(rows: QuerySet[SampleRow], before: str = "", after: str = "") -> EpisodeChange | None:
    """Compare a prompt's visits, given oldest first. Return None if fewer than two have episodes with messages.

    `before` and `after` are the keys of the visits to compare turn by turn, by default the first and the last. Each of
    these visits is represented by its best episode.
    """
    pks = list(rows.filter(size__gt=0).values_list("pk", flat=True))
    if len(pks) > MAX_VISITS:
        pks = [pks[round(i * (len(pks) - 1) / (MAX_VISITS - 1))] for i in range(MAX_VISITS)]
    by_pk = SampleRow.objects.in_bulk(pks)
    visits = [visit for pk in pks if (row := by_pk.get(pk)) and (visit := _visit(row))]
    if len(visits) < 2:
        return None
    by_key = {visit.key: visit for visit in visits}
    earlier_visit, later_visit = by_key.get(before, visits[0]), by_key.get(after, visits[-1])
    scored_turns = [number for number in range(MAX_TURNS) if any(v.turn_rewards[number] is not None for v in visits)]
    turns = list(range(1, max(scored_turns, default=-1) + 2))
    pairs = episodes.pair_turns(_episode(earlier_visit.best), _episode(later_visit.best))
    return EpisodeChange(visits, turns, earlier_visit, later_visit, pairs)


def _visit(row: SampleRow) -> EpisodeVisit | None:
    entries = completions(row.data)
    of_visit = [(completion, episode) for completion in entries if (episode := episodes.read(completion.turns))]
    if not of_visit:
        return None
    count = len(of_visit)
    tools = Counter(call.turn.name for _, episode in of_visit for turn in episode.turns for call in turn.calls)
    return EpisodeVisit(
        pk=row.pk,
        step=row.step,
        reward=row.reward_mean,
        turns=sum(episode.count for _, episode in of_visit) / count,
        calls=sum(episode.calls for _, episode in of_visit) / count,
        failures=sum(episode.failures for _, episode in of_visit) / count,
        tools=", ".join(f"{name} {calls}" for name, calls in tools.most_common(6)),
        turn_rewards=[_mean_reward((episode for _, episode in of_visit), n) for n in range(1, MAX_TURNS + 1)],
        best=max((completion for completion, _ in of_visit), key=lambda c: (c.reward is not None, c.reward or 0)),
    )


def _mean_reward(of_visit: Iterable[StoredEpisode], number: int) -> float | None:
    rewards = [
        turn.reward
        for episode in of_visit
        for turn in episode.turns
        if turn.number == number and turn.reward is not None
    ]
    return mean(rewards) if rewards else None


def _episode(completion: StoredCompletion) -> StoredEpisode:
    return episodes.read(completion.turns) or StoredEpisode(())
