"""Lives of runs, simulated: what a trainer would log, step by step, well or with one thing wrong; and the assessments
that a tick every few steps makes of it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from math import exp
from typing import Any

from runs.health import history as past
from runs.health.assess import alerts, assess
from runs.health.config import Component, Config
from runs.health.history import RECENT, History, Row, Text, columns_of
from runs.health.presets import Preset

COMPONENTS = (
    Component("accuracy", 1.0, 0.0, 1.0),
    Component("format", 0.25, 0.0, 1.0),
    Component("style", 0.25, 0.0, 1.0),
)
CONFIG = Config(beta=0.04, updates=2.0, corrected=True, components=COMPONENTS, gpus=(0, 1))
ON_POLICY = replace(CONFIG, beta=0.0, updates=1.0)
START = datetime(2026, 1, 1, tzinfo=UTC)
STEP_S = 10.0
Values = dict[str, float]
Change = Callable[[int, Values], object]
"""Makes one thing wrong in the values of a step."""


@dataclass
class Life:
    """A run that learns. `rises` is when it has half learned, `noise` of a batch's mean reward."""

    config: Config = CONFIG
    rises: float = 150.0
    best: float = 0.85
    worst: float = 0.15
    noise: float = 0.04
    seed: int = 1
    change: Change = lambda step, values: None
    texts: Callable[[int], Text | None] = lambda step: Text(step, 24, 0, 0)
    step_s: Callable[[int], float] = lambda step: STEP_S
    use: Callable[[int, int], float] = lambda step, gpu: 60.0
    preset: Preset = field(default_factory=Preset)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.rows: list[Row] = []
        self.system: list[Row] = []
        self.memory: dict[str, Any] = {}
        self.health: dict[str, Any] = {}
        self.opened: list[tuple[int, str, str]] = []
        """(step, rule, level) of each alert"""
        self.closed: list[tuple[int, str]] = []
        self.t, self.tokens = 1000.0, 0.0

    def live(self, steps: int, *, every: int = 6) -> Life:
        """Go on for so many steps, looked at now and then."""
        for step in range(self.step + 1, self.step + steps + 1):
            self._train(step)
            if step % every == 0:
                self.look()
        return self

    @property
    def step(self) -> int:
        return self.rows[-1][0] or 0 if self.rows else 0

    def look(self, *, quiet_s: float = 0.0) -> dict[str, Any]:
        history = History(self.config, columns_of(self.rows[-RECENT:]) | columns_of(self.system[-400:]), step=self.step)
        past.from_memory(history, self.memory)
        history.training_since, history.quiet_s = 1000.0, quiet_s
        if (text := self.texts(self.step)) is not None:
            history.texts = [*history.texts, text][-40:]
        past.remember(history, whole=len(self.rows) <= RECENT)
        before = alerts(self.health)
        self.health = assess(history, self.preset, self.health, START + timedelta(seconds=self.t))
        self.memory = past.to_memory(history)
        after = alerts(self.health)
        self.opened += [(self.step, rule, f["level"]) for rule, f in after.items() if rule not in before]
        self.closed += [(self.step, rule) for rule in before if rule not in after]
        return self.health

    @property
    def rules(self) -> set[str]:
        return {rule for _, rule, _ in self.opened}

    def finding(self, rule: str) -> dict[str, Any] | None:
        return next((f for f in self.health["findings"] if f["rule"] == rule), None)

    def _train(self, step: int) -> None:
        self.t += self.step_s(step) * self.random.uniform(0.8, 1.2) + (60.0 if step % 100 == 0 else 0.0)
        values = self._values(step)
        self.change(step, values)
        self.rows.append((step, self.t, {name: value for name, value in values.items() if value == value}))
        for gpu in self.config.gpus:
            use = min(100.0, max(0.0, self.random.gauss(self.use(step, gpu), 15.0)))
            self.system.append((None, self.t, {f"gpu/{gpu}/util_percent": use}))

    def _values(self, step: int) -> Values:
        """As TRL logs them: with several updates a batch, every second line has no reward."""
        chance = self.random
        learnt = 1 / (1 + exp(-6 * (step - self.rises) / self.rises))
        again = self.config.updates > 1 and step % 2 == 0
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
