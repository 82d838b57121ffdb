"""Checks of the parameters of a library's entries, some of which are patterns, schemas and code of foreign origin."""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from controlplane.platform.confined.tasks import ConfinedTask
from workers.environments import signature
from workers.environments.library import LIBRARY as ENTRIES
from workers.rewards.library import LIBRARY as REWARDS
from workers.rewards.parameters import Described

LIBRARIES: dict[str, Mapping[str, Described]] = {"rewards": REWARDS, "environments": ENTRIES}
_PARSED_WIDGETS = ("code", "json", "pattern")
"""Widgets of parameters whose text is parsed or tried."""


def problems(entry: Described, params: Mapping[str, Any]) -> list[str]:
    """Return the problems of an entry's parameters, as Described.check does. Raises NotFinished if they can't be judged
    now, which says nothing about them."""
    library = next((name for name, entries in LIBRARIES.items() if entries.get(entry.key) is entry), "")
    has_parsed = any(
        parameter["widget"] in _PARSED_WIDGETS
        and params.get(parameter["name"], parameter["default"]) != parameter["default"]
        for parameter in entry.schema()
    )
    if not library or not has_parsed:
        return entry.check(params)
    return list(_cached(library, entry.key, json.dumps(dict(params))))


def check(library: str, key: str, params_json: str) -> list[str]:
    return LIBRARIES[library][key].check(json.loads(params_json))


_check = ConfinedTask(check, "Checking these parameters")


def name_of(key: str, params: dict[str, Any]) -> str:
    entry = ENTRIES[key]
    return entry.name_of(entry.build(params)) if entry.name_of else ""


derived_name = ConfinedTask(name_of, "Reading this function")
"""Function that returns the name that an environment's entry derives from its parameters, which must be valid."""
describe_tool = ConfinedTask(signature.describe, "Reading this function", (signature.NotATool,))


@lru_cache(maxsize=128)
def _cached(library: str, key: str, params_json: str) -> tuple[str, ...]:
    return tuple(_check(library, key, params_json))
