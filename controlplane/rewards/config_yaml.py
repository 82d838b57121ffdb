"""A version of a reward config as one YAML document, with the code's own names, and back into the editor."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from django.http import QueryDict

from controlplane import safe_yaml
from controlplane.rewards.forms import MOST_COMPONENTS, PARAM, Editor, editor_from, placed
from controlplane.rewards.models import FAILED_SHARE, RewardVersion
from controlplane.rewards.reading import specs
from controlplane.safe_yaml import short
from workers.contract import to_dict
from workers.rewards import LIBRARY, Reward

MOST_BYTES = 512 * 1024
"""Of a document: code is longer than settings are."""
TOP = ("name", "description", "aggregation", "failed_share", "components")
PART = ("name", "function", "weight", "params")
KINDS = {"str": (str, "text"), "float": (int | float, "a number")}


def export(version: RewardVersion) -> str:
    document = {
        "name": version.config.name,
        "description": version.config.description,
        "aggregation": version.aggregation,
        "failed_share": version.failed_share,
        "components": [to_dict(spec) for spec in specs(version)],
    }
    return safe_yaml.dump(document, TOP)


@dataclass
class _Read:
    """What a document says, as the editor's form would send it, and what is wrong with it."""

    sent: QueryDict = field(default_factory=lambda: QueryDict(mutable=True))
    problems: list[str] = field(default_factory=list)
    """Of the document as a whole."""
    wrong: list[tuple[str, str, str]] = field(default_factory=list)
    """(component's prefix, or "" for the config; field, or "" for the whole component; cause)"""

    def editor(self) -> Editor:
        """The editor filled in, with every message beside its field; nothing is stored."""
        editor = editor_from(self.sent)
        editor.is_valid()
        forms: dict[str, Any] = {"": editor.config, **{str(form.prefix): form for form in editor.components}}
        for prefix, name, cause in self.wrong:
            form = forms[prefix]
            form.errors.pop(name, None)  # about the text that stands for what the document says
            form.add_error(name or None, cause)
        editor.problem = " ".join([*self.problems, editor.problem]).strip()
        return editor

    def send(self, name: str, value: Any) -> None:
        if isinstance(value, bool):
            self.sent.setlist(name, ["on"] if value else [])
        else:
            self.sent[name] = value if isinstance(value, str) else short(value)

    def take(self, prefix: str, name: str, value: Any, kind: str, path: str) -> None:
        """One value into one field of the form, or what is wrong with it."""
        field_name = f"{prefix}-{name}" if prefix else name
        type_, words = KINDS[kind]
        self.send(field_name, value)
        if isinstance(value, bool) or not isinstance(value, type_):
            hint = "; put it in quotes" if kind == "str" and not isinstance(value, list | dict) else ""
            self.wrong.append((prefix, name, f"{path}: expected {words}, got {short(value)}{hint}."))


def read(content: bytes) -> Editor:
    """Raises YamlRefused for what is no document of a reward config at all."""
    document = safe_yaml.load(content, MOST_BYTES)
    if not isinstance(document, dict) or not set(document) & set(TOP):
        raise safe_yaml.YamlRefused(f"This is not a reward config, which has {', '.join(TOP)}.")
    found = _Read()
    found.problems += [_no_field(str(key), TOP) for key in document if key not in TOP]
    for name in ("name", "description", "aggregation"):
        if document.get(name) is not None:
            found.take("", name, document[name], "str", name)
    share = document.get("failed_share")
    found.take("", "failed_share", FAILED_SHARE if share is None else share, "float", "failed_share")
    components = document.get("components") or []
    if not isinstance(components, list):
        found.problems.append(f"components: expected a list, got {short(components)}.")
        components = []
    if len(components) > MOST_COMPONENTS:
        found.problems.append(f"components: {len(components)}, of which the first {MOST_COMPONENTS} are taken.")
    for place, part in enumerate(components[:MOST_COMPONENTS]):
        _component(found, part, place)
    return found.editor()


def _component(found: _Read, part: Any, place: int) -> None:
    path, prefix = f"components[{place}]", f"c{place}"
    if not isinstance(part, dict):
        found.problems.append(f"{path}: expected {', '.join(PART)}, got {short(part)}.")
        return
    key = part.get("function")
    reward = LIBRARY.get(key) if isinstance(key, str) else None
    if reward is None:
        found.problems.append(f"{path}.function: there is no reward {short(key)} in the library; it is left out.")
        return
    found.sent.appendlist("row", prefix)
    found.sent[f"{prefix}-function"] = reward.key
    found.take(prefix, "name", part.get("name", reward.key), "str", f"{path}.name")
    found.take(prefix, "weight", part.get("weight", 1.0), "float", f"{path}.weight")
    found.wrong += [(prefix, "", _no_field(f"{path}.{name}", PART)) for name in part if name not in PART]
    _params(found, prefix, reward, part.get("params"), path)


def _params(found: _Read, prefix: str, reward: Reward, params: Any, path: str) -> None:
    if params is not None and not isinstance(params, dict):
        found.wrong.append((prefix, "", f"{path}.params: expected fields, got {short(params)}."))
    given = params if isinstance(params, dict) else {}
    for name, default in reward.defaults().items():
        found.send(f"{prefix}-{PARAM}{name}", given.get(name, default))
    for problem in reward.check({short(name): value for name, value in given.items()}):
        name, words = placed(reward, problem)
        place = f"{path}.params.{name}" if name else f"{path}.params"
        found.wrong.append((prefix, PARAM + name if name else "", f"{place}: {words}."))


def _no_field(path: str, known: tuple[str, ...]) -> str:
    return f"{short(path)}: unknown field. Known fields: {', '.join(known)}."
