"""The kinds of the catalogue, and the columns of their lists."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Thing:
    path: str
    words: str
    columns: tuple[str, ...]
    versions: bool = False
    """GET path/id lists its versions."""


THINGS = {
    "datasets": Thing(
        "datasets", "datasets, each with its newest version", ("dataset", "name", "version", "status", "rows"), True
    ),
    "rewards": Thing("rewards", "reward configs", ("config", "name", "version", "id", "aggregation"), True),
    "environments": Thing("environments", "environments", ("environment", "name", "version", "id"), True),
    "profiles": Thing("profiles", "hardware profiles", ("id", "name", "problem")),
    "models": Thing("models", "saved models", ("id", "name", "kind", "host", "bytes", "path")),
    "warm-servers": Thing(
        "warm-servers",
        "warm vLLM servers, and who uses them",
        ("run", "model", "holder", "host", "gpus", "state", "used_by", "ends_at"),
    ),
    "deleted": Thing(
        "deleted",
        "what was deleted lately and can be restored",
        ("kind", "id", "name", "deleted_by", "purge_at", "restorable", "waits_for"),
    ),
    "hosts": Thing("hosts", "hosts", ("id", "name", "in_reach", "draining", "gpus", "cpu_slots_free", "disk_free_mib")),
}
