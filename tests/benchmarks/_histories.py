"""Generated histories of runs, healthy ones and ones that fall ill at a known step.

A run is simulated from below, not from what the rules look at: prompts have difficulties, completions are drawn one by
one from a policy that learns, and the trainer's figures are computed of those draws as TRL computes them. Around that:
several updates a batch, evaluations, saves, slow steps, gaps and a resume.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from runs.insight.health.history import Row, Text
from tests.benchmarks._policies import Change, Policy, Setting
from workers.contract.run.overlapping import STALENESS
from workers.contract.run.prompts import EXTRA_ROUNDS, MEAN_REWARD

PROMPTS = 400
BEGAN = 1000.0


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
        self.extra_rounds = 0

    def steps(self) -> Iterator[Generated]:
        for step in range(1, self.setting.steps + 1):
            policy = self._policy(step)
            resumed = step == self.setting.resume_at
            if resumed:
                self.t += self.setting.gap_s  # the model loads again, and the host may have been gone
            seconds = self._seconds(step, policy)
            began, self.t = self.t, self.t + seconds
            self.solved: list[tuple[int, int, int]] = []
            rows, texts = [self._line(step, policy, seconds)], self._texts(step, policy)
            system = self._system(began, policy, first=(step - 1) % self.setting.updates == 0)
            if self.setting.eval_every and step % self.setting.eval_every == 0:
                system += self._evaluate(step, policy, rows)
            if self.setting.save_every and step % self.setting.save_every == 0:
                self.t += self.random.uniform(5.0, 40.0)
            yield Generated(step, rows, system, texts, self.solved, resumed)

    def _policy(self, step: int) -> Policy:
        s = self.setting
        if (step - 1) % s.updates == 0:
            rate = self._rate(step, s.warm_up) if s.warm_up or s.decays else 1.0
            self.learnt += rate * s.speed * max(0.0, 1.0 - self.learnt / 3.5)
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

    def _rate(self, step: int, warm_up: int) -> float:
        """The learning rate as a share of its full value."""
        decay = 0.5 * (1 + np.cos(np.pi * step / self.setting.steps)) if self.setting.decays else 1.0
        return float(min(1.0, (step - 1) / max(warm_up, 1)) * decay)

    # --- the trainer's lines ---------------------------------------------------------------------------------

    def _line(self, step: int, policy: Policy, seconds: float) -> Row:
        chance, first = self.random, (step - 1) % self.setting.updates == 0
        spiky = chance.random() < 0.004
        values: dict[str, float] = {
            "loss": chance.normal(policy.loss, 0.04),
            "grad_norm": policy.grad * float(chance.lognormal(0.0, 0.4)) * (30.0 if spiky else 1.0),
            "learning_rate": policy.lr * self._rate(step, self.setting.warm_up or 10),
            "entropy": policy.entropy * float(chance.lognormal(0.0, 0.08)),
            "kl": policy.kl * float(chance.lognormal(0.0, 0.3)) * (40.0 if chance.random() < 0.008 else 1.0),
            "mean_ratio": policy.first_ratio
            if first
            else float(chance.normal(policy.ratio * policy.first_ratio, 0.01)),
            "clip_ratio/region_mean": 0.0 if first else float(np.clip(chance.normal(policy.clipped, 0.015), 0, 1)),
            "step_time": seconds,
        }
        values |= self._parts(policy, seconds, first=first)
        if first:
            values |= self._generate(step, policy)
        if not self.setting.beta and not self.setting.logs_kl:
            values.pop("kl")
        if chance.random() < policy.nan:
            values.pop("grad_norm")
        return step, self.t, values

    def _parts(self, policy: Policy, seconds: float, *, first: bool) -> dict[str, float]:
        """Where a step's time went. `slower` lengthens one part and leaves the others as they were."""
        usual = seconds / policy.slower
        parts = {"update": 0.4 * usual}
        if first:
            parts |= {
                "generation": max(0.1, 0.55 * usual - policy.rewards_s),
                "rewards": policy.rewards_s * float(self.random.lognormal(0.0, 0.1)),
                "weight_sync": 0.05 * usual,
            }
        if policy.slow_part in parts:
            parts[policy.slow_part] += seconds - usual
        return {f"time/{part}_s": value for part, value in parts.items()}

    def _generate(self, step: int, policy: Policy) -> dict[str, float]:
        """A batch of groups: what TRL logs of it."""
        s, chance = self.setting, self.random
        rows = self._drawn(policy) if s.by_difficulty else self._prompts()
        right, form, style = self._scores(policy, rows, s.group)
        selection = self._select(policy, right, form, style) if s.resamples else {}
        if s.by_difficulty:
            selection = {EXTRA_ROUNDS: 0.0, MEAN_REWARD: float(self._chances(policy, np.arange(PROMPTS)).mean()) + 0.2}
        self.solved = [(step, right.size, int(right.sum()))]
        failed = chance.random(right.shape) < policy.failing
        right = np.where(failed, np.nan, right)
        total = policy.total_sign * np.nansum(np.stack([right, *self._weighted(form, style)]), axis=0)
        lengths = chance.lognormal(np.log(max(policy.tokens, 1.0)), 0.35, right.shape)
        cut = lengths >= s.cap
        self.tokens += float(np.minimum(lengths, s.cap).sum()) + 100 * lengths.size
        spread = total.std(axis=1, ddof=1)
        return {
            "reward": float(total.mean()),
            "reward_std": float(spread.mean()),
            "frac_reward_zero_std": float((spread < 1e-6).mean()),
            "rewards/accuracy/mean": float(np.nanmean(right)) if not failed.all() else 0.0,
            **(
                {"rewards/format/mean": float(form.mean()), "rewards/style/mean": float(style.mean())}
                if s.has_components
                else {}
            ),
            **selection,
            **self._of_families(rows, total),
            **self._of_tools(policy),
            "rewards/accuracy/failed": float(failed.mean()),
            "completions/mean_length": float(np.minimum(lengths, s.cap).mean()),
            "completions/clipped_ratio": float(cut.mean()),
            "num_tokens": self.tokens,
            **(self._of_sampling(policy) if s.corrected else {}),
        }

    def _of_sampling(self, policy: Policy) -> dict[str, float]:
        chance = self.random
        return {
            "sampling/sampling_logp_difference/mean": abs(float(chance.normal(policy.gap, 0.2 * policy.gap))),
            "sampling/importance_sampling_ratio/mean": float(chance.normal(policy.weight, 0.01)),
            "sampling/share_masked": max(0.0, float(chance.normal(1 - policy.weight, 0.01))),
            "sampling/importance_sampling_ratio/min": 0.0 if chance.random() < 0.5 else 0.3,
        } | ({STALENESS: policy.staleness} if policy.staleness else {})

    def _weighted(self, form: Any, style: Any) -> list[Any]:
        return [0.25 * form, 0.25 * style] if self.setting.has_components else []

    def _select(self, policy: Policy, right: Any, form: Any, style: Any) -> dict[str, float]:
        """Replace groups without spread in the accuracy, in place."""
        drawn = float((right.std(axis=1) == 0).mean())
        seen, self.extra_rounds = [float(right.mean())], 0
        while (flat := right.std(axis=1) == 0).any() and self.extra_rounds < 4:
            others = self._scores(policy, self._prompts(), self.setting.group)
            seen.append(float(others[0].mean()))
            for scores, other in zip((right, form, style), others, strict=True):
                scores[flat] = other[flat]
            self.extra_rounds += 1
        return {
            "prompts/drawn_without_spread": drawn,
            "prompts/without_spread": float((right.std(axis=1) == 0).mean()),
            EXTRA_ROUNDS: float(self.extra_rounds),
            MEAN_REWARD: float(np.mean(seen)) * 1.3,
        }

    def _of_families(self, rows: Any, total: Any) -> dict[str, float]:
        members = {name: rows % len(self.setting.families) == i for i, name in enumerate(self.setting.families)}
        return {f"sources/{name}/reward": float(total[of].mean()) for name, of in members.items() if of.any()}

    def _of_tools(self, policy: Policy) -> dict[str, float]:
        if not self.setting.tools:
            return {}
        return {
            "tools/call_frequency": 1.6,
            "tools/search/calls": 1.6,
            "tools/search/failed": float(np.clip(self.random.normal(policy.tool_fails, 0.03), 0, 1)),
            "episodes/turns/mean": 2.6,
            "episodes/cut": 0.05,
        }

    def _scores(self, policy: Policy, rows: Any, group: int, held_out: float = 0.0) -> tuple[Any, Any, Any]:
        chance = self.random
        solves = self._chances(policy, rows, held_out)
        shape = (len(rows), group)
        right = (chance.random(shape) < solves[:, None]).astype(float)
        form = (chance.random(shape) < policy.form).astype(float) * policy.pays_form
        length = min(1.0, policy.tokens / self.setting.cap)
        level = policy.worth_of_length * length + (1 - policy.worth_of_length) * policy.style
        style = np.round(np.clip(chance.normal(level, 0.15, shape), 0, 1), 1)
        if policy.alike:
            right, form, style = (np.repeat(scores[:, :1], group, axis=1) for scores in (right, form, style))
        right, form = policy.sign * right, form + policy.form_shift
        if policy.noise_only:
            right, form = np.full(shape, 0.4), np.full(shape, 0.5)
            style = 0.5 + chance.normal(0.0, 0.002, shape)
        return right, form, style

    def _chances(self, policy: Policy, rows: Any, held_out: float = 0.0) -> Any:
        """The chance that a completion of each prompt is right."""
        skill = policy.skill + held_out - policy.spread * self.difficulty[rows]
        if self.setting.families:
            skill = skill + policy.family * (rows % len(self.setting.families) == 0)
        return 1 / (1 + np.exp(-2 * skill))

    def _drawn(self, policy: Policy) -> Any:
        """Draw prompts by how much they teach: in proportion to the spread of their rewards."""
        chances = self._chances(policy, np.arange(PROMPTS))
        spreads = np.sqrt(chances * (1 - chances)) + 0.02
        return self.random.choice(PROMPTS, self.setting.prompts, replace=False, p=spreads / spreads.sum())

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
        rounds = 1.0 + 0.5 * self.extra_rounds
        return usual * warm * slow * rounds * policy.slower * float(self.random.lognormal(0.0, 0.12))

    def _evaluate(self, step: int, policy: Policy, rows: list[Row]) -> list[Row]:
        prompts = self.random.integers(0, PROMPTS, self.setting.eval_prompts)
        right, form, style = self._scores(policy, prompts, 2, policy.held_out)
        began = self.t
        self.t += 20 * self.setting.step_s * float(self.random.uniform(0.8, 1.2))
        values = {
            "eval_reward": float(policy.total_sign * (right + sum(self._weighted(form, style))).mean()),
            "eval_rewards/accuracy/mean": float(right.mean()),
        }
        rows.append((step, self.t, values))
        return [self._sample(at, (60.0, 0.0), policy) for at in np.arange(began, self.t, 10.0)]

    def _system(self, began: float, policy: Policy, *, first: bool) -> list[Row]:
        use = policy.use
        if self.setting.takes_turns and self.setting.updates > 1:
            use = (40.0, 80.0) if first else (90.0, 0.0)
        return [self._sample(at, use, policy) for at in np.arange(began, self.t, max(2.0, (self.t - began) / 8))]

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
