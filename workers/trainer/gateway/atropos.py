"""Rollouts from Atropos' environments: batches of scored groups instead of the dataset's prompts."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from workers.contract.run import gateway
from workers.contract.run.episodes import GatewaySpec
from workers.trainer.gateway.conversing import Conversing
from workers.trainer.gateway.inference_api import InferenceApi
from workers.trainer.gateway.rollouts import Collected, GatewayRollouts, request_metrics, wait_metrics
from workers.trainer.gateway.run_api import Group, RunApi
from workers.trainer.gateway.scored_groups import episodes_of


class AtroposRollouts(GatewayRollouts):
    poll_s = 0.1
    inference: InferenceApi
    """API that Atropos' environments use, set on rank 0 before `open`, as is `run_api`."""
    run_api: RunApi | None = None
    _registered = False

    def __init__(
        self, conversing: Conversing, rows: Mapping[int, Any], *, stop: Path, settings: GatewaySpec, run_id: str
    ) -> None:
        super().__init__(conversing, rows, stop=stop)
        self._settings, self._run_id = settings, run_id

    def close(self) -> None:
        super().close()
        if self.run_api is not None:
            self.run_api.close()

    def _collect(self, members: Sequence[tuple[int, Any]], trainer: Any) -> Collected | None:
        api, inference = self.run_api, self.inference
        assert api is not None  # noqa: S101  # rank 0 has it
        if not self._registered:
            self._register(api, trainer, len(members))
        batch: list[Group] = []

        def fetch_batch() -> bool:
            batch.extend(api.batch() or ())
            return bool(batch)

        def live_metrics(began: float) -> dict[str, float]:
            return wait_metrics(began, inference.heard_at, is_active=bool(inference.active))

        waited_s = self._wait(trainer, fetch_batch, live_metrics, time.sleep)
        if not batch:
            return None
        episodes, versions = episodes_of(
            batch,
            [self._rows[row] for row, _ in members],
            size=trainer.num_generations,
            stamps=inference.stamps,
            conversing=self._conversing,
        )
        if not trainer.use_vllm:
            for episode in episodes:
                episode.logprobs = []
        latencies, inference.latencies = inference.latencies, []
        staleness = _staleness(versions, self._engine.version)
        return episodes, {**request_metrics(latencies), gateway.WAITING: waited_s, **staleness}

    def _register(self, api: RunApi, trainer: Any, size: int) -> None:
        api.register(
            wandb_group=self._run_id,
            wandb_project="",
            batch_size=size,
            max_token_len=self._settings.max_token_len,
            checkpoint_dir=str(trainer.args.output_dir),
            save_checkpoint_interval=int(trainer.args.save_steps),
            starting_step=trainer.state.global_step,
            num_steps=trainer.state.max_steps,
        )
        self._registered = True


def _staleness(versions: Sequence[int | None], current: int) -> dict[str, float]:
    ages = [current - version for version in versions if version is not None]
    metrics = {gateway.UNKNOWN: 1.0 - len(ages) / len(versions) if versions else 0.0}
    return metrics | ({gateway.STALENESS: sum(ages) / len(ages)} if ages else {})
