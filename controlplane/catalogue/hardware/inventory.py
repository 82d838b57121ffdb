"""Cleans a host's announcement into plain values of known shapes: hosts may have bugs.

This happens on arrival, so that readers of the stored row can rely on it, and again for pages.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from workers.contract.wire.names import MAX_GPUS

MAX_LISTED = 500
LONGEST_TEXT = 500
DEEPEST = 6
LINK_KINDS = ("NVLink", "PCIe")

Shape = Callable[[Any], Any]


def clean(raw: Any) -> dict[str, Any]:
    """Keep known keys with valid values, drop those with invalid ones, and keep unknown keys as plain values."""
    facts = _plain(raw)
    if not isinstance(facts, dict):
        return {}
    shaped = {key: SHAPES[key](value) if key in SHAPES else value for key, value in facts.items()}
    return {key: value for key, value in shaped.items() if value is not None or key not in SHAPES}


def number(value: Any) -> float | None:
    """Accept a finite number that fits a database column; None for others."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and abs(value) < 2**53 else None


def whole(value: Any) -> int | None:
    """Accept a non-negative count; None for others."""
    parsed = number(value)
    return None if parsed is None or parsed < 0 else int(parsed)


def text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def flag(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def sandbox(value: Any) -> dict[str, Any] | None:
    """Read the best backend and, for each one that was tried, the reason why it doesn't hold, or ""."""
    if not isinstance(value, dict) or not isinstance(value.get("tried"), dict):
        return None
    tried = {key: part for key, part in value["tried"].items() if isinstance(part, str)}
    return {"backend": text(value.get("backend")) or None, "tried": tried}


def _plain(value: Any, depth: int = 0) -> Any:
    """Convert to JSON that every database can store: no NUL, no NaN, bounded in size."""
    if isinstance(value, str):
        # Databases reject unpaired surrogates.
        return value[:LONGEST_TEXT].replace("\0", "").encode("utf-8", "replace").decode()
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | float):
        return value if number(value) is not None else None
    if depth >= DEEPEST:
        return None
    if isinstance(value, list):
        return [_plain(part, depth + 1) for part in value[:MAX_LISTED]]
    if isinstance(value, dict):
        entries = list(value.items())[:MAX_LISTED]
        return {str(_plain(str(key))): _plain(part, depth + 1) for key, part in entries}
    return None


def _gpus(value: Any) -> list[dict[str, Any]] | None:
    if not isinstance(value, list):
        return None
    gpus: dict[int, dict[str, Any]] = {}
    for entry in value[:MAX_GPUS]:
        index = whole(entry.get("index")) if isinstance(entry, dict) else None
        if index is not None and index < 1024:
            gpus.setdefault(index, _gpu(index, entry))
    return [gpus[index] for index in sorted(gpus)]


def _gpu(index: int, entry: Mapping[str, Any]) -> dict[str, Any]:
    measured = {name: number(entry.get(name)) for name in ("util_percent", "power_w", "temperature_c")}
    return {
        "index": index,
        "name": text(entry.get("name")) or "GPU",
        "uuid": text(entry.get("uuid")) or "",
        "driver": text(entry.get("driver")) or "",
        "memory_mib": whole(entry.get("memory_mib")) or 0,
        "used_mib": whole(entry.get("used_mib")) or 0,
        "capability": text(entry.get("capability")) or "",
        "links": [link for value in _list(entry.get("links"))[:MAX_GPUS] if (link := _link(value))],
        **measured,
    }


def _link(value: Any) -> dict[str, Any] | None:
    if not isinstance(value, dict) or (peer := whole(value.get("gpu"))) is None or value.get("kind") not in LINK_KINDS:
        return None
    path = text(value.get("path"))
    return {"gpu": peer, "kind": value["kind"], "lanes": whole(value.get("lanes")), "path": path[:8] if path else None}


def _texts(value: Any) -> list[str] | None:
    return [part for part in value if isinstance(part, str)] if isinstance(value, list) else None


def _versions(value: Any) -> dict[str, str] | None:
    if not isinstance(value, dict):
        return None
    return {key: part for key, part in value.items() if isinstance(part, str) and part}


def _cuda(value: Any) -> dict[str, Any] | None:
    if not isinstance(value, dict) or not isinstance(value.get("usable"), bool):
        return None
    return {"built_for": text(value.get("built_for")) or "", "usable": value["usable"]}


def _programs(value: Any) -> dict[str, list[str]] | None:
    if not isinstance(value, dict):
        return None
    return {name: argv for name, part in value.items() if (argv := _texts(part))}


def _models(value: Any) -> list[dict[str, Any]] | None:
    """Read the facts of each model, or its "problem" instead."""
    if not isinstance(value, list):
        return None
    shapes: dict[str, Shape] = {"model": text, "model_type": text, "dtype": text, "problem": text}
    shapes |= {"parameters": whole, "bytes": whole}
    entries = [part for part in value if isinstance(part, dict)]
    models = [{name: shape(entry.get(name)) for name, shape in shapes.items()} for entry in entries]
    return [model for model in models if model["model"]]


def _ports(value: Any) -> list[int] | None:
    if not isinstance(value, list):
        return None
    return sorted({port for part in value if (port := whole(part)) is not None and 0 < port < 65536})


def _range(value: Any) -> list[int] | None:
    """Read the first and the last port; None if they are in the wrong order."""
    ports = [whole(part) for part in value] if isinstance(value, list) else []
    if len(ports) != 2 or ports[0] is None or ports[1] is None or not 0 < ports[0] <= ports[1] < 65536:
        return None
    return [ports[0], ports[1]]


def _slots(value: Any) -> int | None:
    count = whole(value)
    return None if count is None else min(count, 1024)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


SHAPES: dict[str, Shape] = {
    "boot_id": text,
    "booted_at": number,
    "gpus": _gpus,
    "gpu_error": text,
    "cpu_count": whole,
    "cpu_slots": _slots,
    "cpu_percent": number,
    "memory_mib": whole,
    "memory_used_mib": whole,
    "shm_mib": whole,
    "cuda": _cuda,
    "disk_free_mib": whole,
    "disk_total_mib": whole,
    "runs_dir": text,
    "runs_folder": text,
    "model_roots": _texts,
    "models": _texts,
    "model_facts": _models,
    "converts_to_gguf": flag,
    "versions": _versions,
    "trainer": text,
    "port_range": _range,
    "listening": _ports,
    "programs": _programs,
    "sandbox": sandbox,
}
"""The keys of workers.host.announce.inventory()."""
