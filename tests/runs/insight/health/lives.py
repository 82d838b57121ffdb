"""Lives of runs, simulated: what a trainer would log, step by step, well or with one thing wrong; and the assessments
that a tick every few steps makes of it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from math import exp
from typing import Any

from runs.insight.health.history import Text
from tests.runs.insight.health.watched import CONFIG, ON_POLICY, Watched

__all__ = ["CONFIG", "ON_POLICY", "Change", "Life", "Values", "after"]

STEP_S = 10.0
Values = dict[str, float]
Change = Callable[[int, Values], object]
"""Makes one thing wrong in the values of a step."""


@dataclass
class Life(Watched):
    """A run that learns. `rises` is when it has half learned, `noise` of a batch's mean reward."""

    rises: float = 150.0
    best: float = 0.85
    worst: float = 0.15
    noise: float = 0.04
    seed: int = 1
    change: Change = lambda step, values: None
    texts: Callable[[int], Text | None] = lambda step: Text(step, 24, 0, 0)
    step_s: Callable[[int], float] = lambda step: STEP_S
    use: Callable[[int, int], float] = lambda step, gpu: 60.0
    machine: Callable[[int], Values] = lambda step: {}
    heat: Callable[[int, int], float] = lambda step, gpu: 60.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.random = random.Random(self.seed)
        self.tokens = 0.0

    def live(self, steps: int, *, every: int = 6) -> Life:
        """Go on for so many steps, looked at after each `every` steps."""
        for step in range(self.step + 1, self.step + steps + 1):
            self._train(step)
            if step % every == 0:
                self.look()
        return self

    def look(self, *, quiet_s: float = 0.0) -> dict[str, Any]:
        text = self.texts(self.step)
        return super().look([] if text is None else [text], quiet_s=quiet_s)

    def _train(self, step: int) -> None:
        self.t += self.step_s(step) * self.random.uniform(0.8, 1.2) + (60.0 if step % 100 == 0 else 0.0)
        values = self._values(step)
        self.change(step, values)
        self.rows.append((step, self.t, {name: value for name, value in values.items() if value == value}))
        for gpu in self.config.gpus:
            use = min(100.0, max(0.0, self.random.gauss(self.use(step, gpu), 15.0)))
            values = {f"gpu/{gpu}/util_percent": use, f"gpu/{gpu}/temperature_c": self.heat(step, gpu)}
            self.system.append((None, self.t, values))
        if more := self.machine(step):
            self.system.append((None, self.t, more))

    def _values(self, step: int) -> Values:
        """As TRL logs them: with several updates a batch, only the first one's line has a reward."""
        chance = self.random
        learnt = 1 / (1 + exp(-6 * (step - self.rises) / self.rises))
        again = (step - 1) % int(self.config.updates) > 0
        values: Values = {
            "loss": chance.gauss(0.0, 0.05),
            "grad_norm": 0.4 * exp(chance.gauss(0.0, 0.5)) * (40 if chance.random() < 0.005 else 1),
            "entropy": 0.15 + 0.5 * (1 - learnt) * exp(chance.gauss(0.0, 0.1)),
            "mean_ratio": chance.gauss(1.0, 0.02) if again else 1.0,
            "clip_ratio/region_mean": abs(chance.gauss(0.04, 0.02)) if again else 0.0,
            "learning_rate": 1e-6,
            "step_time": STEP_S,
        }
        if self.config.beta:
            values["kl"] = (0.002 + 0.08 * learnt) * exp(chance.gauss(0, 0.3)) * (50 if chance.random() < 0.01 else 1)
        return values if again else {**values, **self._generated(learnt)}

    def _generated(self, learnt: float) -> Values:
        chance = self.random
        level = self.worst + (self.best - self.worst) * learnt
        parts = {part.name: min(1.0, max(0.0, chance.gauss(level, self.noise))) for part in self.config.components}
        reward = sum(part.weight * parts[part.name] for part in self.config.components)
        self.tokens += 20_000 * chance.uniform(0.9, 1.1)
        return {
            "reward": reward,
            "reward_std": 0.3,
            **{f"rewards/{name}/mean": value for name, value in parts.items()},
            "frac_reward_zero_std": min(0.7, max(0.0, chance.gauss(0.1 + 0.3 * learnt, 0.1))),
            "completions/mean_length": chance.gauss(160 + 60 * learnt, 8),
            "completions/clipped_ratio": min(1.0, abs(chance.gauss(0.12 * (1 - learnt) + 0.05, 0.04))),
            "sampling/sampling_logp_difference/mean": abs(chance.gauss(0.015, 0.004)),
            "sampling/importance_sampling_ratio/mean": chance.gauss(0.98, 0.01),
            "sampling/importance_sampling_ratio/min": 0.0 if chance.random() < 0.5 else 0.4,
            "sampling/share_masked": max(0.0, chance.gauss(0.01, 0.01)),
            "num_tokens": self.tokens,
        }


def after(start: int, **wrong: float | Callable[[int, float], float]) -> Change:
    """From a step on, metrics (`__` for a slash) are these, or what a function makes of step and value."""

    def change(step: int, values: Values) -> None:
        for name, to in wrong.items():
            key = name.replace("__", "/")
            if step >= start and key in values:
                values[key] = to(step - start, values[key]) if callable(to) else to

    return change
