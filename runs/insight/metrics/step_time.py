"""How long the parts of a step take, and advice on shortening them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from controlplane.platform.templatetags.figures import significant
from runs.engine.models import Run
from runs.engine.records import MetricChunk, MetricRow
from runs.engine.spec import spec_of
from runs.insight.metrics.chart_catalogue import STEP_PARTS
from runs.insight.metrics.chart_spec import colour
from runs.insight.metrics.series import Points
from workers.contract.run import overlapping
from workers.contract.run.hardware import Offload, Rollout, WeightSync
from workers.contract.run.spec import RunSpec
from workers.contract.wire.documents import ContractError
from workers.contract.wire.names import EventKind

REMAINDER = "rest"
SUBJECTS = {
    "generation": "Generation takes",
    "rewards": "Rewards take",
    "logps": "Log-probabilities take",
    "update": "The update takes",
    "weight_sync": "Sending the weights to vLLM takes",
    REMAINDER: "Work outside the timed parts takes",
}
AVERAGED_STEPS = 60
MIN_STEPS = 5
MIN_ADVISED_SHARE = {
    "generation": 0.5,
    "rewards": 0.2,
    "logps": 0.3,
    "update": 0.6,
    "weight_sync": 0.15,
    REMAINDER: 0.25,
}
"""Part -> the share of a step from which advice on the part is shown."""
MIN_TAIL_RATIO = 3.0
"""Ratio of a batch's longest completion to the mean length. Advice is shown from this ratio on."""


@dataclass(frozen=True)
class StepTimePart:
    name: str
    seconds: float
    share: float

    @property
    def sentence(self) -> str:
        """The share as a sentence without a full stop, such as `Rewards take 41% of each step`."""
        return f"{SUBJECTS[self.name]} {self.share:.0%} of each step"


@dataclass(frozen=True)
class Advice:
    part: StepTimePart
    text: str


@dataclass(frozen=True)
class StepTime:
    seconds: float
    steps: int
    parts: tuple[StepTimePart, ...]
    """The parts including the remainder, largest first."""
    advice: tuple[Advice, ...] = ()
    ahead: float | None = None
    """Seconds that vLLM took to generate the next batch during the step, or None if nothing is generated ahead."""

    @property
    def in_turns(self) -> float:
        """Seconds that a step would take if the next batch were not generated ahead."""
        waited_s = sum(part.seconds for part in self.parts if part.name == "generation")
        return self.seconds - waited_s + max(self.ahead or 0.0, waited_s)

    @property
    def segments(self) -> list[dict[str, Any]]:
        """Segments of the bar, coloured as in the chart “Where a step's time goes”."""
        seconds = {part.name: part.seconds for part in self.parts}
        looks = [(name, label, colour(i)) for i, (name, label) in enumerate(STEP_PARTS.items())] + [
            (REMAINDER, REMAINDER, "c8")
        ]
        return [
            {"label": label, "value": seconds[name], "colour": colour_}
            for name, label, colour_ in looks
            if name in seconds
        ]


def of_run(run: Run) -> StepTime | None:
    """Average the step time over the newest steps except the run's first; return None before MIN_STEPS are timed."""
    timed_metrics = [f"time/{part}_s" for part in STEP_PARTS]
    columns = _newest_values(run, ["step_time", *timed_metrics, overlapping.AHEAD_SECONDS])
    total, seconds_ahead = columns["step_time"], columns[overlapping.AHEAD_SECONDS]
    if len(total) < MIN_STEPS or not any(columns[name] for name in timed_metrics):
        return None
    steps = sorted(total)[-AVERAGED_STEPS:]
    seconds = sum(total[step] for step in steps) / len(steps)
    if seconds <= 0:
        return None
    means = {
        part: sum(columns[f"time/{part}_s"].get(step, 0.0) for step in steps) / len(steps)
        for part in STEP_PARTS
        if columns[f"time/{part}_s"]
    }
    means[REMAINDER] = max(0.0, seconds - sum(means.values()))
    parts = tuple(
        StepTimePart(part, mean, min(1.0, mean / seconds))
        for part, mean in sorted(means.items(), key=lambda item: -item[1])
    )
    ahead_seconds = sum(seconds_ahead.get(step, 0.0) for step in steps) / len(steps) if seconds_ahead else None
    return StepTime(seconds, len(steps), parts, tuple(_advice(run, parts)), ahead_seconds)


def _newest_values(run: Run, names: Sequence[str]) -> dict[str, dict[int, float]]:
    """Return each metric's newest values by step, without the first step, from raw rows or from an old run's chunks."""
    by_name: dict[str, dict[int, float]] = {name: {} for name in names}
    rows = MetricRow.objects.filter(run=run, kind=EventKind.TRAIN, superseded=False, values__has_key="step_time")
    lines = list(rows.order_by("-seq").values_list("step", "values")[: AVERAGED_STEPS + 1])
    for step, values in lines:
        for name in names:
            if step is not None and step > 1 and isinstance(value := values.get(name), int | float):
                by_name[name][step] = float(value)
    if len(lines) <= AVERAGED_STEPS and run.folded_seq:
        _prepend(run, by_name)
    return by_name


def _prepend(run: Run, by_name: dict[str, dict[int, float]]) -> None:
    """Add the values of the newest chunks, which have the same length because metrics are folded together."""
    chunks = MetricChunk.objects.filter(run=run, metric__in=by_name).order_by("-first_seq")
    for name, count, data in chunks.values_list("metric", "points", "data")[: len(by_name)]:
        points = Points.unpack(data, count)
        for step, value in zip(
            points.step[-AVERAGED_STEPS:].tolist(), points.value[-AVERAGED_STEPS:].tolist(), strict=True
        ):
            if step > 1:
                by_name[name].setdefault(step, value)


