"""Environments for tests, and the editor's form as the browser sends it."""

from __future__ import annotations

from typing import Any

from controlplane.catalogue.environments import saving
from controlplane.catalogue.environments.models import EnvironmentVersion
from controlplane.catalogue.environments.saving import EnvironmentComposition
from workers.contract.run.episodes import EpisodeLimits
from workers.contract.wire.documents import to_dict
from workers.environments.library import LIBRARY

CALCULATOR = {"name": "calculator", "function": "calculator", "params": {"digits": 10}}


def an_environment(
    name: str = "sums", parts: list[dict[str, Any]] | None = None, limits: dict[str, Any] | None = None, **columns: Any
) -> EnvironmentVersion:
    return saving.make(name, EnvironmentComposition(parts or [CALCULATOR], limits or {}), **columns)


def fields(*functions: str, name: str = "mine", **changes: Any) -> dict[str, Any]:
    """With a row for each function."""
    sent: dict[str, Any] = {"name": name, "description": "", "row": []}
    for limit, value in to_dict(EpisodeLimits()).items():
        sent[f"limits-{limit}"] = "on" if value is True else str(value)
    for place, key in enumerate(functions):
        prefix = f"c{place}"
        sent["row"].append(prefix)
        sent |= {f"{prefix}-function": key, f"{prefix}-name": f"{key}_{place}"}
        for param, value in LIBRARY[key].defaults().items():
            if value is not False:
                sent[f"{prefix}-p_{param}"] = "on" if value is True else str(value)
    return sent | changes
