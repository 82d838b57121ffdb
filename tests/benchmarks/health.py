"""How well the health rules name what is wrong with a run, and how often they alarm for nothing, on generated histories
(tests/benchmarks/_histories.py).

Each kind of illness begins at a known step of a run that learns until then; `named` is the share of ill runs for which
a rule that names the illness opens a finding, `delay` the steps until then. `misnamed` are ill runs whose alerts all
say something else. A healthy run should raise no alert at all.
"""

from __future__ import annotations

import argparse
import random
from dataclasses import dataclass, field, replace
from typing import Any

from tests.benchmarks._figures import percentile
from tests.benchmarks._histories import Change, Policy, Setting, history
from tests.runs.insight.health.watched import Watched

EVERY = 5
"""Generations between assessments."""
GENERATIONS = 160
"""An ill run goes on for at least so many after the onset."""
UPDATES = (1, 2, 4, 8, 16)


@dataclass(frozen=True)
class Illness:
    rules: frozenset[str]
    """Those that name it."""
    change: Change
    setting: dict[str, Any] = field(default_factory=dict)
    onset: int = 60
    """In generations; 0: from the first step."""


def _set(**values: Any) -> Change:
    def change(policy: Policy, since: int) -> None:
        for name, value in values.items():
            setattr(policy, name, value)

    return change


def _drift(steps: float, **values: float) -> Change:
    """Towards these values, within so many steps."""

    def change(policy: Policy, since: int) -> None:
        share = min(1.0, since / steps)
        for name, value in values.items():
            setattr(policy, name, getattr(policy, name) * (1 - share) + value * share)

    return change


def _texts(**shares: float) -> Change:
    return lambda policy, since: policy.texts.update(shares)


def _ill(rules: str, change: Change, **more: Any) -> Illness:
    return Illness(frozenset(rules.split()), change, **more)


SEVERAL = {"least_updates": 2}
ILLNESSES: dict[str, Illness] = {
    "drifts from the reference": _ill("kl", _drift(40, kl=1.5)),
    "has most tokens clipped": _ill("clip", _set(clipped=0.5), setting=SEVERAL),
    "moves far within a batch": _ill("ratio", _set(ratio=1.35), setting=SEVERAL),
    "becomes sure of everything": _ill("entropy", _drift(60, entropy=0.008)),
    "turns into noise": _ill("entropy_rise", _drift(60, entropy=3.0, skill=-3.0, form=0.2)),
    "writes gibberish": _ill("gibberish", _texts(odd=0.5)),
    "learns nothing": _ill("reward_stuck", _set(), setting={"speed": 0.0, "steps": 400}, onset=0),
    "forgets": _ill("reward_falling component_falling", _drift(60, skill=-3.0)),
    "has a broken component": _ill("component_low", _set(form=0.0), onset=0),
    "loses a component": _ill("component_falling component_low components", _drift(60, form=0.1)),
    "has prompts that are too hard or too easy": _ill("zero_spread", _set(spread=30.0, form=1.0, style=2.0)),
    "writes up to the limit": _ill("length_cap truncation", _drift(80, tokens=950.0)),
    "is cut from the start": _ill("truncation", _set(tokens=4000.0), onset=0),
    "collapses to a few tokens": _ill("length_collapse", _drift(30, tokens=12.0)),
    "repeats itself": _ill("repetition", _texts(repeated=0.6)),
    "says nothing": _ill("empty", _texts(empty=0.3)),
    "says the same in a group": _ill("identical", _texts(same=0.95)),
    "games the form": _ill("components component_falling", lambda p, since: _gaming(p, since)),
    "samples from another policy": _ill("stale", _set(gap=0.3)),
    "masks most of a batch": _ill("stale_mean", _set(weight=0.4)),
    "has gradient spikes": _ill("grad_spikes", lambda p, since: setattr(p, "grad", 20.0 if since % 9 == 0 else 0.4)),
    "has large gradients": _ill("grad_high", _set(grad=40.0)),
    "has no gradient": _ill("grad_zero", _set(grad=0.0)),
    "learns at rate 0": _ill("lr_zero", _set(lr=0.0, grad=0.4)),
    "explodes": _ill("loss", _set(loss=-30.0)),
    "has NaN in half of the steps": _ill("not_finite", _set(nan=0.5)),
    "becomes slow": _ill("throughput", _set(slower=1.8)),
    "leaves a GPU idle": _ill("gpu_idle", _set(use=(75.0, 2.0))),
    "waits for rewards": _ill("slow_rewards", lambda p, since: setattr(p, "rewards_s", 40.0)),
    "has a rank that straggles": _ill("straggler", _set(power=(420.0, 190.0), slower=1.3)),
    "runs hot": _ill("gpu_hot", _set(heat=93.0)),
    "does worse on held-out prompts": _ill(
        "eval_falling", lambda p, since: setattr(p, "held_out", -since / 100), setting={"eval_every": 20}
    ),
    "fills the GPU's memory": _ill(
        "gpu_memory", lambda p, since: setattr(p, "gpu_mib", 60_000.0 + 80_000 * min(1.0, since / 300))
    ),
    "fills the host's memory": _ill(
        "host_memory", lambda p, since: setattr(p, "host_mib", 20_000.0 + 480_000 * min(1.0, since / 300))
    ),
    "fails to score rows": _ill("component_failing", _set(failing=0.35)),
    "rewards noise": _ill("reward_noise", _set(noise_only=True), onset=0),
    "learns the form alone": _ill(
        "component_stuck", lambda p, since: setattr(p, "skill", -2.2), onset=0, setting={"speed": 0.03}
    ),
    "has vLLM's cache full": _ill("vllm_full", _set(cache=99.0, waiting=40.0)),
}


