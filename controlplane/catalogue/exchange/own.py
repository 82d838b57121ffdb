"""Reader of our own documents: a run's spec, with or without its attempt, and a hardware profile's YAML."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from controlplane.catalogue.exchange.reading import DocumentKind, KeyVerdict, Reading
from controlplane.platform.safe_yaml import short_value
from workers.contract.run import settings, sinks
from workers.contract.run.episodes import EpisodeLimits, EpisodeSpec, GatewaySpec
from workers.contract.run.hardware import BATCH_FIELDS, HardwareSpec, Rollout, ServerSpec
from workers.contract.run.limits import BeyondSpec, LimitsSpec, NoBetterSpec
from workers.contract.run.prompts import PromptsSpec
from workers.contract.run.sinks import SinkSpec
from workers.contract.run.spec import HangSpec, LoraSpec, ModelSpec, RecoverySpec, RunSpec
from workers.contract.wire.documents import ContractError, from_dict, to_dict

ATTEMPT_KEYS = ("attempt_id", "number", "first_seq", "placement", "resume_from", "run_id", "kind", "schema")
JOB_KEYS = ("check_groups", "job")
FLAGS = tuple(setting.name for setting in settings.of_section("") if setting.type is bool)
UNCHANGED_KEYS = (*settings.ROWS, *(setting.name for setting in settings.of_section("") if setting.type is not bool))
"""Keys whose values are stored unchanged."""
SECTIONS: dict[str, type] = {"recovery": RecoverySpec, "hang": HangSpec, "prompts": PromptsSpec}

SHARES = {
    Rollout.COLOCATE: "hardware.colocate_memory_utilization",
    Rollout.SERVER: "hardware.server.gpu_memory_utilization",
}
"""Paths of vLLM's share of GPU memory, which documents omit if it is the default."""


def values_of(spec: RunSpec) -> dict[str, Any]:
    """Return a run's settings by path, without most of those that have their default values."""
    return read_spec(to_dict(spec)).values


def hardware_values(spec: HardwareSpec) -> dict[str, Any]:
    return read_spec({"hardware": to_dict(spec)}).values


def default_hardware() -> dict[str, Any]:
    defaults = {f"hardware.{name}": value for name, value in vars(HardwareSpec("")).items()}
    return defaults | {f"hardware.server.{name}": value for name, value in vars(ServerSpec()).items()}


def vllm_share(spec: HardwareSpec, values: Mapping[str, Any]) -> float | None:
    """Return vLLM's share of GPU memory in a document's values, or None if there is none or vLLM isn't used."""
    path = SHARES.get(spec.rollout)
    share = values.get(path, default_hardware().get(path)) if path else None
    return float(share) if isinstance(share, int | float) and not isinstance(share, bool) else None


def read_spec(tree: Mapping[str, Any]) -> Reading:
    reading = Reading(DocumentKind.SPEC, complete=True)
    for key in ATTEMPT_KEYS:
        if key in tree:
            reading.note(KeyVerdict.LEFT_OUT, key, "Each run and each attempt gets its own.")
    run = tree.get("run", tree)
    for key, value in (run if isinstance(run, Mapping) else {}).items():
        if key in UNCHANGED_KEYS:
            if value not in (None, "", []):
                reading.put(key, value, key)
        elif key == "grpo":
            for name, argument in _mapping(reading, value, key).items():
                reading.put(f"grpo.{name}", argument, f"grpo.{name}")
        elif key == "model":
            _take(reading, ModelSpec, _mapping(reading, value, key), key, path="")
        elif key == "hardware":
            _hardware(reading, _mapping(reading, value, key))
        elif key == "lora":
            _lora(reading, value)
        elif key in SECTIONS:
            _take(reading, SECTIONS[key], _mapping(reading, value, key), key)
        elif key in FLAGS:
            if value:
                reading.put(key, value, key)
        elif key == "sinks":
            _sinks(reading, value)
        elif key == "episodes":
            _episodes(reading, _mapping(reading, value, key))
        elif key == "limits":
            _limits(reading, _mapping(reading, value, key))
        elif key in JOB_KEYS:
            if value:
                reading.note(KeyVerdict.LEFT_OUT, key, "Only learnability checks and jobs use this.")
        elif key not in ATTEMPT_KEYS and not (run is not tree and key in tree):
            reading.note(KeyVerdict.UNKNOWN, key, f"The value was {short_value(value)}.")
    return reading


def read_profile(tree: Mapping[str, Any]) -> Reading:
    reading = Reading(DocumentKind.PROFILE, complete=True)
    for key, value in tree.items():
        if key == "name":
            reading.put("hardware.profile", str(value)[:80], key)
        elif key == "hardware":
            _hardware(reading, _mapping(reading, value, key))
        elif key == "lora":
            _lora(reading, value)
        elif key == "batch":
            for name, size in _mapping(reading, value, key).items():
                if name in BATCH_FIELDS and size is not None:
                    reading.put(f"grpo.{name}", size, f"batch.{name}")
                elif name not in BATCH_FIELDS:
                    reading.note(KeyVerdict.UNKNOWN, f"batch.{name}", f"The value was {short_value(size)}.")
        elif key != "description":
            reading.note(KeyVerdict.UNKNOWN, key, f"The value was {short_value(value)}.")
    return reading


