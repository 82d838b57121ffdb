"""The parts of a run's frozen spec that the rules need."""

from __future__ import annotations

from dataclasses import dataclass

from runs.metrics import run_charts
from workers.contract import RewardSpec, Rollout, RunSpec
from workers.rewards import LIBRARY

TRL_LIMIT = 512
"""TRL's default max_completion_length."""


@dataclass(frozen=True)
class Component:
    name: str
    weight: float
    low: float | None
    high: float | None
    """The maximum; None: unknown or unbounded."""

    @property
    def metric(self) -> str:
        return f"rewards/{self.name}/mean"


@dataclass(frozen=True)
class Config:
    beta: float = 0.0
    updates: float = 1.0
    """Optimizer steps per batch of completions."""
    loss: str = "dapo"
    cap: int = TRL_LIMIT
    mask_truncated: bool = False
    corrected: bool = False
    """Completions come from vLLM, and their probabilities are corrected to the trainer's."""
    correction: str = "sequence_mask"
    max_grad_norm: float = 1.0
    components: tuple[Component, ...] = ()
    gpus: tuple[int, ...] = ()

    @property
    def highest(self) -> float | None:
        """The total reward of a perfect completion."""
        return self._total(best=True)

    @property
    def lowest(self) -> float | None:
        return self._total(best=False)

    @property
    def low_to_high(self) -> float | None:
        high, low = self.highest, self.lowest
        return None if high is None or low is None else high - low

    def _total(self, *, best: bool) -> float | None:
        total = 0.0
        for part in self.components:
            end = part.high if (part.weight > 0) is best else part.low
            if part.weight and end is None:
                return None
            total += part.weight * (end or 0.0)
        return total if self.components else None


def config_of(spec: RunSpec, gpus: tuple[int, ...] = ()) -> Config:
    grpo = spec.grpo
    correction = bool(grpo.get("vllm_importance_sampling_correction", True))
    return Config(
        beta=run_charts.beta(spec),
        updates=run_charts.updates_per_batch(spec),
        loss=str(grpo.get("loss_type") or "dapo"),
        cap=int(grpo.get("max_completion_length") or TRL_LIMIT),
        mask_truncated=bool(grpo.get("mask_truncated_completions")),
        corrected=spec.hardware.rollout is not Rollout.TRANSFORMERS and correction,
        correction=str(grpo.get("vllm_importance_sampling_mode") or "sequence_mask"),
        max_grad_norm=float(grpo.get("max_grad_norm") or 1.0),
        components=tuple(_component(reward) for reward in spec.rewards),
        gpus=gpus,
    )


def _component(reward: RewardSpec) -> Component:
    entry = LIBRARY.get(reward.function)
    low, high = entry.expected_of(reward.params) if entry else (None, None)
    return Component(reward.name, reward.weight, low, high)
