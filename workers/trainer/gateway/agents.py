"""TRL's rollout_func for a run whose episodes agents drive: a step's tasks go out, and their sessions come back."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from accelerate.utils import broadcast_object_list, gather_object

from workers.contract.run import gateway
from workers.contract.run.episodes import EpisodeEnd
from workers.trainer.activity import Activity
from workers.trainer.configuration.spec import StoppedWaitingError
from workers.trainer.episodes import generation
from workers.trainer.episodes.episode import Episode
from workers.trainer.episodes.figures import percentile
from workers.trainer.episodes.rollout import EVALUATED
from workers.trainer.gateway.branches import episode
from workers.trainer.gateway.conversing import Conversing, branches_dropped
from workers.trainer.gateway.endpoint import Endpoint
from workers.trainer.gateway.engine import MainThread, Servers
from workers.trainer.gateway.sessions import Desk, Session, Task

LOOK_S = 0.5
"""How often the main thread looks whether a server has failed or a stop was asked for."""


class AgentRollouts:
    """Rank 0 has the endpoint; the others help to generate, where the trainer does, and get their share."""

    tools: Sequence[str] = ()

    def __init__(self, conversing: Conversing, rows: Mapping[int, Any], *, stop: Path) -> None:
        """`stop`: a file that is there when the run is to end."""
        self._conversing, self._rows, self._stop = conversing, rows, stop
        self._endpoint: Endpoint | None = None
        self._engine: Servers | MainThread = MainThread()
        self._row_ids: list[int] = []
        self._evaluates = False
        self._activity: Activity | None = None
        self.episodes: list[Episode] = []

    @property
    def context(self) -> int:
        return self._conversing.context

    def bound(self, context: int | None) -> None:
        self._conversing.context = min(self.context, context or self.context)

    def note(self, rows: Sequence[int], *, step: int) -> None:
        self._row_ids, self._evaluates = list(rows), step == EVALUATED

    def open(self, endpoint: Endpoint | None, engine: Servers | MainThread, activity: Activity) -> None:
        """`endpoint` None: another rank has it."""
        self._endpoint, self._engine, self._activity = endpoint, engine, activity
        if endpoint is not None and isinstance(engine, MainThread):
            endpoint.desk.on_done = engine.wake

    def close(self) -> None:
        if self._endpoint is not None:
            self._endpoint.close()

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, Any]:
        self._conversing.ends = frozenset(trainer.eos_token_ids)
        self._engine.version = trainer.state.global_step
        asked = list(zip(self._row_ids, prompts, strict=True))
        ranks, rank = trainer.accelerator.num_processes, trainer.accelerator.process_index
        every = gather_object(asked) if ranks > 1 else asked
        told: list[Any] = [None]
        if self._endpoint is not None:
            told = [self._played(every, trainer)]
        else:
            self._help(trainer)
        if ranks > 1:
            broadcast_object_list(told, from_process=0)
        if told[0] is None:
            raise StoppedWaitingError
        episodes, figures = told[0]
        start = rank * len(asked)
        self.episodes = episodes[start : start + len(asked)]
        metrics = trainer._metrics["train" if trainer.model.training else "eval"]
        for name, value in figures.items():
            metrics[name].append(value)
        return as_trl(self.episodes)

    def _help(self, trainer: Any) -> None:
        """Another rank's part: shares of what rank 0 is asked, until it says that the step is over."""
        if isinstance(self._engine, MainThread):
            while goes_on(trainer, True):
                generation.generate(trainer, [])

    def _played(self, asked: Sequence[tuple[int, Any]], trainer: Any) -> tuple[list[Episode], dict[str, float]] | None:
        """None: a stop was asked for before all sessions had ended."""
        endpoint, activity = self._endpoint, self._activity
        assert endpoint is not None and activity is not None  # noqa: S101, PT018  # asked by the caller
        began = time.monotonic()
        tasks = [Task(self._rows[row], prompt, self._evaluates) for row, prompt in asked]
        endpoint.latencies.clear()
        endpoint.run(endpoint.desk.begin(tasks))
        with activity.waiting(lambda: _now(endpoint.desk, began)) as beat:
            worked = self._serve(endpoint, trainer, beat)
        if not endpoint.desk.done.is_set():
            return None
        waited = max(time.monotonic() - began - worked, 0.0)
        sessions = [task.session for task in tasks if task.session is not None]
        episodes = [self._episode(session) for session in sessions]
        latencies = list(endpoint.latencies)
        return episodes, {
            gateway.REQUESTS: float(len(latencies)),
            gateway.LATENCY_P95: percentile(latencies, 95) if latencies else 0.0,
            gateway.WAITING: waited,
            gateway.GONE: float(endpoint.desk.gone),
            gateway.DROPPED: float(sum(branches_dropped(session.branches) for session in sessions)),
            gateway.STALENESS: staleness(sessions, self._engine.version),
        }

    def _serve(self, endpoint: Endpoint, trainer: Any, beat: Callable[[], None]) -> float:
        """Until all sessions have ended or a stop is asked for. Returns the seconds in which the main thread
        generated."""
        desk, worked = endpoint.desk, 0.0
        while not desk.done.is_set() and not self._stop.exists():
            beat()
            if isinstance(self._engine, MainThread):
                batch = self._engine.batch(LOOK_S)
                if batch:
                    began = time.monotonic()
                    goes_on(trainer, True)
                    self._engine.generate(trainer, batch)
                    worked += time.monotonic() - began
            else:
                desk.done.wait(LOOK_S)
            if self._engine.failure is not None:
                raise self._engine.failure
        if isinstance(self._engine, MainThread):
            goes_on(trainer, False)
        return worked

    def _episode(self, session: Session) -> Episode:
        task, branch = session.task, session.branches.longest()
        prompt_ids = self._conversing.prompt_ids(task.prompt)
        made = episode(branch, task.row, task.prompt, prompt_ids, filler=self._conversing.filler)
        made.seconds = session.seconds
        if session.reward is not None:
            reward = {"role": "user", "content": "", "tokens": 0, "reward": session.reward}
            made.turns[-1].answers.append(reward)
        if session.gone or branch is None:
            made.end = EpisodeEnd.GONE
        else:
            ended = made.ids[-1] in self._conversing.ends
            made.end = "length" if branch.full else "eos" if ended else "stop"
        return made


def as_trl(episodes: Sequence[Episode]) -> dict[str, Any]:
    has_logprobs = all(one.logprobs for one in episodes)
    return {
        "prompt_ids": [one.prompt_ids for one in episodes],
        "completion_ids": [one.ids for one in episodes],
        "logprobs": [one.logprobs for one in episodes] if has_logprobs else None,
        "env_mask": [one.own for one in episodes],
    }


def staleness(sessions: Sequence[Session], version: int) -> float:
    """Mean number of training steps between the policy that wrote an episode and now."""
    branches = [session.branches.longest() for session in sessions]
    ages = [version - min(branch.versions) for branch in branches if branch is not None and branch.versions]
    return sum(ages) / len(ages) if ages else 0.0


def _now(desk: Desk, since: float) -> dict[str, float]:
    now = time.monotonic()
    quiet = 0.0 if desk.open_sessions else now - max(desk.heard_at, since)
    return {gateway.SESSIONS_OPEN: float(desk.open_sessions), gateway.WAITS: now - since, gateway.QUIET: quiet}


def goes_on(trainer: Any, more: bool) -> bool:
    """Rank 0 tells the others whether there is something to generate."""
    if trainer.accelerator.num_processes == 1:
        return more
    told = [more]
    broadcast_object_list(told, from_process=0)
    return bool(told[0])
