"""A run's estimated and measured memory for each GPU."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from controlplane.catalogue.hardware.models import ModelInspection
from controlplane.catalogue.hardware.profile_pages.memory_bars import segments
from runs.engine.models import Attempt, Run
from runs.engine.spec import spec_of
from runs.insight.metrics import peaks
from runs.insight.metrics.peaks import GpuPeak
from runs.insight.metrics.series import series
from runs.launch.new_run import facts
from runs.launch.preflight.draft import Draft
from runs.launch.preflight.estimating import settings_of, shape_for
from workers.contract.memory import estimate
from workers.contract.run.spec import ModelSpec, Placement, RunSpec
from workers.contract.wire.documents import ContractError, from_dict

POINTS = 200


@dataclass(frozen=True)
class GpuMemory:
    index: int
    role: str
    card_gib: float
    estimated_gib: float
    estimated: list[dict[str, Any]]
    measured: GpuPeak | None

    @property
    def measured_gib(self) -> float | None:
        return self.measured.peak_mib / 1024 if self.measured else None

    @property
    def measured_parts(self) -> list[dict[str, Any]]:
        parts = self.measured.parts if self.measured else []
        return [{**part, "value": part["value"] / 1024} for part in parts]

    @property
    def difference_percent(self) -> float | None:
        """Relative error of the estimate, in percent of the measured peak."""
        measured = self.measured_gib
        return 100 * (self.estimated_gib / measured - 1) if measured else None


def compare_memory(run: Run) -> list[GpuMemory]:
    """Compare the estimated and the measured memory of each GPU. Return [] without GPUs, before placement, or if the
    spec can't be read or the model's size is unknown."""
    attempt = run.latest()
    if not attempt.placement or attempt.host is None:
        return []
    try:
        spec, placement = spec_of(run), from_dict(Placement, attempt.placement)
    except ContractError:
        return []
    shape = shape_for(_newest_inspection(spec.model))
    if shape is None or not placement.gpus:
        return []
    inventory = attempt.host.inventory if isinstance(attempt.host.inventory, dict) else {}
    sizes = {gpu["index"]: gpu["memory_mib"] / 1024 for gpu in inventory.get("gpus") or ()}
    cards, servers = ([sizes.get(gpu, 0.0) for gpu in gpus] for gpus in (placement.gpus, placement.server_gpus))
    data = facts.data_facts(run.dataset_version)
    draft = Draft(hardware=spec.hardware, grpo=spec.grpo, lora=spec.lora, data=data)
    estimated = estimate(shape, spec.hardware, settings_of(draft, spec.hardware), cards=cards, servers=servers)
    measured = {peak.index: peak for peak in _peaks(run, attempt, spec, placement, sizes)}
    indexes = (*placement.gpus, *placement.server_gpus)
    return [
        GpuMemory(index, gpu.role, gpu.card_gib, gpu.total, segments(gpu.parts), measured.get(index))
        for index, gpu in zip(indexes, estimated.gpus, strict=True)
    ]


def _newest_inspection(model: ModelSpec) -> dict[str, Any] | None:
    rows = ModelInspection.objects.filter(model=model.path, revision=model.revision or "", answered_at__isnull=False)
    newest_rows = rows.order_by("-answered_at")[:20]
    return next((row.answer for row in newest_rows if isinstance(row.answer, dict) and row.answer.get("ok")), None)


def _peaks(
    run: Run, attempt: Attempt, spec: RunSpec, placement: Placement, sizes: Mapping[int, float]
) -> list[GpuPeak]:
    names = {f"memory/rank{rank}/reserved_mib": rank for rank in range(spec.hardware.processes)}
    samples = {f"gpu/{gpu}/memory_mib": gpu for gpu in placement.every_gpu}
    lines: Mapping[str, Any] = series(run, [*names, *samples], POINTS)["series"]
    maxima = {name: max(line["value"], default=0.0) for name, line in lines.items()}
    in_use = {gpu: maxima.get(name, 0.0) for name, gpu in samples.items()}
    in_use = peaks.with_receipt(in_use, attempt.receipt)
    reserved = {rank: maxima.get(name, 0.0) for name, rank in names.items()}
    return peaks.of_run(
        spec.hardware,
        placement,
        measured={gpu: value for gpu, value in in_use.items() if value},
        reserved={rank: value for rank, value in reserved.items() if value},
        sizes={gpu: size * 1024 for gpu, size in sizes.items()},
    )
