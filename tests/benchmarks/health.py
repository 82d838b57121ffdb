"""How well the health rules name what is wrong with a run, and how often they alarm for nothing, on generated histories
(tests/benchmarks/_histories.py).

Each kind of illness begins at a known step of a run that learns until then; `named` is the share of ill runs for which
a rule that names the illness opens a finding, `delay` the steps until then. `misnamed` are ill runs whose alerts all
say something else. `advice_right` is the share of ill runs for which the first sentences of the first finding name the
cause. A healthy run should raise no alert at all, and a run that is too short must not be called healthy.
"""

from __future__ import annotations

import argparse
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from tests.benchmarks._figures import percentile
from tests.benchmarks._healthy_kinds import HEALTHY, a_short_run
from tests.benchmarks._histories import history
from tests.benchmarks._ill_kinds import KINDS
from tests.benchmarks._kinds import Draw, Kind
from tests.benchmarks._policies import Change, Policy, Setting
from tests.runs.insight.health.watched import Watched

T = TypeVar("T")
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
    cause: str = ""
    """Pattern of the words that name the cause; none if the rules' own sentences do."""


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
    "becomes sure of everything": _ill("entropy entropy_fall", _drift(60, entropy=0.008)),
    "turns into noise": _ill("entropy_rise", _drift(60, entropy=3.0, skill=-3.0, form=0.2)),
    "writes gibberish": _ill("gibberish", _texts(gibberish=0.5)),
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
    "says the same in a group": _ill("identical", _texts(identical=0.95)),
    "games the form": _ill("components component_falling", lambda p, since: _gaming(p, since)),
    "samples from another policy": _ill("stale", _set(gap=0.3)),
    "masks most of a batch": _ill("stale_mean masked", _set(weight=0.4)),
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
        "eval_falling eval_gap", lambda p, since: setattr(p, "held_out", -since / 100), setting={"eval_every": 20}
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
    ill = [
        *(_ill_run(name, illness, seed) for name, illness in _chosen(ILLNESSES, options) for seed in _seeds(options)),
        *(_odd_run(name, kind, seed, options) for name, kind in _chosen(KINDS, options) for seed in _seeds(options)),
    ]
    well = [_odd_run(name, kind, seed, options) for name, kind in _chosen(HEALTHY, options) for seed in _seeds(options)]
    well += [_healthy_run(options.first_seed + seed) for seed in range(options.healthy)]
    short = [_odd_run("a short run", Kind(a_short_run), seed, options) for seed in _seeds(options)]
    return _counted(ill, well, short)


def _counted(ill: Sequence[Result], well: Sequence[Result], short: Sequence[Result]) -> dict[str, Any]:
    several = [result for result in ill if result.updates > 1]
    delays = sorted(float(result.delay) for result in ill if result.delay is not None)
    return {
        "named": _share(result.delay is not None for result in ill),
        "named_with_several_updates": _share(result.delay is not None for result in several),
        "misnamed": _share(result.delay is None and bool(result.alerts) for result in ill),
        "advice_right": _share(result.is_right for result in ill),
        "one_alert": _share(len(result.alerts) <= 1 for result in ill),
        "delay_p50_steps": percentile(delays, 0.5) if delays else None,
        "delay_p90_steps": percentile(delays, 0.9) if delays else None,
        "healthy_at_most_one_alarm": _share(len(result.alerts) <= 1 for result in well),
        "healthy_bad_alarms": sum(result.was_bad for result in well),
        "alarms_per_healthy_run": round(sum(len(result.alerts) for result in well) / max(len(well), 1), 3),
        "short_called_healthy": sum(result.called_well for result in short),
        "runs": {"ill": len(ill), "kinds": len({result.name for result in ill}), "healthy": len(well)},
        "offenders": {
            "named": [f"{each}: {each.listed}" for each in ill if each.delay is None],
            "advice_right": [f"{each}: {each.text}" for each in ill if not each.is_right],
            "one_alert": [f"{each}: {each.listed}" for each in ill if len(each.alerts) > 1],
            "healthy": [
                f"{each}: {each.listed}{' BAD' * each.was_bad}" for each in well if each.alerts or each.was_bad
            ],
        },
    }


