"""How this host's GPUs are joined, by NVML: NVLink and its lanes, or the way over PCIe."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pynvml

from workers.supervisor import gpus

_PATHS = {
    pynvml.NVML_TOPOLOGY_INTERNAL: "PIX",
    pynvml.NVML_TOPOLOGY_SINGLE: "PIX",
    pynvml.NVML_TOPOLOGY_MULTIPLE: "PXB",
    pynvml.NVML_TOPOLOGY_HOSTBRIDGE: "PHB",
    pynvml.NVML_TOPOLOGY_NODE: "NODE",
    pynvml.NVML_TOPOLOGY_SYSTEM: "SYS",
}
"""As `nvidia-smi topo` calls them: one PCIe switch, several, the CPU's bridge, one NUMA node, between CPUs."""

BusId = tuple[int, ...]


@dataclass(frozen=True)
class Link:
    """From one GPU to another."""

    gpu: int
    kind: str
    """NVLink or PCIe."""
    lanes: int | None
    """NVLinks between the two; None where it isn't told."""
    path: str | None


@dataclass
class _Device:
    handle: Any
    bus: BusId | None
    peers: Counter[BusId] = field(default_factory=Counter)
    """NVLinks to other GPUs, by where those are."""
    elsewhere: int = 0
    """NVLinks to a switch, or to something that isn't named."""


def read() -> dict[int, list[Link]]:
    """Every GPU's links to every other one; {} where there is no NVML or fewer than two GPUs."""
    with gpus.nvml() as there:
        devices = _devices() if there else {}
        return {a: [_link(devices, a, b) for b in devices if b != a] for a in devices if len(devices) > 1}


def _devices() -> dict[int, _Device]:
    found = {}
    for index in range(pynvml.nvmlDeviceGetCount()):
        handle = _asked("nvmlDeviceGetHandleByIndex", index)
        if handle is not None:
            found[index] = _Device(handle, _bus(_asked("nvmlDeviceGetPciInfo", handle)))
    places = {device.bus for device in found.values()}
    for device in found.values():
        _count_nvlinks(device, places)
    return found


def _count_nvlinks(device: _Device, places: set[BusId | None]) -> None:
    for number in range(pynvml.NVML_NVLINK_MAX_LINKS):
        state = _asked("nvmlDeviceGetNvLinkState", device.handle, number)
        if state is None:
            return  # this card has no more of them
        if state != pynvml.NVML_FEATURE_ENABLED:
            continue
        remote = _bus(_asked("nvmlDeviceGetNvLinkRemotePciInfo", device.handle, number))
        if remote is not None and remote in places:
            device.peers[remote] += 1
        else:
            device.elsewhere += 1


def _link(devices: dict[int, _Device], a: int, b: int) -> Link:
    one, other = devices[a], devices[b]
    path = _PATHS.get(_asked("nvmlDeviceGetTopologyCommonAncestor", one.handle, other.handle))
    direct = one.peers[other.bus] if other.bus is not None else 0
    status = _asked("nvmlDeviceGetP2PStatus", one.handle, other.handle, pynvml.NVML_P2P_CAPS_INDEX_NVLINK)
    # Through a switch every GPU reaches every other one with all its lanes, if the driver lets them.
    switched = min(one.elsewhere, other.elsewhere)
    joined = status == pynvml.NVML_P2P_STATUS_OK if status is not None else switched > 0
    if direct or joined:
        return Link(b, "NVLink", direct or switched or None, path)
    return Link(b, "PCIe", None, path)


def _bus(info: Any) -> BusId | None:
    """00000000:1B:00.0 and 0000:1b:00.0 are one place."""
    if info is None:
        return None
    text = info.busId.decode() if isinstance(info.busId, bytes) else str(info.busId)
    try:
        return tuple(int(part, 16) for part in text.replace(".", ":").split(":"))
    except ValueError:
        return None


def _asked(function: str, *arguments: Any) -> Any:
    """The answer, or None from a card or a driver that doesn't tell."""
    try:
        return getattr(pynvml, function)(*arguments)
    except pynvml.NVMLError:
        return None
