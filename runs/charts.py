"""What the run page draws: which charts, lines and tiles a run has, told by its frozen spec.

A table with one interpreter. The page reserves the space from it before any number is there, and the browser draws
what it says; so what is normal for this run (no KL with beta 0, a ratio of 1 by construction) is decided here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from workers.contract import EventKind, Rollout, RunSpec

COLOURS = 8
MARKED = frozenset({"status", "requested", "resumed", EventKind.CHECKPOINT, EventKind.NOTE, EventKind.PROCESS_EXITED})
"""Kinds of events that the charts show on their x axis."""
DERIVED = {"tokens_per_second": "num_tokens"}
"""Figures that the browser works out, and the metric it does so from."""


@dataclass(frozen=True)
class Line:
    metric: str
    label: str
    colour: str = "c1"
    band: str = ""
    """Metric of the standard deviation, drawn as a band around the line."""
    evaluation: str = ""
    """The same figure on the held-out rows, drawn as points."""


@dataclass(frozen=True)
class Bound:
    """A faint line with a name: where people who run GRPO start to look."""

    value: float
    name: str


@dataclass(frozen=True)
class Chart:
    id: str
    title: str
    lines: tuple[Line, ...]
    format: str = "number"
    """number, percent (of a share), percent100, seconds, tokens, mib, watts, rate"""
    zero: bool = False
    """The y axis starts at 0, because 0 means something here."""
    x: str = "step"
    """step | time"""
    bounds: tuple[Bound, ...] = ()
    log: bool = False
    note: str = ""
    help: str = ""


@dataclass(frozen=True)
class Group:
    title: str
    charts: tuple[Chart, ...]


@dataclass(frozen=True)
class Tile:
    """One figure of the headline row."""

    metric: str
    label: str
    format: str = "number"
    help: str = ""
    note: str = ""
    """Said instead of a figure that can't move in this run."""


def plan(spec: RunSpec, gpus: tuple[int, ...] = ()) -> list[Group]:
    """The groups of charts of a run, in the order people read them."""
    groups = [
        Group("Reward", tuple(_reward(spec))),
        Group("Policy", tuple(_policy(spec))),
        Group("Completions", _completions()),
        Group("Speed", _speed()),
        Group("Machine", tuple(_machine(gpus))),
    ]
    if spec.hardware.rollout is not Rollout.TRANSFORMERS:
        groups.insert(4, Group("Sampling", _sampling()))
    return groups


def as_json(groups: list[Group]) -> list[dict[str, Any]]:
    """For the browser, as one JSON document in the page."""
    return [asdict(chart) for group in groups for chart in group.charts]


def metrics(groups: list[Group]) -> list[str]:
    """Every metric that the charts need, once, in order."""
    seen: dict[str, None] = {}
    for group in groups:
        for chart in group.charts:
            for line in chart.lines:
                for name in (line.metric, line.band, line.evaluation):
                    if name:
                        seen[DERIVED.get(name, name)] = None
    return list(seen)


def tiles(spec: RunSpec, gpus: tuple[int, ...] = ()) -> list[Tile]:
    """The headline row. A tile whose figure is constant by construction says so instead."""
    row = [
        Tile("reward", "Reward", help="Weighted sum of the components, mean over the batch"),
        Tile("kl", "KL", help="Distance from the reference model", note="" if beta(spec) else "off: β is 0"),
        _clip_tile(spec),
        Tile("entropy", "Entropy", help="Mean token entropy, in nats"),
        Tile("completions/mean_length", "Length", "tokens", help="Mean completion length"),
        Tile(
            "frac_reward_zero_std",
            "Zero-spread",
            "percent",
            help="Share of prompt groups whose completions all got the same reward: nothing is learnt from them",
        ),
        Tile("tokens_per_second", "Speed", "rate", help="Prompt and completion tokens of a step over its time"),
    ]
    if gpus:
        name = f"gpu/{gpus[0]}/memory_mib"
        row.append(Tile(name, f"GPU {gpus[0]}", "mib", help="Memory in use on the run's first GPU"))
    else:
        row.append(Tile("host/memory_mib", "Host memory", "mib", help="Memory in use on the host"))
    return row


def _clip_tile(spec: RunSpec) -> Tile:
    lines = _clipped(str(spec.grpo.get("loss_type") or ""))
    help_ = "Share of tokens whose ratio was clipped"
    if not lines:
        return Tile("", "Clipped", help=help_, note="this loss clips nothing")
    once = "0: on-policy" if updates_per_batch(spec) <= 1 else ""
    return Tile(lines[0].metric, "Clipped", "percent", help=help_, note=once)


def beta(spec: RunSpec) -> float:
    # TRL's own default is 0: no reference model is loaded and no KL is logged.
    return float(spec.grpo.get("beta") or 0.0)


def updates_per_batch(spec: RunSpec) -> float:
    """Optimizer steps taken on one batch of completions; with 1 the policy has not moved when the ratio is read."""
    iterations = float(spec.grpo.get("num_iterations") or 1)
    accumulation = float(spec.grpo.get("gradient_accumulation_steps") or 1)
    generation = float(spec.grpo.get("steps_per_generation") or accumulation)
    return iterations * max(1.0, generation / accumulation)


