"""Connections between this host's GPUs, read through NVML: NVLinks, or paths over PCIe."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pynvml

from workers.supervisor.processes.gpus import nvml, optional

_PATHS = {
    pynvml.NVML_TOPOLOGY_INTERNAL: "PIX",
    pynvml.NVML_TOPOLOGY_SINGLE: "PIX",
    pynvml.NVML_TOPOLOGY_MULTIPLE: "PXB",
    pynvml.NVML_TOPOLOGY_HOSTBRIDGE: "PHB",
    pynvml.NVML_TOPOLOGY_NODE: "NODE",
    pynvml.NVML_TOPOLOGY_SYSTEM: "SYS",
}
"""Names in `nvidia-smi topo` by NVML's levels: one PCIe switch, several switches, the CPU's bridge, one NUMA node,
between CPUs."""

BusId = tuple[int, ...]


@dataclass(frozen=True)
class Link:
    gpu: int
    kind: str
    lanes: int | None
    """Number of NVLinks between the two; None if unknown."""
    path: str | None


@dataclass
class _Device:
    handle: Any
    bus: BusId | None
    peers: Counter[BusId] = field(default_factory=Counter)
    """Number of NVLinks to each other GPU, by its bus id."""
    other_links: int = 0
    """Number of NVLinks to a switch or an unnamed device."""


def read() -> dict[int, list[Link]]:
    """Return the links of each GPU to the others, or {} without NVML or with fewer than two GPUs."""
    with nvml() as available:
        devices = _devices() if available else {}
        return {a: [_link(devices, a, b) for b in devices if b != a] for a in devices if len(devices) > 1}


def _devices() -> dict[int, _Device]:
    devices = {}
    for index in range(pynvml.nvmlDeviceGetCount()):
        handle = optional(pynvml.nvmlDeviceGetHandleByIndex, index)
        if handle is not None:
            devices[index] = _Device(handle, _bus(optional(pynvml.nvmlDeviceGetPciInfo, handle)))
    bus_ids = {device.bus for device in devices.values()}
    for device in devices.values():
        _count_nvlinks(device, bus_ids)
    return devices


def _count_nvlinks(device: _Device, bus_ids: set[BusId | None]) -> None:
    for number in range(pynvml.NVML_NVLINK_MAX_LINKS):
        state = optional(pynvml.nvmlDeviceGetNvLinkState, device.handle, number)
        if state is None:
            return  # the card has no more of them
        if state != pynvml.NVML_FEATURE_ENABLED:
            continue
        remote = _bus(optional(pynvml.nvmlDeviceGetNvLinkRemotePciInfo, device.handle, number))
        if remote is not None and remote in bus_ids:
            device.peers[remote] += 1
        else:
            device.other_links += 1


def _link(devices: dict[int, _Device], a: int, b: int) -> Link:
    device, peer = devices[a], devices[b]
    path = _PATHS.get(optional(pynvml.nvmlDeviceGetTopologyCommonAncestor, device.handle, peer.handle))
    direct_links = device.peers[peer.bus] if peer.bus is not None else 0
    status = optional(pynvml.nvmlDeviceGetP2PStatus, device.handle, peer.handle, pynvml.NVML_P2P_CAPS_INDEX_NVLINK)
    # Through a switch every GPU reaches every other with all its lanes, if the driver allows it.
    switch_links = min(device.other_links, peer.other_links)
    are_linked = status == pynvml.NVML_P2P_STATUS_OK if status is not None else switch_links > 0
    if direct_links or are_linked:
        return Link(b, "NVLink", direct_links or switch_links or None, path)
    return Link(b, "PCIe", None, path)


def _bus(info: Any) -> BusId | None:
    """Parse a bus id, so that 00000000:1B:00.0 equals 0000:1b:00.0; None if it can't be parsed."""
    if info is None:
        return None
    bus_id = info.busId.decode() if isinstance(info.busId, bytes) else str(info.busId)
    try:
        return tuple(int(part, 16) for part in bus_id.replace(".", ":").split(":"))
    except ValueError:
        return None
