"""Facts about hosts, machines and datasets for preflight, read from their rows."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from controlplane.catalogue.datasets.models import DatasetVersion
from controlplane.catalogue.hardware.prices import gpu_hour
from controlplane.catalogue.hardware.sandboxes import sandbox_of
from controlplane.platform.templatetags.figures import since
from runs.engine.hosts.view import GpuView, HostView
from runs.engine.machines.models import MachineSource
from runs.engine.scheduling import kept_memory, leasing
from runs.engine.scheduling.kept_memory import KeptMemory
from runs.engine.scheduling.leasing import Hold
from runs.engine.spec import ChosenSource, LaunchRequest, data_of
from runs.launch.preflight.draft import DataFacts, GpuFacts, HostFacts
from workers.contract.run import mixing
from workers.contract.run.hardware import HardwareSpec, WeightSync
from workers.contract.run.mixing import SourceSettings


def kept_memory_on(view: HostView, hardware: HardwareSpec | None) -> dict[int, KeptMemory]:
    """Look up, by GPU, the memory that attached servers keep for earlier runs; return {} if the run would add none."""
    server = hardware.vllm_server if hardware else None
    if server is None or not server.attached or server.weight_sync != WeightSync.NCCL:
        return {}
    return kept_memory.on_host(view.row.pk, {gpu.index: gpu.used_mib for gpu in view.gpus})


def _gpu_facts(gpu: GpuView, memory: KeptMemory | None) -> GpuFacts:
    foreign_mib = gpu.used_mib if gpu.busy and not gpu.holder else 0
    facts = GpuFacts(gpu.index, gpu.memory_mib, not gpu.holder, foreign_mib, gpu.capability)
    return facts if memory is None else replace(facts, kept_mib=memory.total_mib, kept_by=memory.servers)


def host_facts(view: HostView, holds: Mapping[str, Hold], memory: Mapping[int, KeptMemory]) -> HostFacts:
    announcement = view.row.inventory if isinstance(view.row.inventory, dict) else {}
    first_port, last_port = announcement.get("port_range") or leasing.DEFAULT_PORTS
    return HostFacts(
        name=view.name,
        fresh=view.fresh,
        stale_for=since(view.announced_at) if view.announced_at else "a long time",
        draining=view.row.draining,
        trainer=view.trainer,
        gpus=tuple(_gpu_facts(gpu, memory.get(gpu.index)) for gpu in view.gpus),
        cpu_slots=tuple((slot.index, slot.holder is None) for slot in view.slots),
        disk_free_mib=view.disk_free_mib,
        ram_mib=view.memory_mib,
        versions=view.versions,
        schema=view.row.trainer_schema,
        gpu_error=view.gpu_error,
        driver=view.driver,
        cuda_usable=view.cuda["usable"] if view.cuda else None,
        cuda_built_for=view.cuda["built_for"] if view.cuda else "",
        shm_mib=view.shm_mib,
        port_range=(int(first_port), int(last_port)),
        ports_held={
            int(resource.removeprefix("port:")): hold.run_name
            for resource, hold in holds.items()
            if resource.startswith("port:")
        },
        listening=frozenset(view.listening),
        sandbox=sandbox_of(view.row),
        gpu_hour=gpu_hour(view.row),
        inventory=announcement,
    )


def machine_facts(source: MachineSource) -> HostFacts:
    gpus = tuple(GpuFacts(index, source.gpu_memory_gib * 1024, free=True) for index in range(source.gpus))
    return HostFacts(source.name, gpus=gpus, gpu_hour=source.gpu_hour, to_ask=True)


def data_facts(version: DatasetVersion | None) -> DataFacts | None:
    if version is None:
        return None
    mapping = version.mapping or {}
    import_report = (version.report or {}).get("mapped") or {}
    statistics = import_report.get("statistics") or {}
    lengths, io_tests = statistics.get("lengths") or {}, statistics.get("with_io_tests")
    name_sets = statistics.get("name_sets")
    columns = tuple(str(column.get("name") if isinstance(column, dict) else column) for column in version.columns)
    bins, top_length = _bins(lengths)
    return DataFacts(
        name=str(version),
        ready=version.status == DatasetVersion.READY,
        rows=version.rows,
        validation_rows=version.validation_rows,
        columns=columns,
        has_answer="answer" in columns or bool(mapping.get("answer")),
        chat=bool(mapping.get("chat")),
        python_tests=None if io_tests is None else statistics["with_tests"] - io_tests,
        io_tests=io_tests,
        longest_prompt_chars=_longest_prompt(lengths, "prompt_chars"),
        longest_prompt_tokens=_longest_prompt(lengths, "prompt_tokens"),
        prompt_bins=bins,
        prompt_top=top_length,
        dataset=version.dataset.name,
        name_sets=None if name_sets is None else tuple((frozenset(part["names"]), part["rows"]) for part in name_sets),
    )


def mix_facts(request: LaunchRequest) -> tuple[tuple[DataFacts, SourceSettings], ...]:
    """Return the datasets of a mix that can be drawn from, the run's own first; () without a mix."""
    own = request.dataset_version
    others = [source for source in request.sources if source.version != own]
    if own is None or not others or any(mixing.problems(data_of(own, 0, request.sources).every_source)):
        return ()
    first = next((source for source in request.sources if source.version == own), ChosenSource(own))
    return tuple((data, source.settings) for source in (first, *others) if (data := data_facts(source.version)))


def _bins(lengths: Mapping[str, Any]) -> tuple[tuple[int, ...], int]:
    counts = lengths.get("prompt_tokens") or lengths.get("prompt_chars") or {}
    bins, top_length = counts.get("bins"), counts.get("top")
    if not isinstance(bins, list) or not isinstance(top_length, int) or not all(isinstance(n, int) for n in bins):
        return (), 0
    return tuple(bins), top_length


def _longest_prompt(lengths: Mapping[str, Any], kind: str) -> int | None:
    length = (lengths.get(kind) or {}).get("longest")
    return length if isinstance(length, int) else None
