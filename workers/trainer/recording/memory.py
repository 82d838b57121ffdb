"""GPU memory of the ranks: its cap, and its peaks."""

import torch

from workers.contract.run.hardware import HardwareSpec
from workers.trainer.configuration.spec import SpecError

GIB = 1024**3
MIB = 1024**2
PEAK_NAMES = ("reserved_mib", "allocated_mib")


def cap(hardware: HardwareSpec, *, local_rank: int) -> float:
    """Limit this process's GPU memory to the profile's cap, as on a smaller GPU, before any allocation. Return the cap
    as a share of the GPU's memory, 1 without a cap, because vLLM's memory setting is a share of the whole GPU. Raises
    SpecError if the GPU has less memory than the cap."""
    if hardware.memory_cap_gib is None or not torch.cuda.is_available():
        return 1.0
    total = torch.cuda.get_device_properties(local_rank).total_memory
    cap_bytes = hardware.memory_cap_gib * GIB
    if cap_bytes > total:
        raise SpecError(
            f"The memory cap of {hardware.memory_cap_gib:g} GiB can't be applied, because this GPU has only "
            f"{total / GIB:.1f} GiB."
        )
    torch.cuda.set_device(local_rank)
    torch.cuda.set_per_process_memory_fraction(cap_bytes / total, local_rank)
    return float(cap_bytes / total)


def peaks() -> dict[str, float]:
    """Return `memory/rank<r>/<name>` of all ranks in MiB; {} on a CPU. All ranks must call this, since it is a
    collective operation."""
    if not torch.cuda.is_initialized():
        return {}
    peak_values = [torch.cuda.max_memory_reserved() / MIB, torch.cuda.max_memory_allocated() / MIB]
    own_peaks = torch.tensor(peak_values, device="cuda")
    all_peaks = [own_peaks]
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        all_peaks = [torch.empty_like(own_peaks) for _ in range(torch.distributed.get_world_size())]
        torch.distributed.all_gather(all_peaks, own_peaks)
    return {
        f"memory/rank{rank}/{name}": value
        for rank, values in enumerate(all_peaks)
        for name, value in zip(PEAK_NAMES, values.tolist(), strict=True)
    }
