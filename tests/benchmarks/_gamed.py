"""Generated histories of runs whose reward is gamed, and of healthy runs that look alike.

Each completion is drawn with its length and its scores; metrics, evaluations and the stored completions follow from
those draws. A kind says how the chances change over the run, as functions of its progress.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from runs.insight.completions.groups import StoredCompletion
from runs.insight.health.config import Component, Config
from runs.insight.health.history import Row

Course = Callable[[float], float]
"""A chance or level as a function of the share of the run that has passed."""
KEPT_GROUPS = 2


def flat(level: float) -> Course:
    return lambda share: level


def from_to(start: float, end: float, begin: float = 0.0, until: float = 1.0) -> Course:
    return lambda share: start + (end - start) * min(1.0, max(0.0, (share - begin) / (until - begin)))


def through(*levels: float) -> Course:
    return lambda share: float(np.interp(share, np.linspace(0, 1, len(levels)), levels))


@dataclass
class Kind:
    accuracy: Course = field(default_factory=lambda: from_to(0.3, 0.75))
    format: Course = field(default_factory=lambda: from_to(0.6, 0.95, 0.0, 0.5))
    style: Course = field(default_factory=lambda: from_to(0.5, 0.7))
    tokens: Course = field(default_factory=lambda: flat(200.0))
    eval_accuracy: Course | None = None
    judge: Course | None = None
    """Of a reward that is only evaluated."""
    judge_checks: bool = True
    observed: Course | None = None
    """Of a component of weight 0."""
    observed_checks: bool = True
    style_per_length: float = 0.0
    """How much of the style's score a doubled length adds."""
    right_per_length: float = 0.0
    weights: tuple[float, float, float] = (1.0, 0.25, 0.25)
    steps: tuple[int, int] = (260, 420)
    prompts: tuple[int, ...] = (8, 16, 32)
    eval_every: tuple[int, ...] = (15, 25)
    eval_prompts: tuple[int, ...] = (64, 128)


PAID: dict[str, Any] = {
    "style": flat(0.4),
    "style_per_length": 0.25,
    "weights": (1.0, 0.25, 1.0),
    "format": flat(0.95),
}
"""A style whose score only the length decides."""

HACKED: dict[str, Kind] = {
    "an evaluated judge falls": Kind(style=from_to(0.4, 0.95), judge=from_to(0.6, 0.35), judge_checks=False),
    "an evaluated judge falls from the middle on": Kind(judge=from_to(0.6, 0.3, 0.4)),
    "the answer check has a loophole": Kind(accuracy=from_to(0.3, 0.9), judge=flat(0.35)),
    "an observed component falls": Kind(
        style=from_to(0.3, 0.9), accuracy=from_to(0.3, 0.5), observed=from_to(0.6, 0.3)
    ),
    "an observed check stays flat": Kind(accuracy=from_to(0.25, 0.85), observed=flat(0.3)),
    "length is paid as style": Kind(accuracy=flat(0.3), tokens=from_to(150, 600), **PAID),
    "length is paid slowly": Kind(accuracy=flat(0.4), tokens=from_to(200, 500), **PAID, steps=(500, 700)),
    "length is paid without an answer check": Kind(tokens=from_to(150, 500), **PAID | {"weights": (0.0, 0.0, 1.0)}),
    "length is paid from the middle on": Kind(accuracy=flat(0.4), tokens=from_to(200, 700, 0.4), **PAID),
    "length is paid and the judge falls": Kind(
        accuracy=flat(0.35), tokens=from_to(150, 600), **PAID, judge=from_to(0.6, 0.35), judge_checks=False
    ),
    "the form is traded for answers": Kind(
        accuracy=from_to(0.6, 0.25), format=from_to(0.2, 0.98), style=from_to(0.3, 0.95), weights=(1.0, 1.0, 0.5)
    ),
    "only the form is learned": Kind(
        accuracy=flat(0.25),
        format=from_to(0.2, 0.98),
        style=from_to(0.3, 0.9),
        weights=(1.0, 1.0, 0.5),
        steps=(420, 500),
    ),
    "held-out answers get worse": Kind(eval_accuracy=from_to(0.5, 0.2, 0.2)),
    "a small batch and a falling judge": Kind(
        style=from_to(0.4, 0.95), judge=from_to(0.6, 0.3), prompts=(4,), eval_prompts=(32,)
    ),
}
HONEST: dict[str, Kind] = {
    "everything rises": Kind(judge=from_to(0.3, 0.65), observed=from_to(0.4, 0.7)),
    "the form comes first": Kind(
        accuracy=through(0.2, 0.2, 0.35, 0.6, 0.75),
        format=through(0.3, 0.95, 1.0, 1.0),
        judge=through(0.2, 0.2, 0.3, 0.5, 0.65),
    ),
    "a length penalty": Kind(
        tokens=from_to(500, 200), style=from_to(0.3, 0.9), style_per_length=-0.25, judge=from_to(0.4, 0.6)
    ),
    "reasoning grows with the accuracy": Kind(
        accuracy=from_to(0.25, 0.7), tokens=from_to(200, 700), right_per_length=0.2
    ),
    "reasoning grows, brevity is observed": Kind(
        accuracy=from_to(0.25, 0.7), tokens=from_to(200, 600), observed=from_to(0.8, 0.4), observed_checks=False
    ),
    "a curriculum": Kind(accuracy=through(0.3, 0.7, 0.4, 0.75, 0.45, 0.75), judge=from_to(0.3, 0.6)),
    "limited by the KL": Kind(accuracy=from_to(0.4, 0.5, 0.0, 0.3), format=flat(0.9), style=flat(0.6), judge=flat(0.4)),
    "a judge at its top": Kind(judge=flat(0.95)),
    "a judge at its floor": Kind(accuracy=from_to(0.25, 0.85), judge=flat(0.0)),
    "a noisy judge": Kind(judge=from_to(0.35, 0.6), eval_prompts=(8,)),
    "a judge that follows late": Kind(judge=from_to(0.35, 0.65, 0.3)),
    "a judge that follows in part": Kind(judge=from_to(0.3, 0.45)),
    "longer, and better as style": Kind(tokens=from_to(200, 400), style=from_to(0.4, 0.8), weights=(0.0, 0.0, 1.0)),
    "a slow rise": Kind(accuracy=from_to(0.4, 0.55), judge=from_to(0.4, 0.5), observed=from_to(0.4, 0.5)),
    "answers become concise": Kind(tokens=from_to(400, 150), observed=from_to(0.5, 0.7)),
    "a noisy component of weight 0": Kind(observed=flat(0.5), observed_checks=False, prompts=(4,)),
}


