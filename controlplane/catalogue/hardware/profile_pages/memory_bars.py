"""A memory estimate as bars and numbers for the pages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workers.contract.memory import Estimate, GpuEstimate
from workers.contract.memory.parts import Part

COLOURS = {  # a run has a LoRA or a reference model, never both
    Part.WEIGHTS: "c1",
    Part.OPTIMIZER: "c2",
    Part.GRADIENTS: "c3",
    Part.ADAPTER: "c4",
    Part.REFERENCE: "c4",
    Part.ACTIVATIONS: "c6",
    Part.COPIES: "c7",
    Part.VLLM: "c5",
}
OTHER_SEGMENT = "other"
MIN_SHARE = 0.02
"""Minimum share of a bar; smaller parts are combined."""


@dataclass(frozen=True)
class MemoryBar:
    name: str
    role: str
    card_gib: float
    needed_gib: float
    """Memory in use, without `spare_gib`."""
    spare_gib: float
    """Memory that the allocator caches and returns when memory runs short."""
    parts: tuple[dict[str, Any], ...]
    largest: str
    largest_gib: float
    phase: str

    @property
    def over(self) -> bool:
        return self.needed_gib > self.card_gib

    @property
    def scale_gib(self) -> float:
        """Memory that the bar's full width stands for."""
        return max(self.card_gib, self.needed_gib)


def bars(estimate: Estimate, indexes: Sequence[int]) -> list[MemoryBar]:
    """Return a bar for each group of GPUs with the same parts. `indexes` are the indexes of the estimate's GPUs."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for number, gpu in enumerate(estimate.gpus):
        key = (gpu.role, gpu.card_gib, tuple(sorted((part.value, round(size, 1)) for part, size in gpu.parts.items())))
        groups.setdefault(key, []).append(number)
    return [_bar(estimate.gpus[numbers[0]], [indexes[number] for number in numbers]) for numbers in groups.values()]


def _bar(gpu: GpuEstimate, indexes: list[int]) -> MemoryBar:
    parts: dict[Part, float] = {part: size for part, size in gpu.parts.items() if part is not Part.ALLOCATOR}
    largest = max(parts, key=lambda part: parts[part])
    name = f"GPU {', '.join(map(str, sorted(indexes)))}"
    return MemoryBar(
        name=name if len(indexes) == 1 else f"{name.replace('GPU', 'GPUs')} each",
        role=gpu.role,
        card_gib=gpu.card_gib,
        needed_gib=gpu.needed,
        spare_gib=gpu.total - gpu.needed,
        parts=tuple(segments(parts)),
        largest=str(largest),
        largest_gib=parts[largest],
        phase=gpu.phase,
    )


def segments(parts: Mapping[Part, float]) -> list[dict[str, Any]]:
    """Return the segments of a stacked_bar: the large parts, each in its own colour, and the rest combined."""
    total = sum(parts.values())
    large_parts = [(part, size) for part, size in parts.items() if part in COLOURS and size >= MIN_SHARE * total]
    rest_size = total - sum(size for _, size in large_parts)
    large_segments = [{"label": str(part), "value": size, "colour": COLOURS[part]} for part, size in large_parts]
    return [*large_segments, *([{"label": OTHER_SEGMENT, "value": rest_size, "colour": "c8"}] if rest_size > 0 else [])]


@dataclass(frozen=True)
class MemoryView:
    """Context of the template components/memory.html."""

    bars: list[MemoryBar]
    where: str
    trained: int
    parameters: int
    ram_gib: float
    host_ram_gib: float
    checkpoint_bytes: float
    cache_gib: float | None
    at_once: int
    length: int

    @property
    def trained_percent(self) -> float:
        return 100 * self.trained / self.parameters if self.parameters else 0.0

    @property
    def legend(self) -> list[dict[str, Any]]:
        """Distinct segments of all bars in order of first appearance, with the rest at the end."""
        by_label = {part["label"]: part for bar in self.bars for part in bar.parts}
        return sorted(by_label.values(), key=lambda part: part["label"] == OTHER_SEGMENT)


def view(
    estimate: Estimate, *, length: int, where: str, indexes: Sequence[int] = (), host_ram_gib: float = 0.0
) -> MemoryView:
    """Convert an estimate for the template. `length` is that of a prompt and completion; `where` names the GPUs."""
    serving = estimate.serving
    return MemoryView(
        bars=bars(estimate, indexes or range(len(estimate.gpus))),
        where=where,
        trained=estimate.trained,
        parameters=estimate.parameters,
        ram_gib=estimate.ram_gib,
        host_ram_gib=host_ram_gib,
        checkpoint_bytes=estimate.checkpoint_gib * 2**30,
        cache_gib=max(serving.cache, 0.0) if serving else None,
        at_once=int(serving.sequences(length)) if serving else 0,
        length=length,
    )
