"""A version of an environment as a YAML document with the code's names, and back into the editor."""

from __future__ import annotations

from typing import Any

from controlplane.catalogue.environments.forms import (
    LIMITS,
    EnvironmentEditor,
    editor_from,
    limit_names,
)
from controlplane.catalogue.environments.models import Environment, EnvironmentVersion
from controlplane.catalogue.versioned.editing import MOST_PARTS
from controlplane.catalogue.versioned.parts_yaml import DocumentReading, document_of, no_field
from controlplane.platform import safe_yaml
from controlplane.platform.safe_yaml import short
from workers.contract.run.episodes import EpisodeLimits
from workers.contract.wire.documents import to_dict
from workers.environments.library import LIBRARY

TOP = ("name", "description", "limits", "parts")
PART = ("name", "function", "params")


def export(version: EnvironmentVersion) -> str:
    document = {
        "name": version.environment.name,
        "description": version.environment.description,
        "limits": to_dict(version.episode_limits),
        "parts": [to_dict(spec) for spec in version.specs],
    }
    return safe_yaml.dump(document, TOP)


def read(content: bytes, environment: Environment | None = None) -> EnvironmentEditor:
    """Parse a document into the filled-in editor with all errors; nothing is stored. Raises YamlRefused if it is not an
    environment at all. `environment`: the one that gets it as its
    next version."""
    document, result = document_of(content, top=TOP, what="an environment")
    for name in ("name", "description"):
        if document.get(name) is not None:
            result.take("", name, document[name], "str", name)
    _limits(result, document.get("limits"))
    for prefix, path, part in result.parts("parts", document.get("parts"), PART, MOST_PARTS):
        if (entry := result.entry(prefix, path, part, LIBRARY, "entry")) is not None:
            result.unknown(prefix, path, part, PART)
            result.params(prefix, path, entry, part.get("params"))
    editor = editor_from(result.sent, environment)
    editor.is_valid()
    result.add_errors(editor)
    return editor


def _limits(result: DocumentReading, given: Any) -> None:
    if given is not None and not isinstance(given, dict):
        result.problems.append(f"limits: expected fields, got {short(given)}.")
    limits = given if isinstance(given, dict) else {}
    result.problems += [
        no_field(f"limits.{name}", tuple(limit_names())) for name in limits if name not in limit_names()
    ]
    for name, default in to_dict(EpisodeLimits()).items():
        value = limits.get(name, default)
        result.send(f"{LIMITS}-{name}", value)
        if isinstance(value, bool) != isinstance(default, bool) or not isinstance(value, int | float):
            words = "true or false" if isinstance(default, bool) else "a number"
            result.wrong.append((LIMITS, name, f"limits.{name}: expected {words}, got {short(value)}."))