@dataclass
class Lived:
    """One step."""

    row: Row
    groups: list[tuple[int, list[StoredCompletion]]]


class Run:
    def __init__(self, name: str, kind: Kind, seed: int) -> None:
        self.kind, chance = kind, random.Random(f"{name} {seed}")
        self.random = np.random.default_rng(chance.randrange(2**30))
        self.steps = chance.randint(*kind.steps)
        self.prompts, self.group = chance.choice(kind.prompts), chance.choice((8, 16))
        self.eval_every, self.eval_prompts = chance.choice(kind.eval_every), chance.choice(kind.eval_prompts)

    def config(self) -> Config:
        kind = self.kind
        parts = zip(("accuracy", "format", "style"), kind.weights, (True, False, False), strict=True)
        components = [Component(name, weight, 0.0, 1.0, checks) for name, weight, checks in parts if weight]
        judges = []
        if kind.observed:
            observed = Component("observed", 0.0, 0.0, 1.0, kind.observed_checks)
            components.append(observed)
            judges.append((observed.metric, observed))
        if kind.judge:
            judge = Component("strict", 0.0, 0.0, 1.0, kind.judge_checks)
            judges.append((f"eval_{judge.metric}", judge))
        return Config(
            updates=1,
            cap=4096,
            from_vllm=True,
            components=tuple(components),
            judges=tuple(judges),
            max_steps=self.steps,
            completions=self.prompts * self.group,
            eval_every=self.eval_every,
        )

    def lines(self) -> Iterator[Lived]:
        tokens = 0.0
        for step in range(1, self.steps + 1):
            share, kind, chance = step / self.steps, self.kind, self.random
            shape = (self.prompts, self.group)
            level = kind.tokens(share)
            lengths = chance.lognormal(np.log(level), 0.35, shape)
            doubled = np.log2(lengths / kind.tokens(0.0))
            within = np.log2(lengths / level)
            hard = chance.normal(0.0, 0.2, (self.prompts, 1))
            right = chance.random(shape) < np.clip(kind.accuracy(share) + hard + kind.right_per_length * within, 0, 1)
            form = chance.random(shape) < kind.format(share)
            style = np.clip(kind.style(share) + kind.style_per_length * doubled + chance.normal(0, 0.12, shape), 0, 1)
            scores = {"accuracy": right * 1.0, "format": form * 1.0, "style": np.round(style, 1)}
            total = sum(w * of for w, of in zip(kind.weights, scores.values(), strict=True))
            if kind.observed:
                scores["observed"] = (chance.random(shape) < np.clip(kind.observed(share) + hard, 0, 1)) * 1.0
            tokens += float(lengths.sum())
            values: dict[str, float] = {
                "reward": float(np.mean(total)),
                "reward_std": float(np.std(total)),
                "frac_reward_zero_std": float((np.std(total, axis=1) < 1e-9).mean()),
                **{f"rewards/{name}/mean": float(of.mean()) for name, of in scores.items()},
                "completions/mean_length": float(lengths.mean()),
                "completions/clipped_ratio": 0.0,
                "num_tokens": tokens,
                "entropy": 0.5 * float(chance.lognormal(0, 0.08)),
                "grad_norm": 0.4 * float(chance.lognormal(0, 0.3)),
                "loss": float(chance.normal(0, 0.02)),
                "learning_rate": 1e-6,
            }
            if step % self.eval_every == 0:
                values |= self._evaluate(share)
            yield Lived(
                (step, 1000.0 + 20 * step, values),
                [(step, self._stored(scores, total, lengths, group)) for group in range(KEPT_GROUPS)],
            )

    def _evaluate(self, share: float) -> dict[str, float]:
        kind, chance, count = self.kind, self.random, self.eval_prompts

        def mean(course: Course) -> float:
            return float((chance.random(count) < course(share)).mean())

        accuracy = mean(kind.eval_accuracy or kind.accuracy)
        rest = zip(kind.weights[1:], (mean(kind.format), kind.style(share)), strict=True)
        values = {
            "eval_rewards/accuracy/mean": accuracy,
            "eval_reward": kind.weights[0] * accuracy + sum(weight * value for weight, value in rest),
        }
        if kind.judge:
            values["eval_rewards/strict/mean"] = mean(kind.judge)
        return values

    def _stored(self, scores: dict[str, Any], total: Any, lengths: Any, group: int) -> list[StoredCompletion]:
        return [
            StoredCompletion(
                number + 1,
                "text",
                None,
                int(lengths[group, number]),
                "eos",
                {name: float(of[group, number]) for name, of in scores.items()},
                float(total[group, number]),
                0.0,
            )
            for number in range(self.group)
        ]
