"""Rewards computed concurrently with generation: each group is scored as soon as it is complete.

This applies only to rewards that wait for something outside this process (a judge, a sandbox) and that score a group
without the rest of the batch. Only the timing changes: when the whole batch is scored, early scores of exactly these
completions are used, and everything else is scored then.
"""

import math
import os
import queue
import threading
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from workers.contract.reports.waterfall import Span, union
from workers.contract.run.spec import RewardSpec, RunSpec
from workers.rewards.entries.judge_client import MAX_AT_ONCE
from workers.rewards.library import LIBRARY
from workers.rewards.reward import Completion, Reward, Row, Scores, waits
from workers.rewards.scoring import score
from workers.rewards.tools import Tools
from workers.trainer.rollouts import fanout

MAX_GROUPS = 4_096
"""Maximum number of groups whose scores are kept until the batch needs them; groups that are never trained on are
dropped eventually."""
MAX_PROMPTS = 16_384
"""Maximum number of prompts whose rows are remembered."""
CONCURRENCY = "concurrency"
"""Name of the parameter by which a reward limits its own requests."""
Score = Callable[..., Scores]
"""Function with the signature of workers.rewards.scoring.score."""
Doing = Callable[[str], AbstractContextManager[None]]
Split = Callable[[Sequence[Any], Sequence[Row]], tuple[list[Completion], list[Row]]]
GroupOf = Callable[[int, list[int], list[list[int]]], tuple[Sequence[Any], Sequence[Row]]]
"""Function from (row, prompt ids, ids of the completions) to the group's completions, each with its row; it is called
in the thread that waits."""


@dataclass
class GroupScoring:
    completions: list[Completion]
    rows: list[Row]
    scores: Scores | None = None
    """Scores of the group; None before it is scored, or if scoring raised."""
    began: float = 0.0
    seconds: float = 0.0
    done: threading.Event = field(default_factory=threading.Event)


class EarlyReward:
    """Scorer of groups with one reward, in threads that live as long as the process."""

    def __init__(
        self, name: str, reward: Reward, params: Mapping[str, Any], tools: Tools, *, doing: Doing, at_once: int
    ) -> None:
        """Prepare the threads. `doing(name)`: the context in which each group is scored. `at_once`: how many
        completions to score concurrently; the reward limits its own requests or processes, and these threads only keep
        it busy."""
        self._name = name
        self._reward = reward
        self._params = params
        self._tools = tools
        self._doing = doing
        self._at_once = at_once
        self._queue: queue.SimpleQueue[GroupScoring] = queue.SimpleQueue()
        self._threads = 0
        self._lock = threading.Lock()
        """Lock that is needed because groups of the next batch may complete while this batch is scored."""
        self._waiting: OrderedDict[int, GroupScoring] = OrderedDict()
        self._number = 0
        self.seconds = 0.0
        """Seconds that the reward spent on the last batch before the trainer waited for it."""

    def begin(self, completions: Sequence[Completion], rows: Sequence[Row]) -> None:
        """Begin to score a complete group."""
        group = GroupScoring(list(completions), list(rows))
        with self._lock:
            self._number += 1
            self._waiting[self._number] = group
            while len(self._waiting) > MAX_GROUPS:
                self._waiting.popitem(last=False)
            while self._threads < math.ceil(self._at_once / max(1, len(completions))) + 1:
                self._threads += 1
                # They are daemons, so a trainer that ends within a batch doesn't wait for them.
                threading.Thread(target=self._work, name=f"early-{self._threads}", daemon=True).start()
        self._queue.put(group)

    def scores(
        self, reward: Reward, completions: Sequence[Completion], rows: Sequence[Row], params: Any, tools: Tools
    ) -> Scores:
        """Score a batch like workers.rewards.scoring.score, using early scores where there are any. `params` is
        ignored: groups scored now use the early reward's own parameters."""
        called_at = time.perf_counter()
        groups = [list(group) for _, group in groupby(range(len(rows)), key=lambda index: rows[index])]
        early_groups = [self._pop([completions[i] for i in group], [rows[i] for i in group]) for group in groups]
        for scoring in early_groups:
            if scoring is not None:
                scoring.done.wait()
        early_scores = [scoring.scores if scoring is not None else None for scoring in early_groups]
        late_indexes = [i for group, scores in zip(groups, early_scores, strict=True) if scores is None for i in group]
        parts = [(group, scores) for group, scores in zip(groups, early_scores, strict=True) if scores is not None]
        if late_indexes:
            late_scores = score(
                reward, [completions[i] for i in late_indexes], [rows[i] for i in late_indexes], self._params, tools
            )
            parts.append((late_indexes, late_scores))
        self.seconds = union(
            Span("", "", scoring.began, min(scoring.began + scoring.seconds, called_at) - scoring.began)
            for scoring in early_groups
            if scoring is not None and scoring.scores is not None and scoring.began < called_at
        )
        return merge_scores(parts, len(completions))

    def _pop(self, completions: list[Completion], rows: list[Row]) -> GroupScoring | None:
        with self._lock:
            waiting_groups = list(self._waiting.items())
        for number, group in waiting_groups:
            if group.completions == completions and group.rows == rows:
                with self._lock:
                    return self._waiting.pop(number, None)
        return None

    def _work(self) -> None:
        while True:
            group = self._queue.get()
            group.began = time.perf_counter()
            try:
                with self._doing(self._name):
                    group.scores = score(self._reward, group.completions, group.rows, self._params, self._tools)
            except Exception:  # in a thread: the group is scored again with the batch, which may raise
                traceback.print_exc()
            finally:
                group.seconds = time.perf_counter() - group.began
                group.done.set()


