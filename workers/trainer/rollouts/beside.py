"""Rewards beside generation: a group is scored as soon as it is complete, while others are still generated.

Only rewards that wait for something else than this process, a judge or a sandbox, and score a group without the rest of
the batch. Nothing depends on it but time: when the batch is scored as ever, what is there for exactly these completions
is taken, and everything else is scored then.
"""

from __future__ import annotations

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
from workers.rewards.entries.judge_client import MOST_AT_ONCE
from workers.rewards.library import LIBRARY
from workers.rewards.reward import Completion, Reward, Row, Scores, waits
from workers.rewards.scoring import score
from workers.rewards.tools import Tools
from workers.trainer.rollouts import fanout

MOST_WAITING = 4_096
"""Groups whose scores nobody has asked for; those that were never trained on go in the end."""
MOST_PROMPTS = 16_384
"""Prompts of which it is known whose they are."""
CONCURRENCY = "concurrency"
"""The parameter of rewards that bound their own requests."""
Score = Callable[..., Scores]
"""As workers.rewards.score."""
Doing = Callable[[str], AbstractContextManager[None]]
Parted = Callable[[Sequence[Any], Sequence[Row]], tuple[list[Completion], list[Row]]]
GroupOf = Callable[[int, list[int], list[list[int]]], tuple[Sequence[Any], Sequence[Row]]]
"""(row, prompt ids, ids of the completions) -> the group's completions, each with its row; in the thread that waits."""


@dataclass
class Scoring:
    """Of one group by one reward."""

    completions: list[Completion]
    rows: list[Row]
    scores: Scores | None = None
    """None: not there yet, or it could not be scored."""
    began: float = 0.0
    seconds: float = 0.0
    over: threading.Event = field(default_factory=threading.Event)


class Early:
    """One reward's scores of groups, computed by threads of its own that live as long as the process."""

    def __init__(
        self, name: str, reward: Reward, params: Mapping[str, Any], tools: Tools, *, doing: Doing, at_once: int
    ) -> None:
        """`doing` is entered with the name by these threads around each group. `at_once`: of completions; the reward
        bounds its own requests or processes, and these threads only keep it busy."""
        self._name = name
        self._reward = reward
        self._params = params
        self._tools = tools
        self._doing = doing
        self._at_once = at_once
        self._queue: queue.SimpleQueue[Scoring] = queue.SimpleQueue()
        self._threads = 0
        self._lock = threading.Lock()
        """A batch that is generated ahead completes its groups while the one before is scored."""
        self._waiting: OrderedDict[int, Scoring] = OrderedDict()
        self._number = 0
        self.seconds = 0.0
        """That the reward worked on the last batch before somebody waited for it."""

    def begin(self, completions: Sequence[Completion], rows: Sequence[Row]) -> None:
        """A group is complete."""
        scoring = Scoring(list(completions), list(rows))
        with self._lock:
            self._number += 1
            self._waiting[self._number] = scoring
            while len(self._waiting) > MOST_WAITING:
                self._waiting.popitem(last=False)
            while self._threads < math.ceil(self._at_once / max(1, len(completions))) + 1:
                self._threads += 1
                # Daemons: a trainer that ends in mid-batch doesn't wait for them.
                threading.Thread(target=self._work, name=f"early-{self._threads}", daemon=True).start()
        self._queue.put(scoring)

    def scores(
        self, reward: Reward, completions: Sequence[Completion], rows: Sequence[Row], params: Any, tools: Tools
    ) -> Scores:
        """As workers.rewards.score, with what is there already. `params`: those of the spec; what is late is scored
        with its own."""
        asked = time.perf_counter()
        groups = [list(of_row) for _, of_row in groupby(range(len(rows)), key=lambda place: rows[place])]
        found = [self._take([completions[i] for i in group], [rows[i] for i in group]) for group in groups]
        for one in found:
            if one is not None:
                one.over.wait()
        there = [one.scores if one is not None else None for one in found]
        rest = [i for group, scores in zip(groups, there, strict=True) if scores is None for i in group]
        late = (
            score(reward, [completions[i] for i in rest], [rows[i] for i in rest], self._params, tools)
            if rest
            else None
        )
        self.seconds = union(
            Span("", "", one.began, min(one.began + one.seconds, asked) - one.began)
            for one in found
            if one is not None and one.scores is not None and one.began < asked
        )
        parts = [(group, scores) for group, scores in zip(groups, there, strict=True) if scores is not None]
        return merged([*parts, (rest, late)] if late is not None else parts, len(completions))

    def _take(self, completions: list[Completion], rows: list[Row]) -> Scoring | None:
        with self._lock:
            waiting = list(self._waiting.items())
        for number, one in waiting:
            if one.completions == completions and one.rows == rows:
                with self._lock:
                    return self._waiting.pop(number, None)
        return None

    def _work(self) -> None:
        while True:
            one = self._queue.get()
            one.began = time.perf_counter()
            try:
                with self._doing(self._name):
                    one.scores = score(self._reward, one.completions, one.rows, self._params, self._tools)
            except Exception:  # as a loop's border: it is scored again with the batch, which may raise
                traceback.print_exc()
            finally:
                one.seconds = time.perf_counter() - one.began
                one.over.set()


