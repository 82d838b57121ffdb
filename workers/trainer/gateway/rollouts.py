"""TRL's rollout_func for episodes driven by the user's programs: what agents and Atropos have in common."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from accelerate.utils import broadcast_object_list, gather_object

from workers.contract.run import gateway
from workers.trainer.activity import RankActivity
from workers.trainer.configuration.spec import StoppedWaitingError
from workers.trainer.episodes import generation
from workers.trainer.episodes.episode import Episode, Source, as_trl
from workers.trainer.episodes.figures import percentile
from workers.trainer.gateway.conversing import Conversing
from workers.trainer.gateway.endpoint import AgentEndpoint
from workers.trainer.gateway.engine import MainThread, PolicyEngine

Collected = tuple[list[Episode], dict[str, float]]


class GatewayRollouts(Source):
    """Rollouts driven by external programs. Rank 0 owns the endpoint; the other ranks generate together with it, if the
    trainer generates, and get their share of the episodes."""

    poll_s: float
    """Seconds between two checks for a stop, a failed server, or the end of the step."""

    def __init__(self, conversing: Conversing, rows: Mapping[int, Any], *, stop: Path) -> None:
        """Create the rollouts. `stop`: a file that exists once the run must end."""
        super().__init__(rows, context=conversing.context)
        self._conversing, self._stop = conversing, stop
        self._endpoint: AgentEndpoint | None = None
        self._engine: PolicyEngine = MainThread()
        self._activity: RankActivity | None = None

    def limit_context(self, context: int | None) -> None:
        super().limit_context(context)
        self._conversing.context = self.context

    def open(self, endpoint: AgentEndpoint | None, engine: PolicyEngine, activity: RankActivity) -> None:
        """Set the endpoint (None on ranks other than 0), engine and activity record to use."""
        self._endpoint, self._engine, self._activity = endpoint, engine, activity

    def close(self) -> None:
        if self._endpoint is not None:
            self._endpoint.close()

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, Any]:
        self._conversing.ends = frozenset(trainer.eos_token_ids)
        self._engine.version = trainer.state.global_step
        own_members = list(zip(self._row_ids, prompts, strict=True))
        ranks, rank = trainer.accelerator.num_processes, trainer.accelerator.process_index
        members = gather_object(own_members) if ranks > 1 else own_members
        collected: list[Collected | None] = [None]
        if self._endpoint is not None:
            collected = [self._collect(members, trainer)]
        elif isinstance(self._engine, MainThread):
            while broadcast_decision(trainer, True):
                generation.generate(trainer, [])
        if ranks > 1:
            broadcast_object_list(collected, from_process=0)
        if collected[0] is None:
            raise StoppedWaitingError
        episodes, step_metrics = collected[0]
        self.episodes = episodes[rank * len(own_members) :][: len(own_members)]
        metrics = trainer._metrics["train" if trainer.model.training else "eval"]
        for name, value in step_metrics.items():
            metrics[name].append(value)
        return as_trl(self.episodes)

    def _collect(self, members: Sequence[tuple[int, Any]], trainer: Any) -> Collected | None:
        """Collect the episodes of `members` (row, prompt) on rank 0; return None if a stop came first."""
        raise NotImplementedError

    def _wait(
        self,
        trainer: Any,
        is_finished: Callable[[], bool],
        live_metrics: Callable[[float], dict[str, float]],
        pause: Callable[[float], object],
    ) -> float:
        """Generate for the programs until `is_finished` or a stop; return the seconds spent waiting for them.
        `live_metrics`: takes the time at which the wait began, and returns metrics during it. `pause`: waits for at
        most the given seconds."""
        assert self._activity is not None  # noqa: S101  # `open` has set it
        began, generation_s = time.monotonic(), 0.0
        with self._activity.waiting(lambda: live_metrics(began)) as beat:
            while not is_finished() and not self._stop.exists():
                beat()
                if not isinstance(self._engine, MainThread):
                    pause(self.poll_s)
                elif batch := self._engine.batch(self.poll_s):
                    started_at = time.monotonic()
                    broadcast_decision(trainer, True)
                    self._engine.generate(trainer, batch)
                    generation_s += time.monotonic() - started_at
                if self._engine.failure is not None:
                    raise self._engine.failure
        if isinstance(self._engine, MainThread):
            broadcast_decision(trainer, False)
        return max(time.monotonic() - began - generation_s, 0.0)


def wait_metrics(since: float, heard_at: float, *, is_active: bool) -> dict[str, float]:
    """Return metrics of how long the trainer has been waiting, and how long ago it last received anything."""
    now = time.monotonic()
    return {gateway.WAITS_S: now - since, gateway.QUIET_S: 0.0 if is_active else now - max(heard_at, since)}


def request_metrics(latencies: Sequence[float]) -> dict[str, float]:
    p95 = percentile(latencies, 95) if latencies else 0.0
    return {gateway.REQUESTS: float(len(latencies)), gateway.LATENCY_P95: p95}


def broadcast_decision(trainer: Any, decision: bool) -> bool:
    """Broadcast rank 0's decision on whether all ranks generate once more, and return it. The `decision` of other ranks
    is ignored."""
    if trainer.accelerator.num_processes == 1:
        return decision
    flag = [decision]
    broadcast_object_list(flag, from_process=0)
    return bool(flag[0])
