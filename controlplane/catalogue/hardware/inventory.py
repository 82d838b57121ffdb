"""Conversion of a host's announcement, which may be faulty, to plain values of known types.

This happens on arrival, so that readers of the stored row can rely on it, and again for pages.
"""

from collections.abc import Callable, Mapping
from typing import Any

from workers.contract.wire.names import MAX_GPUS

MAX_ITEMS = 500
MAX_STRING_LENGTH = 500
MAX_DEPTH = 6
LINK_KINDS = ("NVLink", "PCIe")

Shape = Callable[[Any], Any]


def clean(raw: Any) -> dict[str, Any]:
    """Return the announced facts without invalid values; unknown keys are kept as plain JSON."""
    facts = _plain_value(raw)
    if not isinstance(facts, dict):
        return {}
    checked_facts = {key: SHAPES[key](value) if key in SHAPES else value for key, value in facts.items()}
    return {key: value for key, value in checked_facts.items() if value is not None or key not in SHAPES}


def number(value: Any) -> float | None:
    """Return a finite number that fits a database column as a float, or None for any other value."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < 2**53 else None


def count(value: Any) -> int | None:
    """Return a non-negative number as an integer, or None for any other value."""
    parsed = number(value)
    return None if parsed is None or parsed < 0 else int(parsed)


def text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def flag(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def sandbox(value: Any) -> dict[str, Any] | None:
    """Return the best sandbox backend and, for each one that was tried, why it doesn't work ("" if it does)."""
    if not isinstance(value, dict) or not isinstance(value.get("tried"), dict):
        return None
    reasons = {key: reason for key, reason in value["tried"].items() if isinstance(reason, str)}
    return {"backend": text(value.get("backend")) or None, "tried": reasons}


def _plain_value(value: Any, depth: int = 0) -> Any:
    """Convert a value to JSON that every database can store: no NUL, no NaN, bounded in size."""
    if isinstance(value, str):
        # Databases reject unpaired surrogates.
        return value[:MAX_STRING_LENGTH].replace("\0", "").encode("utf-8", "replace").decode()
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | float):
        return value if number(value) is not None else None
    if depth >= MAX_DEPTH:
        return None
    if isinstance(value, list):
        return [_plain_value(part, depth + 1) for part in value[:MAX_ITEMS]]
    if isinstance(value, dict):
        entries = list(value.items())[:MAX_ITEMS]
        return {str(_plain_value(str(key))): _plain_value(part, depth + 1) for key, part in entries}
    return None


def _gpus(value: Any) -> list[dict[str, Any]] | None:
    if not isinstance(value, list):
        return None
    gpus: dict[int, dict[str, Any]] = {}
    for entry in value[:MAX_GPUS]:
        index = count(entry.get("index")) if isinstance(entry, dict) else None
        if index is not None and index < 1024:
            gpus.setdefault(index, _gpu(index, entry))
    return [gpus[index] for index in sorted(gpus)]


def _gpu(index: int, entry: Mapping[str, Any]) -> dict[str, Any]:
    measurements = {name: number(entry.get(name)) for name in ("util_percent", "power_w", "temperature_c")}
    return {
        "index": index,
        "name": text(entry.get("name")) or "GPU",
        "uuid": text(entry.get("uuid")) or "",
        "driver": text(entry.get("driver")) or "",
        "memory_mib": count(entry.get("memory_mib")) or 0,
        "used_mib": count(entry.get("used_mib")) or 0,
        "capability": text(entry.get("capability")) or "",
        "links": [link for value in _list(entry.get("links"))[:MAX_GPUS] if (link := _link(value))],
        **measurements,
    }


def _link(value: Any) -> dict[str, Any] | None:
    if not isinstance(value, dict) or (peer := count(value.get("gpu"))) is None or value.get("kind") not in LINK_KINDS:
        return None
    path = text(value.get("path"))
    return {"gpu": peer, "kind": value["kind"], "lanes": count(value.get("lanes")), "path": path[:8] if path else None}


def _strings(value: Any) -> list[str] | None:
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
    return {name: argv for name, part in value.items() if (argv := _strings(part))}


def _models(value: Any) -> list[dict[str, Any]] | None:
    if not isinstance(value, list):
        return None
    shapes: dict[str, Shape] = {"model": text, "model_type": text, "dtype": text, "problem": text}
    shapes |= {"parameters": count, "bytes": count}
    entries = [part for part in value if isinstance(part, dict)]
    models = [{name: shape(entry.get(name)) for name, shape in shapes.items()} for entry in entries]
    return [model for model in models if model["model"]]


def _ports(value: Any) -> list[int] | None:
    if not isinstance(value, list):
        return None
    return sorted({port for part in value if (port := count(part)) is not None and 0 < port < 65536})


def _port_range(value: Any) -> list[int] | None:
    ports = [count(part) for part in value] if isinstance(value, list) else []
    if len(ports) != 2 or ports[0] is None or ports[1] is None or not 0 < ports[0] <= ports[1] < 65536:
        return None
    return [ports[0], ports[1]]


def _slots(value: Any) -> int | None:
    slots = count(value)
    return None if slots is None else min(slots, 1024)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


SHAPES: dict[str, Shape] = {
    "boot_id": text,
    "booted_at": number,
    "gpus": _gpus,
    "gpu_error": text,
    "cpu_count": count,
    "cpu_slots": _slots,
    "cpu_percent": number,
    "memory_mib": count,
    "memory_used_mib": count,
    "shm_mib": count,
    "cuda": _cuda,
    "disk_free_mib": count,
    "disk_total_mib": count,
    "runs_dir": text,
    "runs_folder": text,
    "model_roots": _strings,
    "models": _strings,
    "model_facts": _models,
    "converts_to_gguf": flag,
    "versions": _versions,
    "trainer": text,
    "port_range": _port_range,
    "listening": _ports,
    "programs": _programs,
    "sandbox": sandbox,
}
"""Keys of workers.host.announce.inventory(), each with the function that validates its value."""
