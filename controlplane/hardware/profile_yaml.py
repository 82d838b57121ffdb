"""A hardware profile as one YAML document, with the code's own names, and back into the profile form."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field
from typing import Any

from controlplane import safe_yaml
from controlplane.hardware.forms import ProfileForm, sent, values_of
from controlplane.hardware.profile_fields import ATTACHED
from controlplane.hardware.profiles import BATCH_FIELDS, Profile
from controlplane.safe_yaml import short
from workers.contract import ContractError, HardwareSpec, LoraSpec, Rollout, ServerSpec, from_dict

TOP = ("name", "description", "hardware", "lora", "batch")
KINDS = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "text", "object": "fields"}


def export(profile: Profile) -> str:
    columns = profile.columns()
    hardware = {name: value for name, value in columns["spec"].items() if name != "profile"}
    batch = {name: profile.batch.get(name) for name in BATCH_FIELDS}
    return safe_yaml.dump({**columns, "spec": None, "hardware": hardware, "batch": batch}, TOP)


@dataclass
class Imported:
    """What a document says, by the form's names, and what is wrong with it."""

    values: dict[str, Any]
    wrong: list[tuple[str, str]] = field(default_factory=list)
    """(form field, or "" for what has none; cause, with the path in the document)"""

    def form(self) -> ProfileForm:
        """The profile form filled in, with every message beside its field; nothing is stored."""
        form = ProfileForm(sent(self.values))
        form.is_valid()
        for name in {name for name, _ in self.wrong} & set(form.errors):
            del form.errors[name]  # about the text that stands for what the document says
        for name, cause in self.wrong:
            form.add_error(name or None, cause)
        return form

    def mapping(self, value: Any, path: str) -> dict[str, Any]:
        if value is not None and not isinstance(value, dict):
            self.wrong.append(("", f"{path}: expected fields, got {short(value)}."))
        return dict(value) if isinstance(value, dict) else {}

    def unknown(self, path: str, known: tuple[str, ...]) -> None:
        self.wrong.append(("", f"{short(path)}: unknown field. Known fields: {', '.join(known)}."))

    def take(self, cls: type, found: dict[str, Any], path: str, prefix: str = "", **needed: Any) -> None:
        """The fields of one of the contract's dataclasses, each by itself, so that every wrong one is named."""
        known = tuple(f.name for f in dataclasses.fields(cls) if f.name not in needed)
        for key, raw in found.items():
            name = "lora_targets" if key == "target_modules" else prefix + key
            if key not in known:
                self.unknown(f"{path}.{key}", known)
                continue
            try:
                self.values[name] = getattr(from_dict(cls, {**needed, key: raw}, at=path), key)
            except ContractError as error:
                self.refuse(name, raw, _in_words(str(error)))

    def refuse(self, name: str, raw: Any, cause: str) -> None:
        self.wrong.append((name, cause[:300]))
        self.values[name] = short(raw)


def read(content: bytes) -> Imported:
    """Raises YamlRefused for what is no document of a profile at all."""
    document = safe_yaml.load(content)
    if not isinstance(document, dict) or not set(document) & set(TOP):
        raise safe_yaml.YamlRefused(f"This is not a hardware profile, which has {', '.join(TOP)}.")
    found = Imported(values_of(Profile("", "", HardwareSpec(""))))
    for key in document:
        if key not in TOP:
            found.unknown(key, TOP)
    for key in ("name", "description"):
        value = document.get(key) or ""
        found.values[key] = value
        if not isinstance(value, str):
            found.refuse(key, value, f"{key}: expected text, got {short(value)}; put it in quotes.")
    hardware = found.mapping(document.get("hardware"), "hardware")
    server = found.mapping(hardware.pop("server", None), "hardware.server")
    found.take(HardwareSpec, hardware, "hardware", profile="", server=None)
    found.take(ServerSpec, server, "hardware.server", "server_")
    found.take(LoraSpec, found.mapping(document.get("lora"), "lora"), "lora", "lora_")
    found.values["use_lora"] = document.get("lora") is not None
    if found.values["rollout"] == Rollout.SERVER and found.values["server_attached"]:
        found.values["rollout"] = ATTACHED
    _environment(found)
    _batch(found, found.mapping(document.get("batch"), "batch"))
    return found


def _environment(found: Imported) -> None:
    environment = found.values["environment"]
    if not isinstance(environment, dict):
        return
    for name, value in environment.items():
        if not isinstance(value, str):
            found.wrong.append(
                ("environment", f"hardware.environment.{short(name)}: expected text; put {short(value)} in quotes.")
            )


def _batch(found: Imported, batch: dict[str, Any]) -> None:
    for key, value in batch.items():
        if key not in BATCH_FIELDS:
            found.unknown(f"batch.{key}", BATCH_FIELDS)
        elif value is not None and (not isinstance(value, int) or isinstance(value, bool)):
            found.refuse(key, value, f"batch.{key}: expected a whole number, got {short(value)}.")
        else:
            found.values[key] = value


def _in_words(cause: str) -> str:
    return re.sub(r"expected (?:an )?(\w+), got", lambda m: f"expected {KINDS.get(m[1], m[1])}, got", cause)
