"""Conversion of a spec's values to values of the launch's fields, for clones, imports and the API."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from runs.launch.new_run.fields import advanced_fields
from runs.launch.new_run.fields.grid import SEVERAL_FIELDS
from runs.launch.new_run.fields.table import BY_FIELD, LaunchField, names_of
from workers.contract.run import settings
from workers.contract.stack.training_rules import TRL_DEFAULTS

PRECISION_FLAGS: dict[str, dict[str, bool]] = {
    # A run's own arguments override its profile, so they are set only if the user chose them.
    "profile": {},
    "bf16": {"bf16": True, "fp16": False},
    "fp16": {"bf16": False, "fp16": True},
    "fp32": {"bf16": False, "fp16": False},
}
CHOSEN_PER_RUN = frozenset({"name", "model", "dataset_version", "reward_version", "profile", "host", "priority"})
"""Fields that stay as they are if a document omits them, since they have no default."""


def form_value(value: Any) -> str:
    """Return a value as a browser would send it, or "" for None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict | list | tuple):
        return json.dumps(value)
    return str(value)


def field_of(path: str) -> str:
    """Return the name of the field for a path in the spec, or "" if it has none."""
    return settings.FIELDS.get(path) or (path.removeprefix("grpo.") if path.startswith("grpo.") else "")


def field_values(values: Mapping[str, Any]) -> Iterator[tuple[str, Any, str]]:
    """Yield (field, value, path) for a spec's values by path, with LoRA settings only if a LoRA is trained."""
    flags = {}
    for path, value in values.items():
        name = field_of(path)
        if path == "lora":
            yield "use_lora", bool(value), path
        elif name in ("bf16", "fp16"):
            flags[name] = bool(value)
        elif path == "lora.target_modules" and not isinstance(value, str):
            if values.get("lora"):
                yield name, ", ".join(map(str, value)) or BY_FIELD[name].default, path
        elif name and name != "eval_strategy" and (values.get("lora") or not path.startswith("lora.")):
            yield name, value, path
    if flags:
        all_flags = {"bf16": False, "fp16": False, **flags}
        precision = next((name for name, flags_of in PRECISION_FLAGS.items() if flags_of == all_flags), "profile")
        yield "precision", precision, f"grpo.{next(iter(flags))}"


def of_empty_spec(schema: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return field -> value for whatever a complete document omits: a setting's default, or TRL's default for an
    argument of GRPOConfig."""
    omitted = CHOSEN_PER_RUN.union(SEVERAL_FIELDS, names_of("LoRA"))
    values: dict[str, Any] = {name: None for _, name, _ in advanced_fields.fields(schema)}
    for name, field in BY_FIELD.items():
        if name not in omitted:
            values[name] = trl_default(field, schema) if field.argument else field.default
    return values


def trl_default(field: LaunchField, schema: Mapping[str, Any] | None) -> Any:
    """Return the field value that leaves an argument to TRL: None if the field may be empty, otherwise the default of
    the host's trainer."""
    if not field.required:
        return None
    default = ((schema or {}).get("defaults") or {}).get(field.name)
    return TRL_DEFAULTS.get(field.name, field.default) if default is None else default