def merge_scores(parts: Iterable[tuple[Sequence[int], Scores]], count: int) -> Scores:
    """Merge scores of parts of a batch of `count` completions. `parts`: the indexes and scores of each part."""
    result = Scores([None] * count, [], [""] * count)
    for indexes, scores in parts:
        for index, value in zip(indexes, scores.values, strict=True):
            result.values[index] = value
        for index, note in zip(indexes, scores.notes, strict=False):
            result.notes[index] = note
        result.failures.extend(replace(failure, index=indexes[failure.index]) for failure in scores.failures)
    result.failures.sort(key=lambda failure: failure.index)
    return result


class ConcurrentRewards:
    """The run's early rewards, which get groups as soon as they are complete."""

    def __init__(self, run: RunSpec, tools: Tools, doing: Doing) -> None:
        self.ranks = ranks_scored_for(run)
        self._trained_on = {spec.name for spec in run.rewards}
        self._tools = tools
        self._doing = doing
        self._cores = max(1, len(os.sched_getaffinity(0)) * self.ranks // run.hardware.processes)
        self._rewards: list[tuple[EarlyReward, Split]] = []
        self._rows: OrderedDict[tuple[int, ...], int] = OrderedDict()

    def add(self, spec: RewardSpec, split: Split) -> EarlyReward | None:
        """Register a reward to begin early and return its scorer, or None if it doesn't wait, or is only for
        evaluations. `split`: converts a group's completions to what is scored, each with its row."""
        reward = LIBRARY[spec.function]
        if not waits(reward) or spec.name not in self._trained_on:
            return None
        params, at_once = dict(spec.params), self._cores
        limit = getattr(reward.build(spec.params), CONCURRENCY, None)
        if limit is not None:
            at_once = params[CONCURRENCY] = min(MAX_AT_ONCE, limit * self.ranks)
        early = EarlyReward(spec.name, reward, params, self._tools, doing=self._doing, at_once=at_once)
        self._rewards.append((early, split))
        return early

    def begin(self, completions: Sequence[Any], rows: Sequence[Row]) -> None:
        """Begin to score a complete group with all early rewards."""
        for early, split in self._rewards:
            parts, part_rows = split(completions, rows)
            if parts:  # none if the reward doesn't apply to the group's row
                early.begin(parts, part_rows)

    # --- groups of vLLM servers -----------------------------------------------------------------------------------

    def expect(self, prompts: Sequence[Sequence[int]], rows: Sequence[int]) -> None:
        """Remember the rows of prompts, given as token ids, that will be requested."""
        for prompt, row in zip(prompts, rows, strict=True):
            self._rows[tuple(prompt)] = row
            self._rows.move_to_end(tuple(prompt))
        while len(self._rows) > MAX_PROMPTS:
            self._rows.popitem(last=False)

    def watch(self, client: Any, group: GroupOf) -> None:
        """Wrap the client so that each group is requested separately and scored on arrival. `client`: TRL's client or
        its substitute, in the process that sends all requests."""

        def on_group(row: int, prompt: list[int], completions: list[list[int]]) -> None:
            self.begin(*group(row, prompt, completions))

        if hasattr(client, "clients"):  # a LoRA run
            client.complete = self._by_group(client.complete, on_group)
        else:
            client.generate = self._split_requests(client.generate, on_group)

    def _by_group(self, complete: Callable[..., Any], on_group: Callable[..., None]) -> Callable[..., Any]:
        def complete_by_group(prompts: list[list[int]], sampling: dict[str, Any]) -> Any:
            rows = self._rows_of(prompts)
            if rows is None:
                return complete(prompts, sampling)
            return complete(
                prompts,
                sampling,
                on_arrival=lambda number, group: on_group(rows[number], prompts[number], [ids for ids, _ in group]),
            )

        return complete_by_group

    def _split_requests(self, generate: Callable[..., Any], on_group: Callable[..., None]) -> Callable[..., Any]:
        def generate_by_group(prompts: list[list[int]], features: Any = None, **sampling: Any) -> dict[str, Any]:
            rows = self._rows_of(prompts) if features is None else None
            if rows is None:
                whole: dict[str, Any] = generate(prompts=prompts, features=features, **sampling)
                return whole

            def request(prompt: list[int]) -> Callable[[], dict[str, Any]]:
                return lambda: generate(prompts=[prompt], features=None, **sampling)

            parts = fanout.run_concurrently(
                [request(prompt) for prompt in prompts],
                on_arrival=lambda number, part: on_group(rows[number], prompts[number], part["completion_ids"]),
            )
            return {
                name: None if value is None else [item for part in parts for item in part[name]]
                for name, value in parts[0].items()
            }

        return generate_by_group

    def _rows_of(self, prompts: list[list[int]]) -> list[int] | None:
        """Return the prompts' rows, or None if one is unknown, as in evaluations."""
        rows = [self._rows.get(tuple(prompt)) for prompt in prompts]
        return None if None in rows else [row for row in rows if row is not None]


def ranks_scored_for(run: RunSpec) -> int:
    """Return how many ranks one rank scores for: all of them if only the first rank gets the servers' groups, else
    1."""
    return run.hardware.processes if run.rewards_beside and run.episodes is None else 1
