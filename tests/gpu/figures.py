"""From what a run left to the figures of its set-up: tokens a second, step times, memory peaks and their parts."""

from __future__ import annotations

import itertools
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

GIB = 1024.0
"""MiB."""
_RESERVED = re.compile(r"memory/rank(\d+)/reserved_mib")
_USED = re.compile(r"gpu/(\d+)/memory_mib")
_VLLM = (
    # vLLM's own words at its start; of several workers each says it, and has a GPU of its own.
    re.compile(r"Model loading took ([\d.]+) GiB"),
    re.compile(r"Available KV cache memory: ([\d.]+) GiB"),
    re.compile(r"Graph capturing finished in .*?took ([\d.]+) GiB"),
)


@dataclass(frozen=True)
class Row:
    """A log line of the trainer, or a sample of the machine."""

    t: float
    step: int | None
    values: Mapping[str, float]


def steps_of(rows: Iterable[Row]) -> list[Row]:
    """The log lines of training steps; the summary at the end is none."""
    return [row for row in rows if "step_time" in row.values or "loss" in row.values]


def tokens_per_s(steps: Sequence[Row]) -> float | None:
    """Prompt and completion tokens of steps 2 and later (num_tokens, which TRL counts over all ranks) over the sum of
    their step_time; the first step pays for warming up."""
    later = [row for row in steps[1:] if row.values.get("step_time")]
    if not later or "num_tokens" not in steps[0].values:
        return None
    tokens = later[-1].values["num_tokens"] - steps[0].values["num_tokens"]
    return tokens / sum(row.values["step_time"] for row in later)


def step_seconds(steps: Sequence[Row]) -> list[float]:
    """From one log line to the next: all that a step costs, what is around it included."""
    return [later.t - earlier.t for earlier, later in itertools.pairwise(steps)]


def settled_seconds(steps: Sequence[Row]) -> list[float]:
    return step_seconds(steps)[len(steps) // 3 :]


def step_ratio(product: Sequence[Sequence[Row]], bare: Sequence[Sequence[Row]]) -> float | None:
    """Median step of the product over the bare script's; the first third of each run is left out, in which both
    still warm up."""
    mine = [seconds for steps in product for seconds in settled_seconds(steps)]
    theirs = [seconds for steps in bare for seconds in settled_seconds(steps)]
    if not mine or not theirs:
        return None
    return statistics.median(mine) / statistics.median(theirs)


def used_peaks(samples: Iterable[Row], receipt: Mapping[str, Any] | None, gpus: Sequence[int]) -> list[float]:
    """Most memory in use on each GPU by NVML, in GiB: all samples of the run, and its receipt."""
    peaks = dict.fromkeys(gpus, 0.0)
    for row in samples:
        for name, value in row.values.items():
            found = _USED.fullmatch(name)
            if found and int(found[1]) in peaks:
                peaks[int(found[1])] = max(peaks[int(found[1])], value)
    for one in (receipt or {}).get("gpus", ()):
        index = int(re.sub(r"\D", "", str(one["gpu"])) or -1)
        if index in peaks:
            peaks[index] = max(peaks[index], float(one["peak_mib"]))
    return [round(peaks[gpu] / GIB, 2) for gpu in gpus]


def reserved(steps: Iterable[Row]) -> dict[int, float]:
    """The most that torch has reserved in each trainer rank, in GiB."""
    most: dict[int, float] = {}
    for row in steps:
        for name, value in row.values.items():
            if found := _RESERVED.fullmatch(name):
                most[int(found[1])] = max(value / GIB, most.get(int(found[1]), 0.0))
    return most


def preallocated(log: str) -> float | None:
    """What vLLM said it took on each GPU at its start, in GiB: weights, KV cache, CUDA graphs."""
    found = [[float(value) for value in pattern.findall(log)] for pattern in _VLLM]
    if not found[0] and not found[1]:
        return None
    return round(sum(max(values, default=0.0) for values in found), 2)


def parts(
    *,
    peaks: Sequence[float],
    gpus: Sequence[int],
    trainer_gpus: Sequence[int],
    ranks: Mapping[int, float],
    vllm_on: Mapping[int, float | None],
    inside_torch: bool,
) -> list[dict[str, float]]:
    """Of each GPU: what torch reserved in the trainer, vLLM's preallocation apart, and the rest of the peak.

    `inside_torch`: a colocated vLLM's memory is part of what torch reports for the rank, and is taken out of it.
    A part that isn't known is left out, and stays in the rest.
    """
    result = []
    for gpu, peak in zip(gpus, peaks, strict=True):
        part: dict[str, float] = {}
        vllm = vllm_on.get(gpu)
        here = [ranks[rank] for rank, its in enumerate(trainer_gpus) if its == gpu and rank in ranks]
        if here:
            part["trainer_torch"] = max(0.0, sum(here) - (vllm or 0.0 if inside_torch else 0.0))
        if vllm is not None:
            part["vllm_preallocated"] = vllm
        part["contexts_and_rest"] = max(0.0, peak - sum(part.values()))
        result.append({name: round(value, 2) for name, value in part.items()})
    return result


def peaks_of(parts: Sequence[Mapping[str, float]]) -> list[float]:
    """GiB, a GPU: what torch reserved at most in the trainer's ranks, and the contexts. vLLM's preallocation apart."""
    return [round(sum(value for name, value in part.items() if name != "vllm_preallocated"), 2) for part in parts]
