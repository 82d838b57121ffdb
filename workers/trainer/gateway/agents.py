"""Rollouts that agents drive: a step's tasks go out, and their sessions come back."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from workers.contract.run import gateway
from workers.contract.run.episodes import EpisodeEnd
from workers.trainer.activity import Activity
from workers.trainer.episodes.episode import Episode
from workers.trainer.episodes.rollout import EVALUATED
from workers.trainer.gateway.branches import episode
from workers.trainer.gateway.endpoint import AgentEndpoint
from workers.trainer.gateway.engine import MainThread, PolicyServers
from workers.trainer.gateway.rollouts import Collected, GatewayRollouts, request_figures
from workers.trainer.gateway.sessions import AgentSession, AgentTask, Desk


class AgentRollouts(GatewayRollouts):
    """Hands out a task per completion, and collects the sessions of the agents."""

    poll_s = 0.5
    _evaluates = False

    def note(self, rows: Sequence[int], *, step: int) -> None:
        super().note(rows, step=step)
        self._evaluates = step == EVALUATED

    def open(self, endpoint: AgentEndpoint | None, engine: PolicyServers | MainThread, activity: Activity) -> None:
        super().open(endpoint, engine, activity)
        if endpoint is not None and isinstance(engine, MainThread):
            endpoint.desk.on_done = engine.wake

    def _collect(self, members: Sequence[tuple[int, Any]], trainer: Any) -> Collected | None:
        endpoint = self._endpoint
        assert endpoint is not None  # noqa: S101  # checked by the caller
        desk = endpoint.desk
        tasks = [AgentTask(self._rows[row], prompt, self._evaluates) for row, prompt in members]
        endpoint.latencies.clear()
        endpoint.run(desk.begin(tasks))
        waited = self._wait(trainer, desk.done.is_set, lambda began: _live_figures(desk, began), desk.done.wait)
        if not desk.done.is_set():
            return None
        sessions = [task.session for task in tasks if task.session is not None]
        return [self._episode(session) for session in sessions], {
            **request_figures(endpoint.latencies),
            gateway.WAITING: waited,
            gateway.GONE: float(desk.gone),
            gateway.DROPPED: float(sum(session.branches.dropped for session in sessions)),
            gateway.STALENESS: staleness(sessions, self._engine.version),
        }

    def _episode(self, session: AgentSession) -> Episode:
        task, branch = session.task, session.branches.longest()
        prompt_ids = self._conversing.prompt_ids(task.prompt)
        result = episode(branch, task.row, task.prompt, prompt_ids, filler=self._conversing.filler)
        result.seconds = session.seconds
        if session.reward is not None:
            result.add_reward(session.reward)
        if session.gone or branch is None:
            result.end = EpisodeEnd.GONE
        else:
            ended = result.ids[-1] in self._conversing.ends
            result.end = "length" if branch.full else "eos" if ended else "stop"
        return result


def staleness(sessions: Sequence[AgentSession], version: int) -> float:
    """Return the mean number of training steps between the policy that wrote an episode and `version`."""
    branches = [session.branches.longest() for session in sessions]
    ages = [version - min(branch.versions) for branch in branches if branch is not None and branch.versions]
    return sum(ages) / len(ages) if ages else 0.0


def _live_figures(desk: Desk, since: float) -> dict[str, float]:
    now = time.monotonic()
    quiet = 0.0 if desk.open_sessions else now - max(desk.heard_at, since)
    return {gateway.SESSIONS_OPEN: float(desk.open_sessions), gateway.WAITS: now - since, gateway.QUIET: quiet}
