"""TRL reward functions, created from the run's reward specs and the library, and the tools that they need."""

import functools
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from workers.contract.run import corpora
from workers.contract.run.episodes import PartSpec
from workers.contract.run.mixing import SourceSpec
from workers.contract.run.row_names import applies_to_row, rows_metric
from workers.contract.run.spec import AttemptSpec, RewardSpec, RunSpec
from workers.contract.wire.names import reward_time
from workers.environments.entry import Entry
from workers.environments.library import LIBRARY as ENTRIES
from workers.packages import interpreter
from workers.packages.interpreter import PackageMissing
from workers.rewards.advantages import mean
from workers.rewards.library import LIBRARY
from workers.rewards.reward import Completion, Cost, Reward, Scores, turns_of
from workers.rewards.scoring import score
from workers.rewards.tools import Tools, Unavailable, no_corpora
from workers.sandbox import selftest
from workers.sandbox.outcomes import Backend, SandboxUnavailable
from workers.sandbox.pool import Sandbox
from workers.trainer.configuration.spec import SpecError
from workers.trainer.data import Row, Rows, completion_text, turns
from workers.trainer.episodes.credit import spans
from workers.trainer.scoring import trl_rewards
from workers.trainer.scoring.concurrent_rewards import ConcurrentRewards, Doing, Score, ranks_scored_for
from workers.trainer.scoring.failures import Failures

RewardFunction = Callable[..., list[float | None]]
Together = Callable[..., Scores]
"""Function from (scorer, *its arguments) to this rank's scores; a scorer has the signature of
workers.rewards.scoring.score."""
TurnScores = dict[str, list[list[float | None]]]
"""Scores of the last batch as scores[completion of this rank][turn], by component that scores turns."""


def score_alone(scorer: Score, *batch: Any) -> Scores:
    """Score this rank's completions without involving other ranks."""
    return scorer(*batch)


@dataclass(frozen=True)
class GeneratedCompletion(Completion):
    ids: Sequence[int] = ()


class Batches:
    """Converter of the batch being scored, which is converted once for all rewards."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._source: Any = None
        self._converted: tuple[list[GeneratedCompletion], list[Row]] = ([], [])

    def of(self, completions: list[Any], row: list[int], ids: Any) -> tuple[list[GeneratedCompletion], list[Row]]:
        if self._source is not completions:
            by_id = {i: self._rows.by_id[i] for i in set(row)}
            tokens = ids if ids is not None else [None] * len(completions)
            self._converted = to_generated(completions, tokens), [by_id[i] for i in row]
            self._source = completions
        return self._converted


@dataclass(frozen=True)
class RewardSet:
    """A set of a GRPOTrainer's rewards; the fields are named after its attributes."""

    reward_funcs: list[Any]
    reward_processing_classes: list[Any]
    reward_func_names: list[str]
    reward_weights: Any

    @classmethod
    def of(cls, trainer: Any, start: int, stop: int | None = None) -> "RewardSet":
        return cls(**{entry.name: getattr(trainer, entry.name)[start:stop] for entry in fields(cls)})

    def install_in(self, trainer: Any) -> None:
        for name, value in vars(self).items():
            setattr(trainer, name, value)


