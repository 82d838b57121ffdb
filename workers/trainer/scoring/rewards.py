"""TRL reward functions from the run's reward specs and the library, and the tools they need."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from workers.contract.run import corpora
from workers.contract.run.episodes import PartSpec
from workers.contract.run.spec import AttemptSpec, RewardSpec
from workers.contract.wire.names import reward_time
from workers.environments.entry import Entry
from workers.environments.library import LIBRARY as ENTRIES
from workers.packages import interpreter
from workers.packages.interpreter import PackageMissing
from workers.rewards.advantages import mean
from workers.rewards.library import LIBRARY
from workers.rewards.reward import Completion, Cost, Reward, Scores
from workers.rewards.scoring import score
from workers.rewards.tools import Tools, Unavailable, no_corpora
from workers.rewards.turns import split
from workers.sandbox import selftest
from workers.sandbox.outcomes import Backend, SandboxUnavailable
from workers.sandbox.pool import Sandbox
from workers.trainer.configuration.spec import SpecError
from workers.trainer.data import Row, Rows, completion_text, turns
from workers.trainer.episodes.credit import spans
from workers.trainer.rollouts.beside import Beside, Score, scores_for
from workers.trainer.scoring import trlrewards
from workers.trainer.scoring.failures import Failures

RewardFunction = Callable[..., list[float | None]]
Doing = Callable[[str], AbstractContextManager[None]]
Together = Callable[..., Scores]
"""(what scores, as workers.rewards.score does, and its arguments) -> this rank's scores."""
TurnScores = dict[str, list[list[float | None]]]
"""Of the components that score each turn, by name: scores[completion of this rank][turn], of the last batch."""


def alone(scorer: Score, *batch: Any) -> Scores:
    return scorer(*batch)


@dataclass(frozen=True)
class Generated(Completion):
    """A completion as the trainer has it."""

    ids: Sequence[int] = ()
    """The ids of its tokens."""


class Batches:
    """The batch being scored, converted once for all rewards."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._of: Any = None
        self._made: tuple[list[Generated], list[Row]] = ([], [])

    def of(self, completions: list[Any], row: list[int], ids: Any) -> tuple[list[Generated], list[Row]]:
        if self._of is not completions:
            tokens = ids if ids is not None else [None] * len(completions)
            generated = [_generated(each, of) for each, of in zip(completions, tokens, strict=True)]
            by_id = {i: self._rows.by_id[i] for i in set(row)}
            self._made = generated, [by_id[i] for i in row]
            self._of = completions
        return self._made


@dataclass(frozen=True)
class RewardSet:
    """What a GRPOTrainer has of its rewards, by the names of its attributes."""

    reward_funcs: list[Any]
    reward_processing_classes: list[Any]
    reward_func_names: list[str]
    reward_weights: Any

    @classmethod
    def of(cls, trainer: Any, start: int, stop: int | None = None) -> RewardSet:
        return cls(**{field.name: getattr(trainer, field.name)[start:stop] for field in fields(cls)})

    def give_to(self, trainer: Any) -> None:
        for name, value in vars(self).items():
            setattr(trainer, name, value)


def tools_for(spec: AttemptSpec, folder: Path) -> Tools:
    """The tools of the run's rewards and environment; to be closed at the end. `folder`: the attempt's. Raises
    SpecError if something is missing."""
    run = spec.run
    backend = _backend(spec)
    share = max(1, len(os.sched_getaffinity(0)) * scores_for(run) // run.hardware.processes)
    tools = Tools(
        open_sandbox=lambda preload: Sandbox(backend or selftest.best(), preload=preload, parallel=share),
        open_package=lambda name: interpreter.open_sandbox(name, backend or selftest.best(), parallel=share),
        trainer=trlrewards.SCORERS,
        corpus=_corpora(spec, folder),
    )
    for reward in run.every_reward:
        if package := LIBRARY[reward.function].package:
            need_package(package, f"The reward {reward.name!r}")
        for entry in LIBRARY[reward.function].schema():
            if entry["widget"] == "secret":
                _look_for_endpoint(tools, f"Reward {reward.name!r}", str(reward.params.get(entry["name"], "")))
    _look_at_environment(spec, tools)
    return tools


def _corpora(spec: AttemptSpec, folder: Path) -> Callable[[str], Path]:
    episodes = spec.run.episodes
    paths = {one.title: corpora.path_in(folder, one.sha256) for one in episodes.corpora} if episodes else {}
    return lambda title: paths[title] if title in paths else no_corpora(title)


def need_package(package: str, who: str) -> None:
    """Build the interpreter of workers.packages if this host has none yet. Raises SpecError if it isn't there then."""
    try:
        interpreter.build()
    except PackageMissing as error:
        raise SpecError(f"{who} needs {package}. {error}") from None


def _look_at_environment(spec: AttemptSpec, tools: Tools) -> None:
    for part in spec.run.episodes.parts if spec.run.episodes else ():
        entry = ENTRIES.get(part.function)
        if entry is None:
            continue  # whoever opens it says so
        if entry.package:
            need_package(entry.package, f"The environment's part {part.name!r}")
        for held in entry.schema():
            if held["widget"] == "secret":
                _look_for_endpoint(tools, f"The environment's part {part.name!r}", str(part.params.get(held["name"])))