def merged(parts: Iterable[tuple[Sequence[int], Scores]], count: int) -> Scores:
    """The scores of a batch of `count` from those of its parts, each with its places in the batch."""
    together = Scores([None] * count, [], [""] * count)
    for places, scores in parts:
        for at, value in zip(places, scores.values, strict=True):
            together.values[at] = value
        for at, note in zip(places, scores.notes, strict=False):
            together.notes[at] = note
        together.failures.extend(replace(one, index=places[one.index]) for one in scores.failures)
    together.failures.sort(key=lambda one: one.index)
    return together


class Beside:
    """What a run's groups are given to as they are completed."""

    def __init__(self, run: RunSpec, tools: Tools, doing: Doing) -> None:
        self.ranks = scores_for(run)
        self._trained_on = {spec.name for spec in run.rewards}
        self._tools = tools
        self._doing = doing
        self._cores = max(1, len(os.sched_getaffinity(0)) * self.ranks // run.hardware.processes)
        self._rewards: list[tuple[Early, Parted]] = []
        self._rows: OrderedDict[tuple[int, ...], int] = OrderedDict()
        self._group: GroupOf | None = None

    def add(self, spec: RewardSpec, parted: Parted) -> Early | None:
        """None for a reward that doesn't wait, or that only evaluations have. `parted`: what of a group's completions
        is scored, each with its row."""
        reward = LIBRARY[spec.function]
        if not waits(reward) or spec.name not in self._trained_on:
            return None
        params, at_once = dict(spec.params), self._cores
        own = getattr(reward.build(spec.params), CONCURRENCY, None)
        if own is not None:
            at_once = params[CONCURRENCY] = min(MOST_AT_ONCE, own * self.ranks)
        early = Early(spec.name, reward, params, self._tools, doing=self._doing, at_once=at_once)
        self._rewards.append((early, parted))
        return early

    def begin(self, completions: Sequence[Any], rows: Sequence[Row]) -> None:
        """A group is complete."""
        for early, parted in self._rewards:
            early.begin(*parted(completions, rows))

    # --- groups of vLLM servers -----------------------------------------------------------------------------------

    def know(self, prompts: Sequence[Sequence[int]], rows: Sequence[int]) -> None:
        """The rows of prompts that will be asked for, by the ids of their tokens."""
        for prompt, row in zip(prompts, rows, strict=True):
            self._rows[tuple(prompt)] = row
            self._rows.move_to_end(tuple(prompt))
        while len(self._rows) > MOST_PROMPTS:
            self._rows.popitem(last=False)

    def watch(self, client: Any, group: GroupOf) -> None:
        """Ask for each group in a request of its own. `client`: TRL's, or the one in its place, of the process that
        asks for all."""
        self._group = group
        if hasattr(client, "clients"):  # of a LoRA run
            client.complete = self._by_group(client.complete)
        else:
            client.generate = self._split(client.generate)

    def _by_group(self, complete: Callable[..., Any]) -> Callable[..., Any]:
        def completed(prompts: list[list[int]], sampling: dict[str, Any]) -> Any:
            rows = self._rows_of(prompts)
            if rows is None:
                return complete(prompts, sampling)
            return complete(
                prompts,
                sampling,
                done=lambda number, group: self._arrived(rows[number], prompts[number], [ids for ids, _ in group]),
            )

        return completed

    def _split(self, generate: Callable[..., Any]) -> Callable[..., Any]:
        def generated(prompts: list[list[int]], features: Any = None, **sampling: Any) -> dict[str, Any]:
            rows = self._rows_of(prompts) if features is None else None
            if rows is None:
                whole: dict[str, Any] = generate(prompts=prompts, features=features, **sampling)
                return whole

            def ask(prompt: list[int]) -> Callable[[], dict[str, Any]]:
                return lambda: generate(prompts=[prompt], features=None, **sampling)

            parts = fanout.together(
                [ask(prompt) for prompt in prompts],
                done=lambda number, part: self._arrived(rows[number], prompts[number], part["completion_ids"]),
            )
            names = parts[0]
            return {
                name: None if names[name] is None else [one for part in parts for one in part[name]] for name in names
            }

        return generated

    def _rows_of(self, prompts: list[list[int]]) -> list[int] | None:
        """None if one is not known: an evaluation's."""
        rows = [self._rows.get(tuple(prompt)) for prompt in prompts]
        return None if None in rows else [row for row in rows if row is not None]

    def _arrived(self, row: int, prompt: list[int], ids: list[list[int]]) -> None:
        assert self._group is not None  # noqa: S101  # `watch` has set it
        self.begin(*self._group(row, prompt, ids))


def scores_for(run: RunSpec) -> int:
    """For how many ranks one scores: the first, which alone is given the groups of vLLM servers, for all of them."""
    return run.hardware.processes if run.rewards_beside and run.episodes is None else 1
