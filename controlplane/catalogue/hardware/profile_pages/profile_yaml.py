"""Export of a hardware profile as a YAML document, and import of one into the profile form."""

import dataclasses
import re
from dataclasses import dataclass, field
from typing import Any

from controlplane.catalogue.hardware.profile_fields import ATTACHED
from controlplane.catalogue.hardware.profile_pages.forms import ProfileForm, as_submitted, values_of
from controlplane.catalogue.hardware.profiles import Profile
from controlplane.platform import safe_yaml
from controlplane.platform.safe_yaml import short_value
from workers.contract.run.hardware import BATCH_FIELDS, HardwareSpec, Rollout, ServerSpec
from workers.contract.run.spec import LoraSpec
from workers.contract.wire.documents import ContractError, from_dict

TOP_KEYS = ("name", "description", "hardware", "lora", "batch")
TYPE_NAMES = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "a string",
    "object": "a mapping",
}


def export(profile: Profile) -> str:
    columns = profile.columns()
    hardware = {name: value for name, value in columns["spec"].items() if name != "profile"}
    batch = {name: profile.batch.get(name) for name in BATCH_FIELDS}
    return safe_yaml.dump({**columns, "spec": None, "hardware": hardware, "batch": batch}, TOP_KEYS)


@dataclass
class ImportedProfile:
    """Values of a document by form field, and its errors."""

    values: dict[str, Any]
    wrong: list[tuple[str, str]] = field(default_factory=list)
    """Errors as (form field or "", message with the path in the document)."""

    def form(self) -> ProfileForm:
        """Return the profile form with the document's values and all errors. Nothing is stored."""
        form = ProfileForm(as_submitted(self.values))
        form.is_valid()
        for name in {name for name, _ in self.wrong} & set(form.errors):
            del form.errors[name]  # about the shortened value, not the document's
        for name, cause in self.wrong:
            form.add_error(name or None, cause)
        return form

    def mapping(self, value: Any, path: str) -> dict[str, Any]:
        if value is not None and not isinstance(value, dict):
            self.wrong.append(("", f"{path}: expected a mapping, got {short_value(value)}."))
        return dict(value) if isinstance(value, dict) else {}

    def unknown(self, path: str, allowed: tuple[str, ...]) -> None:
        self.wrong.append(("", f"{short_value(path)}: unknown field. Known fields: {', '.join(allowed)}."))

    def read_fields(self, cls: type, values: dict[str, Any], path: str, prefix: str = "", **required: Any) -> None:
        """Read the fields of a contract's dataclass one by one, so that every error is reported."""
        names = tuple(f.name for f in dataclasses.fields(cls) if f.name not in required)
        for key, raw in values.items():
            name = "lora_targets" if key == "target_modules" else prefix + key
            if key not in names:
                self.unknown(f"{path}.{key}", names)
                continue
            try:
                self.values[name] = getattr(from_dict(cls, {**required, key: raw}, at=path), key)
            except ContractError as error:
                self.refuse(name, raw, _readable_error(str(error)))

    def refuse(self, name: str, raw: Any, cause: str) -> None:
        self.wrong.append((name, cause[:300]))
        self.values[name] = short_value(raw)


def read(content: bytes) -> ImportedProfile:
    """Parse a document. Raises YamlRefused if it isn't a profile."""
    document = safe_yaml.load(content)
    if not isinstance(document, dict) or not set(document) & set(TOP_KEYS):
        raise safe_yaml.YamlRefused(f"This is not a hardware profile, whose keys are {', '.join(TOP_KEYS)}.")
    imported = ImportedProfile(values_of(Profile("", "", HardwareSpec(""))))
    for key in document:
        if key not in TOP_KEYS:
            imported.unknown(key, TOP_KEYS)
    for key in ("name", "description"):
        value = document.get(key) or ""
        imported.values[key] = value
        if not isinstance(value, str):
            imported.refuse(key, value, f"{key}: expected a string, got {short_value(value)}; put it in quotes.")
    hardware = imported.mapping(document.get("hardware"), "hardware")
    server = imported.mapping(hardware.pop("server", None), "hardware.server")
    imported.read_fields(HardwareSpec, hardware, "hardware", profile="", server=None)
    imported.read_fields(ServerSpec, server, "hardware.server", "server_")
    imported.read_fields(LoraSpec, imported.mapping(document.get("lora"), "lora"), "lora", "lora_")
    imported.values["use_lora"] = document.get("lora") is not None
    if imported.values["rollout"] == Rollout.SERVER and imported.values["server_attached"]:
        imported.values["rollout"] = ATTACHED
    _environment(imported)
    _batch(imported, imported.mapping(document.get("batch"), "batch"))
    return imported


def _environment(imported: ImportedProfile) -> None:
    environment = imported.values["environment"]
    for name, value in environment.items() if isinstance(environment, dict) else ():
        if not isinstance(value, str):
            cause = f"hardware.environment.{short_value(name)}: expected a string; put {short_value(value)} in quotes."
            imported.wrong.append(("environment", cause))


def _batch(imported: ImportedProfile, batch: dict[str, Any]) -> None:
    for key, value in batch.items():
        if key not in BATCH_FIELDS:
            imported.unknown(f"batch.{key}", BATCH_FIELDS)
        elif value is not None and (not isinstance(value, int) or isinstance(value, bool)):
            imported.refuse(key, value, f"batch.{key}: expected a whole number, got {short_value(value)}.")
        else:
            imported.values[key] = value


def _readable_error(cause: str) -> str:
    return re.sub(r"expected (?:an )?(\w+), got", lambda m: f"expected {TYPE_NAMES.get(m[1], m[1])}, got", cause)