def functions(
    specs: Sequence[RewardSpec],
    rows: Rows,
    tools: Tools,
    failures: Failures,
    doing: Doing,
    *,
    turn_scores: TurnScores | None = None,
    together: Together = alone,
    beside: Beside | None = None,
) -> list[RewardFunction]:
    """One function per reward, in order. A reward model's is never called: TRL gets the model instead. `doing` is
    entered with the name of the reward that is being computed. `turn_scores` gets what components that score each turn
    gave. `together` scores what sees whole groups. `beside` may have scored groups already."""
    batches = Batches(rows)
    kept = {} if turn_scores is None else turn_scores
    return [_function(spec, batches, tools, failures, doing, kept, together, beside) for spec in specs]


def _function(
    spec: RewardSpec,
    batches: Batches,
    tools: Tools,
    failures: Failures,
    doing: Doing,
    turn_scores: TurnScores,
    together: Together,
    beside: Beside | None,
) -> RewardFunction:
    """Called by TRL with the columns of a batch. Its name labels the charts.

    A row on which the reward fails scores None, so that one odd completion doesn't end a day of training; the share of
    such rows is a metric.
    """
    reward = LIBRARY[spec.function]
    early = beside.add(spec, lambda completions, rows: _parts(spec, completions, rows)[1:]) if beside else None
    scorer: Score = early.scores if early else score
    if reward.compare or (early and beside and beside.ranks > 1):
        scorer = functools.partial(together, scorer)

    def scores(
        completions: list[Any],
        row: list[int],
        log_metric: Callable[[str, float], None],
        completion_ids: list[list[int]] | None = None,
        **_: Any,
    ) -> Any:
        generated, rows = batches.of(completions, row, completion_ids)
        begun = time.perf_counter()
        of_parts, every, their_rows = _parts(spec, generated, rows)
        with doing(spec.name):
            scored = scorer(reward, every, their_rows, spec.params, tools)
        log_metric(reward_time(spec.name), time.perf_counter() - begun + (early.seconds if early else 0.0))
        failures.note(spec.name, [row[place] for place in of_parts], scored.failures)
        log_metric(f"rewards/{spec.name}/failed", len(scored.failures) / max(len(every), 1))
        if not spec.per_turn:
            return scored.values
        values = iter(scored.values)
        turn_scores[spec.name] = [[next(values) for _ in range(of_parts.count(at))] for at in range(len(generated))]
        return [mean(of_turns) for of_turns in turn_scores[spec.name]]

    scores.__name__ = spec.name
    return scores


def _parts(
    spec: RewardSpec, generated: Sequence[Generated], rows: Sequence[Mapping[str, Any]]
) -> tuple[list[int], list[Completion], list[Mapping[str, Any]]]:
    """What is scored: the completions, or each of their turns. Of each the place of its completion, and its row."""
    parts = [(at, part) for at, one in enumerate(generated) for part in (_turns(one) if spec.per_turn else [one])]
    return [at for at, _ in parts], [part for _, part in parts], [rows[at] for at, _ in parts]


def _turns(completion: Generated) -> list[Completion]:
    """Its turns, each with its ids."""
    parts = split(completion)
    at = spans(completion.turns, len(completion.ids)) if len(parts) > 1 else []
    if len(at) != len(parts):
        return [completion] if len(parts) == 1 else parts
    return [
        Generated(part.text, part.turns, stop - start, completion.ids[start:stop])
        for part, (start, stop) in zip(parts, at, strict=True)
    ]


def generated(completions: Sequence[Any], ids: Sequence[Sequence[int]]) -> list[Generated]:
    """Completions as TRL has them."""
    return [_generated(completion, of) for completion, of in zip(completions, ids, strict=True)]


def _generated(completion: Any, ids: Sequence[int] | None) -> Generated:
    count = None if ids is None else len(ids)
    return Generated(completion_text(completion), tuple(turns(completion) or ()), count, ids or ())


def _backend(spec: AttemptSpec) -> Backend | None:
    """The sandbox backend of this host; None if no reward and no tool runs code."""
    running = next((one for one in spec.run.every_entry if _cost(one) is Cost.SANDBOX), None)
    if running is None:
        return None
    try:
        return selftest.best()
    except SandboxUnavailable as error:
        if spec.placement.unsandboxed:
            print(f"Code runs without a sandbox, as an admin allows on this host. {error}", flush=True)
            return Backend.BARE
        who = "The reward" if isinstance(running, RewardSpec) else "The tool"
        raise SpecError(
            f"{who} {running.name!r} runs code, and no sandbox holds on this host, where an admin hasn't allowed to go "
            f"without. {error}"
        ) from None


def _cost(one: RewardSpec | PartSpec) -> Cost | None:
    entry: Reward | Entry | None = (LIBRARY if isinstance(one, RewardSpec) else ENTRIES).get(one.function)
    return entry.cost if entry else None


def _look_for_endpoint(tools: Tools, who: str, name: str) -> None:
    try:
        tools.endpoint(name)
    except Unavailable as error:
        raise SpecError(f"{who}: {error}") from None
