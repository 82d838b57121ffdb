"""Description of the connections between a host's GPUs: one line if all pairs are alike, otherwise a small table."""

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
"""Meanings of the path types, shown on hover."""


@dataclass(frozen=True)
class Links:
    line: str
    """Description of all pairs; "" if they differ or are unknown."""
    indexes: tuple[int, ...] = ()
    rows: tuple[tuple[int, tuple[str, ...]], ...] = ()
    """Rows as (GPU, its label for each GPU, with "" for itself), if pairs differ."""
    legend: tuple[tuple[str, str], ...] = ()


def links_of(gpus: Sequence[Mapping[str, Any]]) -> Links:
    """Describe the connections between `gpus`, as returned by inventory.clean."""
    indexes = tuple(gpu["index"] for gpu in gpus)
    labels = {
        frozenset((gpu["index"], link["gpu"])): _label(link)
        for gpu in gpus
        for link in gpu["links"]
        if link["gpu"] in indexes and link["gpu"] != gpu["index"]
    }
    pairs = [frozenset((a, b)) for i, a in enumerate(indexes) for b in indexes[i + 1 :]]
    if not labels or not pairs:
        return Links("")
    distinct_labels = {labels.get(pair, "–") for pair in pairs}
    if len(distinct_labels) == 1:
        return Links(f"{distinct_labels.pop()} between {'both' if len(pairs) == 1 else 'all'}")
    rows = tuple((a, tuple("" if a == b else labels.get(frozenset((a, b)), "–") for b in indexes)) for a in indexes)
    path_types = sorted({label.rpartition(" ")[2] for label in distinct_labels} & set(PATHS))
    return Links("", indexes, rows, tuple((name, PATHS[name]) for name in path_types))


def _label(link: Mapping[str, Any]) -> str:
    if link["kind"] == "NVLink":
        return f"NVLink {link['lanes']}" if link["lanes"] else "NVLink"
    return f"PCIe {link['path']}" if link["path"] else "PCIe"
