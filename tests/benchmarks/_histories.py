"""Generated histories of runs, healthy ones and ones that fall ill at a known step.

A run is simulated from below, not from what the rules look at: prompts have difficulties, completions are drawn one by
one from a policy that learns, and the trainer's figures are computed of those draws as TRL computes them. Around that:
several updates a batch, evaluations, saves, slow steps, gaps and a resume.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from runs.insight.health.config import Component, Config
from runs.insight.health.history import Row, Text

PROMPTS = 400
BEGAN = 1000.0


@dataclass
class Policy:
    """What a policy does at one moment; a run changes it from step to step, and so does an illness."""

    skill: float = -1.0
    """Against the prompts' difficulty."""
    form: float = 0.6
    """Chance that a completion has the wanted form."""
    style: float = 0.5
    tokens: float = 200.0
    entropy: float = 0.6
    kl: float = 0.002
    ratio: float = 1.0
    clipped: float = 0.03
    grad: float = 0.4
    loss: float = 0.0
    lr: float = 1e-6
    gap: float = 0.015
    """Between vLLM's log-probabilities and the trainer's."""
    weight: float = 0.98
    """Mean importance ratio."""
    failing: float = 0.0
    held_out: float = 0.0
    """What is added to the skill on held-out prompts."""
    noise_only: bool = False
    pays_form: bool = True
    spread: float = 1.5
    """Of the prompts' difficulty."""
    texts: dict[str, float] = field(default_factory=dict)
    """Shares of completions with a sign in the text."""
    nan: float = 0.0
    slower: float = 1.0
    rewards_s: float = 0.5
    use: tuple[float, float] = (75.0, 70.0)
    power: tuple[float, float] = (420.0, 410.0)
    heat: float = 62.0
    gpu_mib: float = 60_000.0
    host_mib: float = 20_000.0
    cache: float = 50.0
    waiting: float = 0.0


Change = Callable[[Policy, int], None]
"""Makes a policy ill, so many steps after the onset."""


@dataclass(frozen=True)
class Setting:
    updates: int = 1
    prompts: int = 16
    group: int = 8
    step_s: float = 12.0
    speed: float = 0.012
    """Skill per generation at first."""
    steps: int = 600
    start: float = -1.0
    eval_every: int = 50
    save_every: int = 100
    beta: float = 0.04
    resume_at: int = 0
    cap: int = 1024
    spread: float = 1.5

    def config(self) -> Config:
        return Config(
            beta=self.beta,
            updates=float(self.updates),
            cap=self.cap,
            corrected=True,
            served=True,
            components=(
                Component("accuracy", 1.0, 0.0, 1.0, True),
                Component("format", 0.25, 0.0, 1.0),
                Component("style", 0.25, 0.0, 1.0),
            ),
            gpus=(0, 1),
            ranks=(0, 1),
            max_steps=self.steps,
            completions=self.prompts * self.group,
            eval_every=self.eval_every,
            save_every=self.save_every,
        )


@dataclass
class Generated:
    """One step: its lines and what was written meanwhile."""

    step: int
    rows: list[Row]
    system: list[Row]
    texts: list[Text]
    solved: list[tuple[int, int, int]]
    """Of its generation: step, completions, solved ones."""
    resumed: bool = False


def history(setting: Setting, seed: int, change: Change | None = None, onset: int = 0) -> Iterator[Generated]:
    """The steps of a run, one after the other. `change` makes it ill from `onset` on."""
    return _Simulation(setting, seed, change, onset).steps()