# --- advice -----------------------------------------------------------------------------------------------------------


def _advice(run: Run, parts: Sequence[StepTimePart]) -> Iterator[Advice]:
    try:
        spec = spec_of(run)
    except ContractError:  # of another version
        return
    for part in parts:
        if part.share >= MIN_ADVISED_SHARE[part.name] and (
            advice := " ".join(_ADVISERS[part.name](spec, run.last_metrics))
        ):
            yield Advice(part, advice)


def _generation(spec: RunSpec, last_metrics: Mapping[str, Any]) -> Iterator[str]:
    hardware = spec.hardware
    if hardware.rollout == Rollout.TRANSFORMERS:
        if hardware.trainer_gpus:
            yield "Transformers generates the completions. With vLLM, generation took a third of the time in our runs."
        else:
            yield "On a CPU, shorter or fewer completions help most."
        return
    mean, longest = (_number(last_metrics.get(f"completions/{name}_length")) for name in ("mean", "max"))
    if mean and longest and longest > MIN_TAIL_RATIO * mean:
        yield (
            f"The batch waits for its longest completion, which has {significant(longest)} tokens, while the mean "
            f"is {significant(mean)}. A lower completion limit shortens that wait."
        )
    server = hardware.vllm_server
    if not spec.ahead and server is not None and (server.attached or server.own_gpus):
        yield "The trainer's GPUs idle during generation. One step ahead generates the next batch during the update."
    if server is not None and server.enforce_eager:
        yield "The profile runs vLLM without CUDA graphs, which is several times slower: turn off enforce eager."
    waiting = _number(last_metrics.get("vllm/requests_waiting"))
    if waiting and waiting >= 1:
        yield (
            f"vLLM's cache is full, so requests are waiting ({significant(waiting)}): give it more memory, or add a "
            "second server."
        )
    elif server is not None and not server.attached and server.count == 1 and hardware.trainer_gpus > 1:
        yield "Moving a GPU from the trainer to a second vLLM server would share the work."


def _rewards(spec: RunSpec, last_metrics: Mapping[str, Any]) -> Iterator[str]:
    for functions, advice in _SLOW_REWARD_ADVICE.items():
        names = [reward.name for reward in spec.rewards if reward.function in functions]
        if names:
            yield advice.format(names=" and ".join(names), runs="runs" if len(names) == 1 else "run")
    if not any(reward.function in functions for reward in spec.rewards for functions in _SLOW_REWARD_ADVICE):
        yield (
            "The GPUs are idle while rewards are computed. Try the config in the playground, and remove components "
            "that you don't need."
        )


_SLOW_REWARD_ADVICE = {
    ("python_executes", "tests_passed", "input_output_tests", "same_output", "same_returns"): (
        "{names} {runs} code in the sandbox: a shorter time limit, fewer tests per row or more CPU cores help."
    ),
    ("python",): "{names} {runs} custom code: batch its work, and cache what repeats between completions.",
    ("judge",): "The step waits for the judge of {names}: allow more concurrent requests, or ask for shorter answers.",
    ("reward_model",): "{names} {runs} a reward model next to the policy: use a smaller model or shorter completions.",
}
"""Keys of rewards in the library -> advice if they are slow."""


def _logps(spec: RunSpec, last_metrics: Mapping[str, Any]) -> Iterator[str]:
    if spec.grpo.get("beta"):
        yield "Each step also runs the reference model, because β is above 0. With β = 0, that pass isn't needed."
    if spec.hardware.rollout != Rollout.TRANSFORMERS and spec.grpo.get("vllm_importance_sampling_correction", True):
        yield "The correction of vLLM's sampling needs another pass. It guards against drift, so keep it if you can."


def _update(spec: RunSpec, last_metrics: Mapping[str, Any]) -> Iterator[str]:
    grpo, hardware = spec.grpo, spec.hardware
    size, passes = grpo.get("per_device_train_batch_size", 8), grpo.get("gradient_accumulation_steps", 1)
    if hardware.trainer_gpus and isinstance(passes, int) and isinstance(size, int) and passes > 1:
        yield (
            f"The update takes {passes} passes with {size} completions each. If the GPU has enough memory (Spec shows "
            f"how much was used), {size * 2} × {max(1, passes // 2)} needs fewer passes."
        )
    checkpointing = grpo.get("gradient_checkpointing", hardware.gradient_checkpointing)
    if hardware.trainer_gpus and checkpointing is not False:
        yield "Without gradient checkpointing, no activation is computed twice, which saves time but needs more memory."
    if hardware.offload is not Offload.NONE:
        yield "The profile offloads to the CPU, which is slow. A profile that shards or trains a LoRA avoids this."


def _weight_sync(spec: RunSpec, last_metrics: Mapping[str, Any]) -> Iterator[str]:
    server = spec.hardware.vllm_server
    if server is not None and server.weight_sync == WeightSync.NCCL and spec.lora is not None:
        yield "With a LoRA, a profile that hot-swaps the adapter in vLLM sends only the adapter."
    yield "If each generation has more completions (steps per generation), weights are sent less often."


_ADVISERS: dict[str, Callable[[RunSpec, Mapping[str, Any]], Iterator[str]]] = {
    "generation": _generation,
    "rewards": _rewards,
    "logps": _logps,
    "update": _update,
    "weight_sync": _weight_sync,
    REMAINDER: lambda spec, last: iter(
        ("This includes loading data, saving and logging. Save less often, and check disk and CPU under Machine.",)
    ),
}


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