def _gaming(policy: Policy, since: int) -> None:
    share = min(1.0, since / 60)
    policy.form += (1.0 - policy.form) * share
    policy.style += (1.0 - policy.style) * share
    policy.skill -= 3.0 * share


def _healthy(chance: random.Random) -> Setting:
    """Any run that learns."""
    return Setting(
        updates=chance.choice((1, 1, 2, 2, 4, 8)),
        prompts=chance.choice((4, 8, 16, 32)),
        group=chance.choice((4, 8, 16)),
        step_s=chance.choice((1.0, 8.0, 30.0, 120.0, 400.0)),
        speed=chance.choice((0.004, 0.008, 0.015, 0.03, 0.08)),
        start=chance.uniform(-2.2, 0.3),
        eval_every=chance.choice((0, 25, 50)),
        save_every=chance.choice((0, 50, 200)),
        beta=chance.choice((0.0, 0.04)),
        resume_at=chance.choice((0, 0, 333)),
        spread=chance.choice((0.8, 1.5, 2.5)),
        steps=600,
    )


def main(argv: list[str] | None = None) -> dict[str, Any]:
    options = _options(argv or [])
    kinds = {name: illness for name, illness in ILLNESSES.items() if options.only in name}
    results = {
        name: [_ill_run(illness, f"{name} {seed}") for seed in range(options.seeds)] for name, illness in kinds.items()
    }
    alarms = [_healthy_run(seed) for seed in range(options.healthy)]
    runs = [result for each in results.values() for result in each]
    several = [result for result in runs if result.updates > 1]
    delays = sorted(float(result.delay) for result in runs if result.delay is not None)
    counts = [len(each) for each in alarms]
    return {
        "named": _share(result.delay is not None for result in runs),
        "named_with_several_updates": _share(result.delay is not None for result in several),
        "misnamed": _share(result.delay is None and bool(result.alerts) for result in runs),
        "one_alert": _share(len(result.alerts) <= 1 for result in runs),
        "delay_p50_steps": percentile(delays, 0.5) if delays else None,
        "delay_p90_steps": percentile(delays, 0.9) if delays else None,
        "healthy_at_most_one_alarm": _share(count <= 1 for count in counts),
        "alarms_per_healthy_run": round(sum(counts) / max(len(counts), 1), 3),
        "runs": {"ill": len(runs), "kinds": len(kinds), "healthy": len(alarms)},
        "offenders": {
            "named": [
                f"{name}, {result.updates} updates a batch: {', '.join(result.alerts) or 'nothing'}"
                for name, each in results.items()
                for result in each
                if result.delay is None
            ],
            "one_alert": [
                f"{name}: {', '.join(result.alerts)}"
                for name, each in results.items()
                for result in each
                if len(result.alerts) > 1
            ],
            "alarms_per_healthy_run": [f"{seed}: {', '.join(each)}" for seed, each in enumerate(alarms) if each],
        },
    }


@dataclass(frozen=True)
class Result:
    updates: int
    alerts: list[str]
    delay: int | None
    """Steps from the onset until it was named."""


def _ill_run(illness: Illness, name: str) -> Result:
    chance = random.Random(name)
    given = dict(illness.setting)
    least = given.pop("least_updates", 1)
    updates = chance.choice([each for each in UPDATES if each >= least])
    onset = illness.onset * updates + 1 if illness.onset else 1
    steps = onset + max(given.pop("steps", 0), GENERATIONS * updates)
    setting = replace(Setting(updates=updates, steps=min(steps, 1600 + onset)), **given)
    run = Watched(setting.config())
    named: int | None = None
    for health in _lived(run, setting, chance.randrange(2**30), illness.change, onset):
        if named is None and any(f["rule"] in illness.rules and f["level"] != "note" for f in health["findings"]):
            named = run.step - onset
    return Result(updates, [rule for _, rule, _ in run.opened], named)


def _healthy_run(seed: int) -> list[str]:
    setting = _healthy(random.Random(seed))
    run = Watched(setting.config())
    for _ in _lived(run, setting, seed + 10_000):
        pass
    return [f"{rule} at {step}" for step, rule, _ in run.opened]


def _lived(run: Watched, setting: Setting, seed: int, change: Change | None = None, onset: int = 0) -> Any:
    """Each assessment of the run."""
    texts, solved = [], []
    for generated in history(setting, seed, change, onset):
        if generated.resumed:
            run.resume(generated.step - 1, generated.rows[0][1])
        run.rows += generated.rows
        run.system = [*run.system, *generated.system][-400:]
        run.t = generated.rows[-1][1]
        texts += generated.texts
        solved += generated.solved
        if generated.step % (EVERY * setting.updates) == 0:
            yield run.look(texts, solved)
            texts, solved = [], []


def _share(values: Any) -> float:
    seen = list(values)
    return round(sum(seen) / len(seen), 3) if seen else 0.0


def _options(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench health")
    parser.add_argument("--seeds", type=int, default=5, help="runs of each kind of illness")
    parser.add_argument("--healthy", type=int, default=100, help="healthy runs")
    parser.add_argument("--only", default="", help="kinds whose name contains this")
    return parser.parse_args(argv)