class _Simulation:
    def __init__(self, setting: Setting, seed: int, change: Change | None, onset: int) -> None:
        self.setting, self.change, self.onset = setting, change, onset
        self.random = np.random.default_rng(seed)
        self.difficulty = self.random.normal(0.0, 1.0, PROMPTS)
        self.order: list[int] = []
        self.t, self.tokens, self.learnt = BEGAN, 0.0, 0.0
        self.generated: dict[str, float] = {}

    def steps(self) -> Iterator[Generated]:
        for step in range(1, self.setting.steps + 1):
            policy = self._policy(step)
            resumed = step == self.setting.resume_at
            if resumed:
                self.t += 900.0  # the model loads again
            seconds = self._seconds(step, policy)
            began, self.t = self.t, self.t + seconds
            self.solved: list[tuple[int, int, int]] = []
            rows, texts = [self._line(step, policy, seconds)], self._texts(step, policy)
            system = self._system(began, policy)
            if self.setting.eval_every and step % self.setting.eval_every == 0:
                system += self._evaluate(step, policy, rows)
            if self.setting.save_every and step % self.setting.save_every == 0:
                self.t += self.random.uniform(5.0, 40.0)
            yield Generated(step, rows, system, texts, self.solved, resumed)

    def _policy(self, step: int) -> Policy:
        s = self.setting
        if (step - 1) % s.updates == 0:
            self.learnt += s.speed * max(0.0, 1.0 - self.learnt / 3.5)
        share = min(1.0, self.learnt / 2.5)
        policy = Policy(
            skill=s.start + self.learnt,
            form=0.6 + 0.38 * share,
            style=0.5 + 0.2 * share,
            tokens=200.0 * (1 + 0.6 * share),
            entropy=0.15 + 0.45 * (1 - share),
            kl=0.001 + 0.06 * share,
            spread=s.spread,
        )
        if self.change is not None and step >= self.onset:
            self.change(policy, step - self.onset)
        return policy

    # --- the trainer's lines ---------------------------------------------------------------------------------

    def _line(self, step: int, policy: Policy, seconds: float) -> Row:
        chance, first = self.random, (step - 1) % self.setting.updates == 0
        spiky = chance.random() < 0.004
        values: dict[str, float] = {
            "loss": chance.normal(policy.loss, 0.04),
            "grad_norm": policy.grad * float(chance.lognormal(0.0, 0.4)) * (30.0 if spiky else 1.0),
            "learning_rate": policy.lr * min(1.0, (step - 1) / 10) if policy.lr else 0.0,
            "entropy": policy.entropy * float(chance.lognormal(0.0, 0.08)),
            "kl": policy.kl * float(chance.lognormal(0.0, 0.3)) * (40.0 if chance.random() < 0.008 else 1.0),
            "mean_ratio": 1.0 if first else float(chance.normal(policy.ratio, 0.01)),
            "clip_ratio/region_mean": 0.0 if first else float(np.clip(chance.normal(policy.clipped, 0.015), 0, 1)),
            "step_time": seconds,
            "time/update_s": 0.4 * seconds,
        }
        if first:
            values |= self._generate(step, policy) | {
                "time/generation_s": max(0.1, 0.6 * seconds - policy.rewards_s),
                "time/rewards_s": policy.rewards_s * float(chance.lognormal(0.0, 0.1)),
            }
        if not self.setting.beta:
            values.pop("kl")
        if chance.random() < policy.nan:
            values.pop("grad_norm")
        return step, self.t, values

    def _generate(self, step: int, policy: Policy) -> dict[str, float]:
        """A batch of groups: what TRL logs of it."""
        s, chance = self.setting, self.random
        right, form, style = self._scores(policy, self._prompts(), s.group)
        self.solved = [(step, right.size, int(right.sum()))]
        failed = chance.random(right.shape) < policy.failing
        right = np.where(failed, np.nan, right)
        total = np.nansum(np.stack([right, 0.25 * form, 0.25 * style]), axis=0)
        lengths = chance.lognormal(np.log(max(policy.tokens, 1.0)), 0.35, right.shape)
        cut = lengths >= s.cap
        self.tokens += float(np.minimum(lengths, s.cap).sum()) + 100 * lengths.size
        spread = total.std(axis=1, ddof=1)
        return {
            "reward": float(total.mean()),
            "reward_std": float(spread.mean()),
            "frac_reward_zero_std": float((spread < 1e-6).mean()),
            "rewards/accuracy/mean": float(np.nanmean(right)) if not failed.all() else 0.0,
            "rewards/format/mean": float(form.mean()),
            "rewards/style/mean": float(style.mean()),
            "rewards/accuracy/failed": float(failed.mean()),
            "completions/mean_length": float(np.minimum(lengths, s.cap).mean()),
            "completions/clipped_ratio": float(cut.mean()),
            "num_tokens": self.tokens,
            "sampling/sampling_logp_difference/mean": abs(float(chance.normal(policy.gap, 0.2 * policy.gap))),
            "sampling/importance_sampling_ratio/mean": float(chance.normal(policy.weight, 0.01)),
            "sampling/share_masked": max(0.0, float(chance.normal(1 - policy.weight, 0.01))),
            "sampling/importance_sampling_ratio/min": 0.0 if chance.random() < 0.5 else 0.3,
        }

    def _scores(self, policy: Policy, rows: Any, group: int, held_out: float = 0.0) -> tuple[Any, Any, Any]:
        chance = self.random
        skill = policy.skill + held_out - policy.spread * self.difficulty[rows]
        solves = 1 / (1 + np.exp(-2 * skill))
        shape = (len(rows), group)
        right = (chance.random(shape) < solves[:, None]).astype(float)
        form = (chance.random(shape) < policy.form).astype(float) * policy.pays_form
        style = np.round(np.clip(chance.normal(policy.style, 0.15, shape), 0, 1), 1)
        if policy.noise_only:
            right, form = np.full(shape, 0.4), np.full(shape, 0.5)
            style = 0.5 + chance.normal(0.0, 0.002, shape)
        return right, form, style

    def _prompts(self) -> Any:
        if len(self.order) < self.setting.prompts:
            self.order += list(self.random.permutation(PROMPTS))
        rows, self.order = self.order[: self.setting.prompts], self.order[self.setting.prompts :]
        return np.array(rows)

    # --- beside the training ---------------------------------------------------------------------------------

    def _seconds(self, step: int, policy: Policy) -> float:
        usual = self.setting.step_s * (policy.tokens / 200.0) ** 0.7
        warm = 4.0 if step <= 2 else 1.0
        slow = float(self.random.uniform(2.0, 5.0)) if self.random.random() < 0.02 else 1.0
        return usual * warm * slow * policy.slower * float(self.random.lognormal(0.0, 0.12))

    def _evaluate(self, step: int, policy: Policy, rows: list[Row]) -> list[Row]:
        right, form, style = self._scores(policy, self.random.integers(0, PROMPTS, 64), 2, policy.held_out)
        began = self.t
        self.t += 20 * self.setting.step_s * float(self.random.uniform(0.8, 1.2))
        values = {
            "eval_reward": float((right + 0.25 * form + 0.25 * style).mean()),
            "eval_rewards/accuracy/mean": float(right.mean()),
        }
        rows.append((step, self.t, values))
        return [self._sample(at, (60.0, 0.0), policy) for at in np.arange(began, self.t, 10.0)]

    def _system(self, began: float, policy: Policy) -> list[Row]:
        return [self._sample(at, policy.use, policy) for at in np.arange(began, self.t, max(2.0, (self.t - began) / 8))]

    def _sample(self, at: float, use: tuple[float, float], policy: Policy) -> Row:
        chance = self.random
        values = {
            "host/run_memory_mib": policy.host_mib + float(chance.normal(0, 100)),
            "host/memory_mib": policy.host_mib + 4_000,
        }
        for gpu, share in enumerate(use):
            values[f"gpu/{gpu}/util_percent"] = float(np.clip(chance.normal(share, 12.0), 0, 100)) if share else 0.0
            values[f"gpu/{gpu}/temperature_c"] = float(chance.normal(policy.heat, 1.5))
            values[f"gpu/{gpu}/power_w"] = float(chance.normal(policy.power[gpu], 25.0)) if share else 90.0
            values[f"gpu/{gpu}/memory_mib"] = policy.gpu_mib + float(chance.normal(0, 150))
        values["vllm/kv_cache_percent"] = float(np.clip(chance.normal(policy.cache, 3.0), 0, 100))
        values["vllm/requests_waiting"] = float(chance.poisson(policy.waiting))
        values["vllm/requests_running"] = 32.0
        return None, at, values

    def _texts(self, step: int, policy: Policy) -> list[Text]:
        if (step - 1) % self.setting.updates:
            return []
        shares = [policy.texts.get(name, 0.005) for name in Text._fields[2:]]
        return [Text(step, 24, *(int(self.random.binomial(24, min(1.0, share))) for share in shares))]
