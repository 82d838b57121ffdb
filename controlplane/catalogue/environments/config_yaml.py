"""Export of an environment's version as YAML, and import of YAML into the editor."""

from typing import Any

from controlplane.catalogue.environments.forms import LIMITS, EnvironmentEditor, editor_from
from controlplane.catalogue.environments.models import Environment, EnvironmentVersion
from controlplane.catalogue.versioned.parts_yaml import DocumentReading, document_of, no_field
from controlplane.platform import safe_yaml
from controlplane.platform.safe_yaml import short_value
from workers.contract.run.episodes import EpisodeLimits
from workers.contract.wire.documents import to_dict

TOP_KEYS = ("name", "description", "limits", "parts")
PART_KEYS = ("name", "function", "params")


def export(version: EnvironmentVersion) -> str:
    document = {
        "name": version.environment.name,
        "description": version.environment.description,
        "limits": to_dict(version.episode_limits),
        "parts": [to_dict(spec) for spec in version.specs],
    }
    return safe_yaml.dump(document, TOP_KEYS)


def read(content: bytes, environment: Environment | None = None) -> EnvironmentEditor:
    """Return the editor filled in from a document, with all errors; nothing is stored. Saving it creates the next
    version of `environment`, if given. Raises YamlRefused if the document isn't an environment."""
    document, result = document_of(content, title="an environment", top=TOP_KEYS, texts=("name", "description"))
    _limits(result, document.get("limits"))
    for _ in result.parts(EnvironmentVersion.kind, document.get("parts"), PART_KEYS):
        pass
    return result.validate(editor_from(result.sent, environment))


def _limits(result: DocumentReading, document_limits: Any) -> None:
    if document_limits is not None and not isinstance(document_limits, dict):
        result.problems.append(f"limits: expected a mapping, got {short_value(document_limits)}.")
    limits = document_limits if isinstance(document_limits, dict) else {}
    defaults = to_dict(EpisodeLimits())
    result.problems += [no_field(f"limits.{name}", tuple(defaults)) for name in limits if name not in defaults]
    for name, default in defaults.items():
        value = limits.get(name, default)
        result.send(f"{LIMITS}-{name}", value)
        if isinstance(value, bool) != isinstance(default, bool) or not isinstance(value, int | float):
            expected = "true or false" if isinstance(default, bool) else "a number"
            result.wrong.append((LIMITS, name, f"limits.{name}: expected {expected}, got {short_value(value)}."))
