"""A version of an environment as a YAML document with the code's names, and back into the editor."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from django.http import QueryDict

from controlplane import safe_yaml
from controlplane.environments.forms import LIMITS, MOST_PARTS, Editor, editor_from, limit_names
from controlplane.environments.models import EnvironmentVersion
from controlplane.parameter_forms import PARAM, placed
from controlplane.safe_yaml import short
from workers.contract import to_dict
from workers.contract.episodes import EpisodeLimits
from workers.environments import LIBRARY, Entry

MOST_BYTES = 512 * 1024
"""Bytes of a document; code is longer than settings."""
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


@dataclass
class _Read:
    """A document's values, as the editor's form would send them, and its errors."""

    sent: QueryDict = field(default_factory=lambda: QueryDict(mutable=True))
    problems: list[str] = field(default_factory=list)
    """Errors of the document as a whole."""
    wrong: list[tuple[str, str, str]] = field(default_factory=list)
    """(part's prefix, "" for the environment, LIMITS for these; field, or "" for the whole; cause)"""

    def editor(self) -> Editor:
        """The filled-in editor with all errors; nothing is stored."""
        editor = editor_from(self.sent)
        editor.is_valid()
        forms: dict[str, Any] = {"": editor.environment, LIMITS: editor.limits}
        forms |= {str(form.prefix): form for form in editor.parts}
        for prefix, name, cause in self.wrong:
            form = forms[prefix]
            known = name if name in form.fields else None
            form.errors.pop(known, None)  # about the text that stands in for the document's value
            form.add_error(known, cause)
        editor.problem = " ".join([*self.problems, editor.problem]).strip()
        return editor

    def send(self, name: str, value: Any) -> None:
        if isinstance(value, bool):
            self.sent.setlist(name, ["on"] if value else [])
        else:
            self.sent[name] = value if isinstance(value, str) else short(value)

    def take_text(self, prefix: str, name: str, value: Any, path: str) -> None:
        self.send(f"{prefix}-{name}" if prefix else name, value)
        if not isinstance(value, str):
            hint = "" if isinstance(value, list | dict) else "; put it in quotes"
            self.wrong.append((prefix, name, f"{path}: expected text, got {short(value)}{hint}."))


def read(content: bytes) -> Editor:
    """Parse a document. Raises YamlRefused if it is not an environment at all."""
    document = safe_yaml.load(content, MOST_BYTES)
    if not isinstance(document, dict) or not set(document) & set(TOP):
        raise safe_yaml.YamlRefused(f"This is not an environment, which has {', '.join(TOP)}.")
    result = _Read()
    result.problems += [_no_field(str(key), TOP) for key in document if key not in TOP]
    for name in ("name", "description"):
        if document.get(name) is not None:
            result.take_text("", name, document[name], name)
    _limits(result, document.get("limits"))
    parts = document.get("parts") or []
    if not isinstance(parts, list):
        result.problems.append(f"parts: expected a list, got {short(parts)}.")
        parts = []
    if len(parts) > MOST_PARTS:
        result.problems.append(f"parts: {len(parts)}, of which the first {MOST_PARTS} are taken.")
    for place, part in enumerate(parts[:MOST_PARTS]):
        _part(result, part, place)
    return result.editor()


def _limits(result: _Read, given: Any) -> None:
    if given is not None and not isinstance(given, dict):
        result.problems.append(f"limits: expected fields, got {short(given)}.")
    limits = given if isinstance(given, dict) else {}
    result.problems += [
        _no_field(f"limits.{name}", tuple(limit_names())) for name in limits if name not in limit_names()
    ]
    for name, default in to_dict(EpisodeLimits()).items():
        value = limits.get(name, default)
        result.send(f"{LIMITS}-{name}", value)
        if isinstance(value, bool) != isinstance(default, bool) or not isinstance(value, int | float):
            words = "true or false" if isinstance(default, bool) else "a number"
            result.wrong.append((LIMITS, name, f"limits.{name}: expected {words}, got {short(value)}."))


def _part(result: _Read, part: Any, place: int) -> None:
    path, prefix = f"parts[{place}]", f"c{place}"
    if not isinstance(part, dict):
        result.problems.append(f"{path}: expected {', '.join(PART)}, got {short(part)}.")
        return
    key = part.get("function")
    entry = LIBRARY.get(key) if isinstance(key, str) else None
    if entry is None:
        result.problems.append(f"{path}.function: there is no entry {short(key)} in the library; it is left out.")
        return
    result.sent.appendlist("row", prefix)
    result.sent[f"{prefix}-function"] = entry.key
    result.take_text(prefix, "name", part.get("name", entry.key), f"{path}.name")
    result.wrong += [(prefix, "", _no_field(f"{path}.{name}", PART)) for name in part if name not in PART]
    _params(result, prefix, entry, part.get("params"), path)


def _params(result: _Read, prefix: str, entry: Entry, params: Any, path: str) -> None:
    if params is not None and not isinstance(params, dict):
        result.wrong.append((prefix, "", f"{path}.params: expected fields, got {short(params)}."))
    values = params if isinstance(params, dict) else {}
    for name, default in entry.defaults().items():
        result.send(f"{prefix}-{PARAM}{name}", values.get(name, default))
    for problem in entry.check({short(name): value for name, value in values.items()}):
        name, words = placed(entry, problem)
        where = f"{path}.params.{name}" if name else f"{path}.params"
        result.wrong.append((prefix, PARAM + name if name else "", f"{where}: {words}."))


def _no_field(path: str, allowed: tuple[str, ...]) -> str:
    return f"{short(path)}: unknown field. Known fields: {', '.join(allowed)}."
