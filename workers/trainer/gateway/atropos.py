"""TRL's rollout_func for a run that Atropos' environments feed: batches of scored groups, in place of the dataset's."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from accelerate.utils import broadcast_object_list, gather_object

from workers.contract.run import gateway
from workers.contract.run.episodes import GatewaySpec
from workers.trainer.activity import Activity
from workers.trainer.configuration.spec import StoppedWaitingError
from workers.trainer.episodes import generation
from workers.trainer.episodes.episode import Episode
from workers.trainer.episodes.figures import percentile
from workers.trainer.gateway import scored
from workers.trainer.gateway.agents import as_trl, goes_on
from workers.trainer.gateway.conversing import Conversing
from workers.trainer.gateway.endpoint import Endpoint
from workers.trainer.gateway.engine import MainThread, Servers
from workers.trainer.gateway.run_api import Group, RunApi
from workers.trainer.gateway.scored import Scored
from workers.trainer.gateway.shim import Shim

LOOK_S = 0.1
"""Between two looks for a batch."""


class AtroposRollouts:
    tools: Sequence[str] = ()

    def __init__(
        self, conversing: Conversing, rows: Mapping[int, Any], *, stop: Path, settings: GatewaySpec, run_id: str
    ) -> None:
        self._conversing, self._rows, self._stop = conversing, rows, stop
        self._settings, self._run_id = settings, run_id
        self._endpoint: Endpoint | None = None
        self._engine: Servers | MainThread = MainThread()
        self._api: RunApi | None = None
        self._shim: Shim | None = None
        self._activity: Activity | None = None
        self._registered = False
        self._row_ids: list[int] = []
        self.episodes: list[Episode] = []

    @property
    def context(self) -> int:
        return self._conversing.context

    def bound(self, context: int | None) -> None:
        self._conversing.context = min(self.context, context or self.context)

    def note(self, rows: Sequence[int], *, step: int) -> None:
        self._row_ids = list(rows)

    def open(
        self,
        endpoint: Endpoint | None,
        engine: Servers | MainThread,
        activity: Activity,
        shim: Shim | None = None,
        api: RunApi | None = None,
    ) -> None:
        """Without endpoint, shim and API: another rank has them."""
        self._endpoint, self._engine, self._activity, self._shim, self._api = endpoint, engine, activity, shim, api

    def close(self) -> None:
        if self._endpoint is not None:
            self._endpoint.close()
        if self._api is not None:
            self._api.close()

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, Any]:
        self._conversing.ends = frozenset(trainer.eos_token_ids)
        self._engine.version = trainer.state.global_step
        ranks, rank = trainer.accelerator.num_processes, trainer.accelerator.process_index
        every = gather_object(self._row_ids) if ranks > 1 else self._row_ids
        told: list[Any] = [None]
        if self._api is not None:
            told = [self._fetched(every, trainer)]
        else:
            self._help(trainer)
        if ranks > 1:
            broadcast_object_list(told, from_process=0)
        if told[0] is None:
            raise StoppedWaitingError
        found, figures = told[0]
        own = found[rank * len(prompts) : (rank + 1) * len(prompts)]
        self.episodes = [one.episode for one in own]
        for one in own:
            one.episode.given = one.advantages
            if not trainer.use_vllm:
                one.episode.logprobs = []
        metrics = trainer._metrics["train" if trainer.model.training else "eval"]
        for name, value in figures.items():
            metrics[name].append(value)
        return as_trl(self.episodes)

    def _help(self, trainer: Any) -> None:
        if isinstance(self._engine, MainThread):
            while goes_on(trainer, True):
                generation.generate(trainer, [])

    def _fetched(self, rows: Sequence[int], trainer: Any) -> tuple[list[Scored], dict[str, float]] | None:
        """None: a stop was asked for before there was a batch."""
        assert self._api is not None and self._shim is not None  # noqa: S101, PT018  # asked by the caller
        assert self._activity is not None  # noqa: S101
        if not self._registered:
            self._register(self._api, trainer, len(rows))
        began, worked, shim = time.monotonic(), 0.0, self._shim
        with self._activity.waiting(lambda: _now(shim, began)) as beat:
            while (batch := self._api.batch()) is None and not self._stop.exists():
                beat()
                worked += self._serve(trainer)
                if self._engine.failure is not None:
                    raise self._engine.failure
        waited = max(time.monotonic() - began - worked, 0.0)
        if isinstance(self._engine, MainThread):
            goes_on(trainer, False)
        if batch is None:
            return None
        found = self._episodes(batch, rows, trainer)
        latencies, self._shim.latencies = self._shim.latencies, []
        return found, {
            gateway.REQUESTS: float(len(latencies)),
            gateway.LATENCY_P95: percentile(latencies, 95) if latencies else 0.0,
            gateway.WAITING: waited,
            **_staleness(found, self._engine.version),
        }

    def _register(self, api: RunApi, trainer: Any, size: int) -> None:
        arguments = trainer.args
        api.register(
            wandb_group=self._run_id,
            wandb_project="",
            batch_size=size,
            max_token_len=self._settings.max_token_len,
            checkpoint_dir=str(arguments.output_dir),
            save_checkpoint_interval=int(arguments.save_steps),
            starting_step=trainer.state.global_step,
            num_steps=trainer.state.max_steps,
        )
        self._registered = True

    def _serve(self, trainer: Any) -> float:
        """Answer environments for a moment. Returns the seconds in which the main thread generated."""
        if not isinstance(self._engine, MainThread):
            time.sleep(LOOK_S)
            return 0.0
        batch = self._engine.batch(LOOK_S)
        if not batch:
            return 0.0
        began = time.monotonic()
        goes_on(trainer, True)
        self._engine.generate(trainer, batch)
        return time.monotonic() - began

    def _episodes(self, batch: Sequence[Group], rows: Sequence[int], trainer: Any) -> list[Scored]:
        assert self._shim is not None  # noqa: S101
        return scored.episodes(
            batch,
            [self._rows[row] for row in rows],
            size=trainer.num_generations,
            stamps=self._shim.stamps,
            decode=self._conversing.decode,
            filler=self._conversing.filler,
            ends=self._conversing.ends,
        )


def _now(shim: Shim, since: float) -> dict[str, float]:
    now = time.monotonic()
    quiet = 0.0 if shim.under_way else now - max(shim.heard_at, since)
    return {gateway.WAITS: now - since, gateway.QUIET: quiet}


def _staleness(found: Sequence[Scored], version: int) -> dict[str, float]:
    versions = [one for each in found for one in each.versions]
    known = [version - one for one in versions if one is not None]
    figures = {gateway.UNKNOWN: 1.0 - len(known) / len(versions) if versions else 0.0}
    return figures | ({gateway.STALENESS: sum(known) / len(known)} if known else {})
