"""Every route, and the addresses that it has with the rows that a database has."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any

from django.apps import apps
from django.urls import NoReverseMatch, URLPattern, URLResolver, get_resolver, reverse

ROWS = 12
"""Rows of each table that are tried, unless told otherwise."""
CASES = 60
"""Addresses of each route that are tried."""
OF_TABLES: dict[tuple[str, ...], tuple[str, ...]] = {
    ("run_id",): ("runs.Run", "pk"),
    ("event_id",): ("runs.RunEvent", "pk"),
    ("attempt_id",): ("runs.Attempt", "pk"),
    ("lease_id",): ("runs.Lease", "pk"),
    ("preset_id",): ("runs.HealthPreset", "pk"),
    ("trial_id",): ("runs.ProfileTrial", "pk"),
    ("view_id",): ("runs.SavedView", "pk"),
    ("dataset_id",): ("datasets.Dataset", "pk"),
    ("corpus_id",): ("datasets.Corpus", "pk"),
    ("config_id",): ("rewards.RewardConfig", "pk"),
    ("item_id",): ("rewards.RewardConfig", "pk"),
    ("environment_id",): ("environments.Environment", "pk"),
    ("host_id",): ("hardware.Host", "pk"),
    ("host",): ("hardware.Host", "name"),
    ("profile_id",): ("hardware.HardwareProfile", "pk"),
    ("inspection_id",): ("hardware.ModelInspection", "pk"),
    ("user_id",): ("accounts.User", "pk"),
    ("token_id",): ("accounts.ApiToken", "pk"),
    ("secret_id",): ("accounts.Secret", "pk"),
    ("check_id",): ("references.ReferenceCheck", "pk"),
    ("target_id",): ("alerting.AlertTarget", "pk"),
    ("delivery_id",): ("alerting.AlertDelivery", "pk"),
    ("code_id",): ("joining.JoinCode", "pk"),
    ("source_id",): ("machines.MachineSource", "pk"),
    ("machine_id",): ("machines.MachineRequest", "pk"),
    ("run_id", "name"): ("runs.LogChunk", "attempt__run_id", "name"),
    ("attempt_id", "name"): ("runs.LogChunk", "attempt_id", "name"),
    ("run_id", "row"): ("runs.PromptProgress", "run_id", "row"),
    ("run_id", "sample_id"): ("runs.SampleRow", "run_id", "pk"),
    ("run_id", "link_id"): ("sharing.SharedLink", "run_id", "pk"),
    ("dataset_id", "number"): ("datasets.DatasetVersion", "dataset_id", "number"),
    ("corpus_id", "number"): ("datasets.CorpusVersion", "corpus_id", "number"),
    ("config_id", "number"): ("rewards.RewardVersion", "config_id", "number"),
    ("item_id", "number"): ("rewards.RewardVersion", "config_id", "number"),
    ("environment_id", "number"): ("environments.EnvironmentVersion", "environment_id", "number"),
    ("attempt_id", "sha256"): ("runs.Attempt", "pk", "run__dataset_version__sha256"),
    ("host", "inspection_id"): ("hardware.ModelInspection", "host__name", "pk"),
}
"""Parameters of a route -> the table, and the columns that hold values which belong together."""
OTHERS: dict[str, list[Any]] = {
    "row": [0, 1],
    "slug": ["sums"],
    "document": ["runs"],
    "kind": ["csv"],
    "engine": ["slurm"],
    "token": ["nonsense"],
    "name": ["trainer", "supervisor"],
    "sha256": ["0" * 64],
}
"""Other parameters -> values."""


def routes(resolver: Any = None, before: str = "") -> Iterator[tuple[str, str]]:
    """(name, pattern) of every route there is."""
    for entry in (resolver or get_resolver()).url_patterns:
        pattern = before + str(entry.pattern)
        if isinstance(entry, URLResolver):
            yield from routes(entry, pattern)
        elif isinstance(entry, URLPattern):
            yield entry.name or f"without a name: {pattern}", pattern


def parameters(pattern: str) -> tuple[str, ...]:
    return tuple(re.findall(r"<(?:\w+:)?(\w+)>", pattern))


class Addresses:
    """The addresses of each route; the tables are read once."""

    def __init__(self, *, rows: int = ROWS, **others: list[Any]) -> None:
        self.rows, self.others = rows, OTHERS | others
        self.read: dict[tuple[str, ...], list[dict[str, Any]]] = {}

    def of(self, name: str, pattern: str) -> Iterator[str]:
        wanted = parameters(pattern)
        for values in itertools.islice(self._values(wanted), CASES):
            try:
                yield reverse(name, kwargs=values)
            except NoReverseMatch:
                continue

    def _values(self, wanted: tuple[str, ...]) -> Iterator[dict[str, Any]]:
        """Values that belong together, as far as a table has them."""
        together = max((key for key in OF_TABLES if set(key) <= set(wanted)), key=len, default=())
        rest = [name for name in wanted if name not in together]
        lists = [self._table(together) if together else [{}], *(self._single(name) for name in rest)]
        for parts in itertools.product(*lists):
            yield {name: value for part in parts for name, value in part.items()}

    def _single(self, name: str) -> list[dict[str, Any]]:
        if (name,) in OF_TABLES:
            return self._table((name,))
        return [{name: value} for value in self.others.get(name, ())]

    def _table(self, key: tuple[str, ...]) -> list[dict[str, Any]]:
        if key not in self.read:
            model, *columns = OF_TABLES[key]
            rows = apps.get_model(model)._base_manager.values_list(*columns).distinct()
            self.read[key] = [dict(zip(key, row, strict=True)) for row in rows[: self.rows]]
        return self.read[key]
