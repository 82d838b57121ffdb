"""Short descriptions of hardware profiles for lists."""

from collections.abc import Iterable
from dataclasses import dataclass

from controlplane.catalogue.hardware.models import HardwareProfile
from controlplane.catalogue.hardware.profile_pages.profile_memory import largest_fitting, shipped_as, shipped_with
from controlplane.catalogue.hardware.profiles import DIVISION_FIELDS, Profile, profile_of
from workers.contract.run.hardware import HardwareSpec, Offload, Quantization, Rollout, Strategy, WeightSync
from workers.contract.wire.documents import ContractError

STRATEGIES = {
    Strategy.DDP: "DDP",
    Strategy.FSDP2: "FSDP2",
    Strategy.ZERO1: "ZeRO-1",
    Strategy.ZERO2: "ZeRO-2",
    Strategy.ZERO3: "ZeRO-3",
}


@dataclass(frozen=True)
class ProfileWords:
    gpus: str
    completions: str
    training: str
    batch: str
    up_to: str = ""
    """Largest usual model that fits a built-in profile's GPUs."""
    unmeasured: bool = False
    """True for a built-in profile that has never run on a GPU."""


@dataclass(frozen=True, order=True)
class ProfileGroup:
    """Heading of the profiles with the same number and size of GPUs. Headings sort in the order of lists."""

    gpus: int
    card_gib: float
    """Memory of each GPU; 0 if it is unknown."""

    def __str__(self) -> str:
        if not self.gpus:
            return "CPU"
        count = f"{self.gpus} GPU{'' if self.gpus == 1 else 's'}"
        return f"{count} with {self.card_gib:g} GiB" if self.card_gib else count


def group_of(spec: HardwareSpec) -> ProfileGroup:
    """Return the group of a profile, by its number of GPUs and, if it is built in, their memory."""
    gpus = spec.trainer_gpus + spec.server_gpus
    return ProfileGroup(gpus, max((built_in.card_gib for built_in in shipped_with(spec)), default=0.0) if gpus else 0.0)


def group_profiles(rows: Iterable[HardwareProfile]) -> list[tuple[ProfileGroup, list[HardwareProfile]]]:
    """Group profiles from few to many GPUs; unreadable ones are grouped with those for the CPU."""
    groups: dict[ProfileGroup, list[HardwareProfile]] = {}
    for row in rows:
        try:
            group = group_of(profile_of(row).spec)
        except ContractError:
            group = ProfileGroup(0, 0.0)
        groups.setdefault(group, []).append(row)
    return sorted(groups.items())


def describe_profile(row: HardwareProfile) -> ProfileWords:
    try:
        profile = profile_of(row)
    except ContractError:
        return ProfileWords("?", "can't be read: open it and save it again", "", "")
    built_in = shipped_as(row)
    card_gib = built_in.card_gib if built_in and profile.spec.trainer_gpus else 0
    return ProfileWords(
        _gpus(profile),
        _completions(profile),
        _training(profile),
        _batch(profile),
        largest_fitting(profile, card_gib) if card_gib else "",
        bool(built_in and not built_in.measured),
    )


def _gpus(profile: Profile) -> str:
    spec = profile.spec
    if not spec.trainer_gpus and not spec.server_gpus:
        return "CPU"
    return f"{spec.trainer_gpus} + {spec.server_gpus}" if spec.server_gpus else str(spec.trainer_gpus)


def _completions(profile: Profile) -> str:
    spec = profile.spec
    if spec.rollout == Rollout.TRANSFORMERS:
        return "in the trainer"
    if spec.rollout == Rollout.COLOCATE:
        return f"vLLM in the trainer, share {spec.colocate_memory_utilization:g}"
    if spec.server is None:
        return "a vLLM server that isn't described"
    weight_sync = "LoRA hot-swap" if spec.server.weight_sync == WeightSync.LORA else "weights by NCCL"
    count = spec.server.servers
    servers = "vLLM server" if count == 1 else f"{count} vLLM servers"
    if spec.server.attached:
        return f"attached {servers}, {weight_sync}"
    gpus = f" over {spec.server.gpus} GPUs" if spec.server.gpus > 1 else ""
    placement = " beside the trainer" if spec.server.shared else ""
    return f"{servers}{gpus}{placement}, {weight_sync}"


def _training(profile: Profile) -> str:
    spec = profile.spec
    parts = [STRATEGIES.get(spec.strategy, ""), "CPU offload" if spec.offload != Offload.NONE else ""]
    parts.append(f"LoRA r {profile.lora.r}" if profile.lora else "all weights")
    parts.append("" if spec.quantization == Quantization.NONE else spec.quantization.replace("bit", "-bit"))
    return " · ".join(part for part in parts if part)


def _batch(profile: Profile) -> str:
    batch = profile.batch
    micro_batch, passes = (batch.get(name) for name in DIVISION_FIELDS)
    if micro_batch is None or passes is None:
        return "–"
    groups = f" in groups of {batch['num_generations']}" if "num_generations" in batch else ""
    factors = [micro_batch, *([profile.spec.processes] if profile.spec.processes > 1 else []), passes]
    return " × ".join(map(str, factors)) + groups
