"""How a host's GPUs are joined, in one line where all pairs are alike and as a small table where they differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

PATHS = {
    "PIX": "one PCIe switch",
    "PXB": "several PCIe switches",
    "PHB": "the CPU's PCIe bridge",
    "NODE": "bridges of one NUMA node",
    "SYS": "the link between CPUs",
}
"""What the short names of paths stand for, for a hover."""


@dataclass(frozen=True)
class Links:
    line: str
    """For all pairs; "" when they differ or nothing is known."""
    indexes: tuple[int, ...] = ()
    rows: tuple[tuple[int, tuple[str, ...]], ...] = ()
    """(GPU, a label to each GPU; "" to itself), where pairs differ."""
    legend: tuple[tuple[str, str], ...] = ()


def links_of(gpus: Sequence[Mapping[str, Any]]) -> Links:
    """`gpus` as inventory.clean leaves them."""
    indexes = tuple(gpu["index"] for gpu in gpus)
    labels = {
        frozenset((gpu["index"], link["gpu"])): _label(link)
        for gpu in gpus
        for link in gpu["links"]
        if link["gpu"] in indexes and link["gpu"] != gpu["index"]
    }
    pairs = [frozenset((a, b)) for at, a in enumerate(indexes) for b in indexes[at + 1 :]]
    if not labels or not pairs:
        return Links("")
    told = {labels.get(pair, "–") for pair in pairs}
    if len(told) == 1:
        return Links(f"{told.pop()} between {'both' if len(pairs) == 1 else 'all'}")
    rows = tuple((a, tuple("" if a == b else labels.get(frozenset((a, b)), "–") for b in indexes)) for a in indexes)
    short = sorted({label.rpartition(" ")[2] for label in told} & set(PATHS))
    return Links("", indexes, rows, tuple((name, PATHS[name]) for name in short))


def _label(link: Mapping[str, Any]) -> str:
    if link["kind"] == "NVLink":
        return f"NVLink {link['lanes']}" if link["lanes"] else "NVLink"
    return f"PCIe {link['path']}" if link["path"] else "PCIe"
