"""A version of a reward config as a YAML document with the code's names, and back into the editor."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from django.http import QueryDict

from controlplane import safe_yaml
from controlplane.parameter_forms import PARAM, placed
from controlplane.rewards import saving
from controlplane.rewards.forms import MOST_COMPONENTS, TURNS, WHOLE, Editor, editor_from
from controlplane.rewards.models import FAILED_SHARE, RewardVersion
from controlplane.rewards.reading import specs
from controlplane.safe_yaml import short
from workers.rewards import LIBRARY, Reward

MOST_BYTES = 512 * 1024
"""Bytes of a document; code is longer than settings."""
TOP = ("name", "description", "aggregation", "failed_share", "components")
PART = ("name", "function", "weight", "params", "per_turn")
KINDS = {"str": (str, "text"), "float": (int | float, "a number")}


def export(version: RewardVersion) -> str:
    document = {
        "name": version.config.name,
        "description": version.config.description,
        "aggregation": version.aggregation,
        "failed_share": version.failed_share,
        "components": [saving.part_of(spec) for spec in specs(version)],
    }
    return safe_yaml.dump(document, TOP)


@dataclass
class _Read:
    """A document's values, as the editor's form would send them, and its errors."""

    sent: QueryDict = field(default_factory=lambda: QueryDict(mutable=True))
    problems: list[str] = field(default_factory=list)
    """Errors of the document as a whole."""
    wrong: list[tuple[str, str, str]] = field(default_factory=list)
    """(component's prefix, or "" for the config; field, or "" for the whole component; cause)"""

    def editor(self) -> Editor:
        """The filled-in editor with all errors; nothing is stored."""
        editor = editor_from(self.sent)
        editor.is_valid()
        forms: dict[str, Any] = {"": editor.config, **{str(form.prefix): form for form in editor.components}}
        for prefix, name, cause in self.wrong:
            form = forms[prefix]
            form.errors.pop(name, None)  # about the text that stands in for the document's value
            form.add_error(name or None, cause)
        editor.problem = " ".join([*self.problems, editor.problem]).strip()
        return editor

    def send(self, name: str, value: Any) -> None:
        if isinstance(value, bool):
            self.sent.setlist(name, ["on"] if value else [])
        else:
            self.sent[name] = value if isinstance(value, str) else short(value)

    def take(self, prefix: str, name: str, value: Any, kind: str, path: str) -> None:
        """Put a value into a form field, or record its error."""
        field_name = f"{prefix}-{name}" if prefix else name
        type_, words = KINDS[kind]
        self.send(field_name, value)
        if isinstance(value, bool) or not isinstance(value, type_):
            hint = "; put it in quotes" if kind == "str" and not isinstance(value, list | dict) else ""
            self.wrong.append((prefix, name, f"{path}: expected {words}, got {short(value)}{hint}."))


def read(content: bytes) -> Editor:
    """Parse a document. Raises YamlRefused if it is not a reward config at all."""
    document = safe_yaml.load(content, MOST_BYTES)
    if not isinstance(document, dict) or not set(document) & set(TOP):
        raise safe_yaml.YamlRefused(f"This is not a reward config, which has {', '.join(TOP)}.")
    result = _Read()
    result.problems += [_no_field(str(key), TOP) for key in document if key not in TOP]
    for name in ("name", "description", "aggregation"):
        if document.get(name) is not None:
            result.take("", name, document[name], "str", name)
    share = document.get("failed_share")
    result.take("", "failed_share", FAILED_SHARE if share is None else share, "float", "failed_share")
    components = document.get("components") or []
    if not isinstance(components, list):
        result.problems.append(f"components: expected a list, got {short(components)}.")
        components = []
    if len(components) > MOST_COMPONENTS:
        result.problems.append(f"components: {len(components)}, of which the first {MOST_COMPONENTS} are taken.")
    for place, part in enumerate(components[:MOST_COMPONENTS]):
        _component(result, part, place)
    return result.editor()


def _component(result: _Read, part: Any, place: int) -> None:
    path, prefix = f"components[{place}]", f"c{place}"
    if not isinstance(part, dict):
        result.problems.append(f"{path}: expected {', '.join(PART)}, got {short(part)}.")
        return
    key = part.get("function")
    reward = LIBRARY.get(key) if isinstance(key, str) else None
    if reward is None:
        result.problems.append(f"{path}.function: there is no reward {short(key)} in the library; it is left out.")
        return
    result.sent.appendlist("row", prefix)
    result.sent[f"{prefix}-function"] = reward.key
    result.take(prefix, "name", part.get("name", reward.key), "str", f"{path}.name")
    result.take(prefix, "weight", part.get("weight", 1.0), "float", f"{path}.weight")
    _scores(result, prefix, reward, part.get("per_turn", False), path)
    result.wrong += [(prefix, "", _no_field(f"{path}.{name}", PART)) for name in part if name not in PART]
    _params(result, prefix, reward, part.get("params"), path)


def _scores(result: _Read, prefix: str, reward: Reward, per_turn: Any, path: str) -> None:
    field_name = "scores" if reward.per_turn else ""
    result.sent[f"{prefix}-scores"] = TURNS if per_turn is True else WHOLE
    if not isinstance(per_turn, bool):
        result.wrong.append((prefix, field_name, f"{path}.per_turn: expected true or false, got {short(per_turn)}."))
    elif per_turn and not reward.per_turn:
        words = f"{path}.per_turn: {reward.title} scores whole completions only."
        result.wrong.append((prefix, field_name, words))


def _params(result: _Read, prefix: str, reward: Reward, params: Any, path: str) -> None:
    if params is not None and not isinstance(params, dict):
        result.wrong.append((prefix, "", f"{path}.params: expected fields, got {short(params)}."))
    values = params if isinstance(params, dict) else {}
    for name, default in reward.defaults().items():
        result.send(f"{prefix}-{PARAM}{name}", values.get(name, default))
    for problem in reward.check({short(name): value for name, value in values.items()}):
        name, words = placed(reward, problem)
        place = f"{path}.params.{name}" if name else f"{path}.params"
        result.wrong.append((prefix, PARAM + name if name else "", f"{place}: {words}."))


def _no_field(path: str, allowed: tuple[str, ...]) -> str:
    return f"{short(path)}: unknown field. Known fields: {', '.join(allowed)}."