def _reward(spec: RunSpec) -> Iterator[Chart]:
    total = Line("reward", "reward", "c8", band="reward_std", evaluation="eval_reward")
    yield Chart("reward", "Reward, total", (total,), help="Weighted sum of the components; the band is one deviation")
    for i, reward in enumerate(spec.rewards):
        colour = f"c{i % COLOURS + 1}"
        mean = f"rewards/{reward.name}/mean"
        line = Line(mean, reward.name, colour, band=f"rewards/{reward.name}/std", evaluation=f"eval_{mean}")
        yield Chart(f"reward-{i}", reward.name, (line,), help=f"Unweighted mean; weight {reward.weight:g}")
    yield Chart(
        "zero-spread",
        "Groups without spread",
        (Line("frac_reward_zero_std", "zero spread", "c6"),),
        format="percent",
        zero=True,
        bounds=(Bound(0.8, "little is learnt above"),),
        help="Share of prompt groups whose completions all got the same reward",
    )


def _policy(spec: RunSpec) -> Iterator[Chart]:
    if beta(spec):
        kl = (Line("kl", "KL", "c1"),)
        yield Chart("kl", "KL to the reference", kl, zero=True, bounds=(Bound(0.5, "drifting above"),))
    once = updates_per_batch(spec) <= 1
    clipped = _clipped(str(spec.grpo.get("loss_type") or ""))
    if clipped:
        yield Chart(
            "clip",
            "Clipped tokens",
            clipped,
            format="percent",
            zero=True,
            bounds=(Bound(0.3, "large steps above"),),
            note="0 by construction: one update per batch." if once else "",
        )
    yield Chart(
        "ratio",
        "Policy ratio",
        (Line("mean_ratio", "ratio", "c1"),),
        bounds=(Bound(0.8, "usual from"), Bound(1.2, "usual to")),
        note="n/a: one update per batch, so the ratio is 1 by construction." if once else "",
    )
    yield Chart("entropy", "Entropy", (Line("entropy", "entropy", "c1"),), zero=True, help="Mean token entropy, nats")
    yield Chart("loss", "Loss", (Line("loss", "loss", "c1"),), help="Near 0 is normal for GRPO: watch the reward")
    yield Chart("grad", "Gradient norm", (Line("grad_norm", "norm", "c1"),), zero=True)


def _clipped(loss_type: str) -> tuple[Line, ...]:
    """Not every loss clips, and TRL names the share after the loss."""
    if loss_type == "cispo":
        return (Line("cispo_clip_ratio", "all", "c1"),)
    if loss_type in ("sapo", "vespo"):
        return ()
    return (
        Line("clip_ratio/region_mean", "all", "c1"),
        Line("clip_ratio/low_mean", "low", "c2"),
        Line("clip_ratio/high_mean", "high", "c3"),
    )


def _completions() -> tuple[Chart, ...]:
    return (
        Chart(
            "length",
            "Length",
            (
                Line("completions/max_length", "max", "c5"),
                Line("completions/mean_length", "mean", "c1", evaluation="eval_completions/mean_length"),
                Line("completions/min_length", "min", "c2"),
            ),
            format="tokens",
            zero=True,
            help="Tokens of a completion",
        ),
        Chart(
            "truncated",
            "Cut at the length limit",
            (Line("completions/clipped_ratio", "cut", "c6"),),
            format="percent",
            zero=True,
            bounds=(Bound(0.3, "raise the limit above"),),
        ),
    )


def _speed() -> tuple[Chart, ...]:
    return (
        Chart("step-time", "Step time", (Line("step_time", "step", "c1"),), format="seconds", zero=True),
        Chart("tokens", "Tokens per second", (Line("tokens_per_second", "tok/s", "c3"),), format="rate", zero=True),
        Chart("lr", "Learning rate", (Line("learning_rate", "rate", "c1"),), zero=True),
    )


def _sampling() -> tuple[Chart, ...]:
    ratio = "sampling/importance_sampling_ratio"
    gap = "sampling/sampling_logp_difference"
    return (
        Chart(
            "sampling-gap",
            "Log-probability gap, vLLM to trainer",
            (Line(f"{gap}/mean", "mean", "c1"), Line(f"{gap}/max", "max", "c2")),
            zero=True,
        ),
        Chart(
            "sampling-ratio",
            "Importance ratio, vLLM to trainer",
            (
                Line(f"{ratio}/max", "max", "c2"),
                Line(f"{ratio}/mean", "mean", "c1"),
                Line(f"{ratio}/min", "min", "c5"),
            ),
        ),
    )


def _machine(gpus: tuple[int, ...]) -> Iterator[Chart]:
    if not gpus:
        memory = (Line("host/memory_mib", "used", "c1"),)
        yield Chart("host-memory", "Host memory", memory, format="mib", zero=True, x="time")
        cpu = (Line("host/cpu_percent", "CPU", "c3"),)
        yield Chart("host-cpu", "Host CPU", cpu, format="percent100", zero=True, x="time")
        return
    for id_, title, name, unit in (
        ("gpu-memory", "GPU memory", "memory_mib", "mib"),
        ("gpu-use", "GPU use", "util_percent", "percent100"),
        ("gpu-power", "GPU power", "power_w", "watts"),
    ):
        lines = tuple(Line(f"gpu/{g}/{name}", f"GPU {g}", f"c{i % COLOURS + 1}") for i, g in enumerate(gpus))
        yield Chart(id_, title, lines, format=unit, zero=True, x="time")