@dataclass
class Result:
    """The findings and the verdict of one run."""

    name: str
    updates: int
    alerts: list[str] = field(default_factory=list)
    """The messages: rule and step."""
    delay: int | None = None
    """Steps from the onset until it was named."""
    text: str = ""
    """The first sentence, and the first one of the advice, of the newest assessment with an alarm."""
    is_right: bool = False
    was_bad: bool = False
    called_well: bool = False

    def __str__(self) -> str:
        return f"{self.name}, {self.updates} updates a batch"

    @property
    def listed(self) -> str:
        return ", ".join(self.alerts) or "nothing"


def _ill_run(name: str, illness: Illness, seed: int) -> Result:
    chance = random.Random(f"{name} {seed}")
    given = dict(illness.setting)
    least = given.pop("least_updates", 1)
    updates = chance.choice([each for each in UPDATES if each >= least])
    onset = illness.onset * updates + 1 if illness.onset else 1
    steps = onset + max(given.pop("steps", 0), GENERATIONS * updates)
    setting = replace(Setting(updates=updates, steps=min(steps, 1600 + onset)), **given)
    return _watched(f"{name} {seed}", setting, chance.randrange(2**30), illness, onset)


def _odd_run(name: str, kind: Kind, seed: int, options: argparse.Namespace) -> Result:
    draw = Draw(name, seed, held_out=options.held_out)
    made = kind.make(draw)
    updates = int(made.setting["updates"])
    onset = made.onset * updates + 1
    setting = Setting(**made.setting, steps=onset - 1 + made.generations * updates)
    illness = Illness(kind.rules, made.change or (lambda policy, since: None), cause=kind.cause)
    return _watched(f"{name} {seed}", setting, draw.random.randrange(2**30), illness, onset)


def _healthy_run(seed: int) -> Result:
    setting = _healthy(random.Random(seed))
    return _watched(f"healthy {seed}", setting, seed + 10_000, Illness(frozenset(), _set()), 1)


def _watched(name: str, setting: Setting, seed: int, illness: Illness, onset: int) -> Result:
    run = Watched(setting.config())
    result = Result(name, setting.updates)
    for health in _lived(run, setting, seed, illness.change, onset):
        findings = [finding for finding in health["findings"] if finding["level"] != "note"]
        if result.delay is None and any(finding["rule"] in illness.rules for finding in findings):
            result.delay = run.step - onset
        if findings:
            first = findings[0]
            result.text = f"{first['rule']}: {_first_sentence(first['sentence'])} {_first_sentence(first['try'])}"
            words = re.search(illness.cause, result.text.partition(":")[2], re.IGNORECASE)
            result.is_right = bool(words) if illness.cause else first["rule"] in illness.rules
        result.was_bad |= health["verdict"] == "bad"
        result.called_well |= health["verdict"] == "well"
    result.alerts = [f"{rule} at {step}" for step, rule, _ in run.opened]
    return result


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=[.]) ", text, maxsplit=1)[0]


def _lived(run: Watched, setting: Setting, seed: int, change: Change, onset: int) -> Iterator[dict[str, Any]]:
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


def _chosen(kinds: Mapping[str, T], options: argparse.Namespace) -> list[tuple[str, T]]:
    return [(name, kind) for name, kind in kinds.items() if re.search(options.only, name)]


def _seeds(options: argparse.Namespace) -> range:
    return range(options.first_seed, options.first_seed + options.seeds)


def _share(values: Iterable[bool]) -> float:
    seen = list(values)
    return round(sum(seen) / len(seen), 3) if seen else 0.0


def _options(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench health")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each kind, ill or healthy")
    parser.add_argument("--first-seed", type=int, default=0, help="other histories of each kind, by seeds from here on")
    parser.add_argument("--healthy", type=int, default=40, help="more runs that only learn")
    parser.add_argument("--only", default="", help="kinds whose name matches this pattern")
    parser.add_argument("--held-out", action="store_true", help="draw the kinds' parameters from other ranges")
    return parser.parse_args(argv)