def _mapping(reading: Reading, value: Any, key: str) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    if value is not None:
        reading.note(KeyVerdict.WRONG, key, f"Expected a mapping, got {short_value(value)}.")
    return {}


def _hardware(reading: Reading, tree: dict[str, Any]) -> None:
    server = tree.pop("server", None)
    if isinstance(name := tree.pop("profile", None), str) and name:
        reading.put("hardware.profile", name[:80], "hardware.profile")
    _take(reading, HardwareSpec, tree, "hardware", profile="")
    _take(reading, ServerSpec, _mapping(reading, server, "hardware.server"), "hardware.server")


def _lora(reading: Reading, value: Any) -> None:
    reading.put("lora", value is not None, "lora")
    if value is not None:
        _take(reading, LoraSpec, _mapping(reading, value, "lora"), "lora", keep_defaults=True)


def _episodes(reading: Reading, tree: dict[str, Any]) -> None:
    """Read the episodes without their corpora, which a launch finds again by the parts that name them."""
    tree.pop("corpora", None)
    parts, limits, gateway = (tree.pop(name, None) for name in ("parts", "limits", "gateway"))
    _take(reading, EpisodeSpec, tree, "episodes")
    _take(reading, EpisodeLimits, _mapping(reading, limits, "episodes.limits"), "episodes.limits")
    _take(reading, GatewaySpec, _mapping(reading, gateway, "episodes.gateway"), "episodes.gateway", keep_defaults=True)
    try:
        if parts:
            part_specs = from_dict(EpisodeSpec, {"parts": parts}, at="episodes").parts
            reading.put("episodes.parts", [to_dict(part) for part in part_specs], "episodes.parts")
    except ContractError as error:
        reading.note(KeyVerdict.WRONG, "episodes.parts", f"{str(error).capitalize()[:300]}.", path="episodes.parts")


def _sinks(reading: Reading, value: Any) -> None:
    if isinstance(value, Mapping):
        for name, item in value.items():
            is_field = name in ("project", "name") or name.removesuffix("_secret") in sinks.TITLES
            if is_field and isinstance(item, bool if name in sinks.TITLES else str) and item:
                reading.put(f"sinks.{name}", item, "sinks")
            else:
                reading.note(KeyVerdict.UNKNOWN, f"sinks.{name}", f"The value was {short_value(item)}.")
        return
    try:
        specs = [from_dict(SinkSpec, sink, at="sinks") for sink in (value if isinstance(value, list) else [])]
    except ContractError as error:
        reading.note(KeyVerdict.WRONG, "sinks", f"{str(error).capitalize()[:300]}.", path="sinks.project")
        return
    for sink in specs:
        if text := sinks.problem(sink):
            reading.note(KeyVerdict.WRONG, "sinks", text, path="sinks.project")
            continue
        reading.put(f"sinks.{sink.kind}", True, "sinks")
        for name, text in ((f"{sink.kind}_secret", sink.secret), ("project", sink.project), ("name", sink.name)):
            if text:
                reading.put(f"sinks.{name}", text, "sinks")


def _limits(reading: Reading, tree: dict[str, Any]) -> None:
    rule_classes = {"no_better": NoBetterSpec, "beyond": BeyondSpec}
    _take(reading, LimitsSpec, {name: value for name, value in tree.items() if name not in rule_classes}, "limits")
    for name, cls in rule_classes.items():
        if tree.get(name) is not None:
            path = f"limits.{name}"
            needed = {field.name: 1 for field in dataclasses.fields(cls) if field.default is dataclasses.MISSING}
            _take(
                reading, cls, _mapping(reading, tree[name], path), path, keep_defaults=True, **{**needed, "metric": ""}
            )


def _take(
    reading: Reading, cls: type, tree: dict[str, Any], at: str, *, keep_defaults: bool = False, **required_fields: Any
) -> None:
    """Read the fields of a contract's dataclass one by one, so that every invalid one is listed."""
    fields = {field.name: field for field in dataclasses.fields(cls) if field.name != "server"}
    for name, raw in tree.items():
        key = f"{at}.{name}"
        if name not in fields:
            reading.note(KeyVerdict.UNKNOWN, key, f"The value was {short_value(raw)}.")
            continue
        try:
            value = getattr(from_dict(cls, {**required_fields, name: raw}, at=at), name)
        except ContractError as error:
            message = str(error).removeprefix(f"{key}: ").capitalize()
            reading.note(KeyVerdict.WRONG, key, f"{message[:300]}.", path=key, raw=short_value(raw))
            continue
        field = fields[name]
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        if keep_defaults or value != default:
            reading.put(key, value, key)