def tools_for(spec: AttemptSpec, folder: Path) -> Tools:
    """Open and return the tools of the run's rewards and environment, which the caller closes. `folder`: the attempt's
    folder. Raises SpecError if something is missing."""
    run = spec.run
    backend = _backend(spec)
    share = max(1, len(os.sched_getaffinity(0)) * ranks_scored_for(run) // run.hardware.processes)
    episodes = run.episodes
    paths = {corpus.title: corpora.path_in(folder, corpus.sha256) for corpus in episodes.corpora} if episodes else {}
    tools = Tools(
        open_sandbox=lambda preload: Sandbox(backend or selftest.best(), preload=preload, parallel=share),
        open_package=lambda name: interpreter.open_sandbox(name, backend or selftest.best(), parallel=share),
        trainer=trl_rewards.SCORERS,
        corpus=lambda title: paths[title] if title in paths else no_corpora(title),
    )
    for part, entry in _entries(run):
        title = "The reward" if isinstance(part, RewardSpec) else "The environment's part"
        _check_needs(entry, part, f"{title} {part.name!r}", tools)
    return tools


def _entries(run: RunSpec) -> Iterator[tuple[RewardSpec | PartSpec, Reward | Entry]]:
    """Yield the run's rewards and environment parts that are in the libraries, with their entries."""
    for spec in run.every_entry:
        entry: Reward | Entry | None = (LIBRARY if isinstance(spec, RewardSpec) else ENTRIES).get(spec.function)
        if entry is not None:
            yield spec, entry


def _check_needs(entry: Reward | Entry, spec: RewardSpec | PartSpec, name: str, tools: Tools) -> None:
    """Build the interpreter of workers.packages if the entry needs it. Raises SpecError if that fails or an endpoint is
    missing."""
    try:
        if entry.package:
            interpreter.build()
        for parameter in entry.schema():
            if parameter["widget"] == "secret":
                tools.endpoint(str(spec.params.get(parameter["name"], "")))
    except PackageMissing as error:
        raise SpecError(f"{name} needs {entry.package}. {error}") from None
    except Unavailable as error:
        raise SpecError(f"{name}: {error}") from None


@dataclass(frozen=True)
class RewardFunctions:
    rows: Rows
    tools: Tools
    failures: Failures
    doing: Doing
    """Function that takes a reward's name and returns the context in which that reward is computed."""
    turn_scores: TurnScores = field(default_factory=dict)
    """Per-turn scores by component, filled in during scoring."""
    together: Together = score_alone
    """Function that scores completions with rewards that compare whole groups."""
    early: ConcurrentRewards | None = None
    sources: Sequence[SourceSpec] = ()
    """The run's datasets, its own first, by whose names components may be limited to some rows."""

    def of(self, specs: Sequence[RewardSpec]) -> list[RewardFunction]:
        """Return one function per reward, in order. A reward model's function is never called, because TRL gets the
        model instead."""
        batches = Batches(self.rows)
        return [self._function(spec, batches) for spec in specs]

    def rows_of(self, spec: RewardSpec) -> Callable[[int], bool] | None:
        """Return a function that says whether a component applies to a row; None if it applies to all rows."""
        if not spec.applies_to:
            return None
        return lambda row: applies_to_row(spec, self.rows.by_id[row], self.sources)

    def _function(self, spec: RewardSpec, batches: Batches) -> RewardFunction:
        """Create the function that TRL calls with the columns of a batch. The function's name labels the charts. A row
        on which the reward fails gets the score None, so that one odd completion doesn't end a day of training; the
        share of such rows is a metric."""
        reward, early = LIBRARY[spec.function], self.early
        parts_of = functools.partial(_parts, spec, self.sources)
        early_reward = early.add(spec, lambda completions, rows: parts_of(completions, rows)[1:]) if early else None
        scorer: Score = early_reward.scores if early_reward else score
        if reward.compare or (early_reward and early and early.ranks > 1):
            scorer = functools.partial(self.together, scorer)

        def scores(
            completions: list[Any],
            row: list[int],
            log_metric: Callable[[str, float], None],
            completion_ids: list[list[int]] | None = None,
            **_: Any,
        ) -> Any:
            batch, rows = batches.of(completions, row, completion_ids)
            began = time.perf_counter()
            indexes, parts, part_rows = parts_of(batch, rows)
            with self.doing(spec.name):
                part_scores = scorer(reward, parts, part_rows, spec.params, self.tools)
            early_s = early_reward.seconds if early_reward else 0.0
            log_metric(reward_time(spec.name), time.perf_counter() - began + early_s)
            self.failures.note(spec.name, [row[index] for index in indexes], part_scores.failures)
            log_metric(f"rewards/{spec.name}/failed", len(part_scores.failures) / max(len(parts), 1))
            if spec.applies_to:
                log_metric(rows_metric(spec.name), len(set(indexes)) / max(len(batch), 1))
            return self._by_completion(spec, batch, indexes, part_scores.values)

        scores.__name__ = spec.name
        return scores

    def _by_completion(
        self,
        spec: RewardSpec,
        completions: Sequence[GeneratedCompletion],
        indexes: Sequence[int],
        values: Sequence[float | None],
    ) -> list[float | None]:
        """Return one score per completion from those of its parts, and keep the scores of its turns. Completions
        without parts, to whose rows the component doesn't apply, have none. `indexes`: the completion of each part."""
        by_completion: list[list[float | None]] = [[] for _ in completions]
        for index, value in zip(indexes, values, strict=True):
            by_completion[index].append(value)
        if not spec.per_turn:
            return [parts[0] if parts else None for parts in by_completion]
        self.turn_scores[spec.name] = [
            parts or [None] * len(_turns(completion))
            for parts, completion in zip(by_completion, completions, strict=True)
        ]
        return list(map(mean, by_completion))


def _parts(
    spec: RewardSpec,
    sources: Sequence[SourceSpec],
    completions: Sequence[GeneratedCompletion],
    rows: Sequence[Mapping[str, Any]],
) -> tuple[list[int], list[Completion], list[Mapping[str, Any]]]:
    """Split the completions to whose rows a component applies into the parts to score, whole completions or single
    turns. Return three lists: the completion index, the part and the row of each."""
    parts = [
        (index, part)
        for index, completion in enumerate(completions)
        if applies_to_row(spec, rows[index], sources)
        for part in (_turns(completion) if spec.per_turn else [completion])
    ]
    return [index for index, _ in parts], [part for _, part in parts], [rows[index] for index, _ in parts]


def _turns(completion: GeneratedCompletion) -> list[Completion]:
    parts = turns_of(completion)
    if len(parts) == 1:
        return [completion]
    turn_spans = spans(completion.turns, len(completion.ids))
    if len(turn_spans) != len(parts):
        return parts
    return [
        GeneratedCompletion(part.text, part.turns, stop - start, completion.ids[start:stop])
        for part, (start, stop) in zip(parts, turn_spans, strict=True)
    ]


def to_generated(completions: Sequence[Any], ids: Sequence[Sequence[int] | None]) -> list[GeneratedCompletion]:
    """Convert completions from TRL's form (strings or messages)."""
    return [
        GeneratedCompletion(
            completion_text(completion),
            tuple(turns(completion) or ()),
            None if tokens is None else len(tokens),
            tokens or (),
        )
        for completion, tokens in zip(completions, ids, strict=True)
    ]


def _backend(spec: AttemptSpec) -> Backend | None:
    """Return this host's best sandbox backend: BARE if none works and an admin allows that, None if the run executes no
    code. Raises SpecError if none works and BARE isn't allowed."""
    code_part = next((part for part, entry in _entries(spec.run) if entry.cost is Cost.SANDBOX), None)
    if code_part is None:
        return None
    try:
        return selftest.best()
    except SandboxUnavailable as error:
        if spec.placement.unsandboxed:
            print(f"Code runs without a sandbox, as an admin allows on this host. {error}", flush=True)
            return Backend.BARE
        title = "The reward" if isinstance(code_part, RewardSpec) else "The tool"
        raise SpecError(
            f"{title} {code_part.name!r} runs code, but no sandbox works on this host, and an admin hasn't allowed "
            f"running code without one. {error}"
        ) from None
