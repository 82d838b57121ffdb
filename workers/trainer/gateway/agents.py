"""Rollouts driven by agents: a step's tasks are handed out, and their sessions come back."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from workers.contract.run import gateway
from workers.contract.run.episodes import EpisodeEnd
from workers.trainer.activity import RankActivity
from workers.trainer.episodes.episode import Episode
from workers.trainer.episodes.rollout import EVALUATION_STEP
from workers.trainer.gateway.branches import episode
from workers.trainer.gateway.endpoint import AgentEndpoint
from workers.trainer.gateway.engine import MainThread, PolicyEngine
from workers.trainer.gateway.rollouts import Collected, GatewayRollouts, request_metrics, wait_metrics
from workers.trainer.gateway.sessions import AgentSession, AgentTask, SessionManager


class AgentRollouts(GatewayRollouts):
    poll_s = 0.5

    def open(self, endpoint: AgentEndpoint | None, engine: PolicyEngine, activity: RankActivity) -> None:
        super().open(endpoint, engine, activity)
        if endpoint is not None and isinstance(engine, MainThread):
            endpoint.manager.on_done = engine.wake

    def _collect(self, members: Sequence[tuple[int, Any]], trainer: Any) -> Collected | None:
        endpoint = self._endpoint
        assert endpoint is not None  # noqa: S101  # checked by the caller
        manager = endpoint.manager
        tasks = [AgentTask(self._rows[row], prompt, self._step == EVALUATION_STEP) for row, prompt in members]
        endpoint.latencies.clear()
        endpoint.run(manager.begin(tasks))
        waited_s = self._wait(
            trainer, manager.done.is_set, lambda began: _live_metrics(manager, began), manager.done.wait
        )
        if not manager.done.is_set():
            return None
        sessions = [task.session for task in tasks if task.session is not None]
        branches = [session.branches.longest() for session in sessions]
        # Age in training steps of the policy that generated each episode.
        ages = [self._engine.version - min(branch.versions) for branch in branches if branch and branch.versions]
        return [self._episode(session) for session in sessions], {
            **request_metrics(endpoint.latencies),
            gateway.WAITING: waited_s,
            gateway.GONE: float(manager.gone),
            gateway.BRANCHES_DROPPED: float(sum(session.branches.dropped for session in sessions)),
            gateway.STALENESS: fmean(ages) if ages else 0.0,
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
            result.end = "length" if branch.full else "eos" if self._conversing.has_ended(result.ids) else "stop"
        return result


def _live_metrics(manager: SessionManager, since: float) -> dict[str, float]:
    waits = wait_metrics(since, manager.heard_at, is_active=bool(manager.open_sessions))
    return {gateway.SESSIONS_OPEN: float(manager.open_sessions), **waits}
