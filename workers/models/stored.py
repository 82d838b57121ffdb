"""Models in this host's model folders and in its cache of the hub, with facts from their files."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from workers.models.facts import facts
from workers.models.files import InspectionError, LocalFiles
from workers.models.inspection import cache_folder, cached_copy

MAX_MODELS = 200
_REPORTED_KEYS = ("model_type", "parameters", "dtype", "bytes")


def stored_models(roots: Sequence[Path]) -> list[dict[str, Any]]:
    """List the models, each as `model` (its folder or hub id) with its facts, or its `problem` if it can't be read."""
    allowed_roots = (*roots, cache_folder())
    return [
        {"model": name, **_facts(folder, (folder / "config.json").stat().st_mtime, allowed_roots)}
        for name, folder in (*_in_roots(roots), *_in_cache())
    ]


def _in_roots(roots: Sequence[Path]) -> Iterator[tuple[str, Path]]:
    for root in roots:
        if root.is_dir():
            yield from ((str(path.parent), path.parent) for path in sorted(root.glob("*/config.json"))[:MAX_MODELS])


def _in_cache() -> Iterator[tuple[str, Path]]:
    for folder in sorted(cache_folder().glob("models--*"))[:MAX_MODELS]:
        name = folder.name.removeprefix("models--").replace("--", "/")
        snapshot = cached_copy(name)
        if snapshot is not None and (snapshot / "config.json").is_file():
            yield name, snapshot


@lru_cache(maxsize=4 * MAX_MODELS)
def _facts(folder: Path, changed_at: float, allowed_roots: tuple[Path, ...]) -> dict[str, Any]:
    """Read a model's facts. `changed_at`: when its config changed, so that the cache misses after a change."""
    try:
        model = facts(LocalFiles(folder, allowed_roots))
    except (InspectionError, OSError) as error:
        return {"problem": str(error)}
    return {name: model[name] for name in _REPORTED_KEYS}
