"""A config of another tool, or a run's spec, put into the New run form: over what is typed there, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from controlplane.catalogue.exchange import documents, own, trl
from controlplane.catalogue.exchange.keys import Leave
from controlplane.catalogue.exchange.reading import Reading, Verdict
from controlplane.catalogue.hardware.models import HardwareProfile
from controlplane.catalogue.hardware.profile_fields import LABELS
from controlplane.catalogue.hardware.profiles import profile_of, step_of
from controlplane.catalogue.rewards.models import RewardVersion
from controlplane.catalogue.versioned.queries import offered_versions
from controlplane.platform.safe_yaml import short
from runs.launch.new_run import prefill
from runs.launch.new_run.fields.choice_fields import offered_datasets, offered_profiles
from runs.launch.new_run.fields.training_fields import PRECISION_FLAGS, TRAINING
from runs.launch.new_run.forms import CHOICES, LORA_DEFAULT, LaunchForm
from runs.launch.new_run.importing_environment import differing_limits, left_out, named, needs
from workers.contract.run import settings
from workers.contract.run.hardware import HardwareSpec, WeightSync
from workers.contract.run.spec import RewardSpec
from workers.contract.wire.documents import ContractError, from_dict, to_dict

NOT_IN_TRL = "The hosts' TRL has no such argument."
NO_SCHEMA = "No host has reported yet which arguments its TRL has."
LEFT_AS_TYPED = ("lora",)
"""Sections that count only where a switch is on."""


@dataclass(frozen=True)
class FilledField:
    name: str
    label: str
    text: str
    key: str
    """In the document."""


@dataclass
class Imported:
    """What an import does to the form."""

    reading: Reading
    typed: Mapping[str, Any]
    schema: dict[str, Any] | None
    values: dict[str, str] = field(default_factory=dict)
    """Form field -> text, as a browser would send it."""
    keys: dict[str, str] = field(default_factory=dict)
    """Form field -> key in the document."""
    profile: HardwareProfile | None = None
    """The one that is chosen."""
    fitting: list[HardwareProfile] = field(default_factory=list)
    """The profiles that have all the document's settings."""
    hardware: list[tuple[str, str]] = field(default_factory=list)
    """(label, value) of the settings that need a hardware profile."""

    needs: list[str] = field(default_factory=list)
    """What the settings ask for beside the form's fields, in words."""

    @property
    def data(self) -> dict[str, Any]:
        """The whole form, as a browser would send it."""
        data = {name: self.typed[name] for name in self.typed}  # of a QueryDict, the last value of each name
        return {name: text for name, text in {**data, **self.values}.items() if not (name == "use_lora" and not text)}

    def put(self, name: str, value: Any, path: str) -> None:
        self.values[name] = sent(value)
        self.keys[name] = self.reading.sources.get(path, path)

    def form(self) -> LaunchForm:
        """The filled form, with the document's wrong values beside their fields; open choices are no errors yet."""
        form = without_open_choices(LaunchForm(self.data, schema=self.schema))
        for note in self.reading.notes:
            name = field_of(note.path)
            if note.verdict == Verdict.WRONG and name in form.fields:
                form.errors.pop(name, None)
                form.add_error(name, f"{note.key}: {note.text}")
        for name, key in self.keys.items():
            if name in form.fields:
                form.fields[name].imported_from = key  # type: ignore[attr-defined]  # for components/field.html
        return form

    @property
    def filled(self) -> list[FilledField]:
        form = LaunchForm(schema=self.schema)
        return [
            FilledField(name, str(form.fields[name].label), short(text) or "off", self.keys[name])
            for name, text in self.values.items()
            if name in form.fields and name in self.keys
        ]


def read(content: bytes, typed: Mapping[str, Any], schema: dict[str, Any] | None) -> Imported:
    """`typed`: the form as sent. Raises documents' Unreadable."""
    fields = trl.fields_of(schema) | {one.name: one.kind.__name__ for one in TRAINING}
    imported = Imported(documents.read(content, fields), typed, schema)
    if imported.reading.complete:
        _left_to_trl(imported)
    _rows(imported)
    _environment(imported)
    _settings(imported)
    _lora(imported)
    _precision(imported)
    _lengths(imported)
    _profile(imported)
    _batch(imported)
    _wrong(imported)
    return imported


def without_open_choices(form: LaunchForm) -> LaunchForm:
    """The form without the errors of choices that are still to be made: nobody has tried to launch."""
    errors = form.errors.as_data()
    for name in [name for name in CHOICES if any(error.code == "required" for error in errors.get(name, ()))]:
        del form.errors[name]
    return form


def sent(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict | list | tuple):
        return json.dumps(value)
    return str(value)


def field_of(path: str) -> str:
    """The form's field for a path of the spec, or an empty text."""
    return settings.FIELDS.get(path) or (path.removeprefix("grpo.") if path.startswith("grpo.") else "")


def _left_to_trl(imported: Imported) -> None:
    """One of our own documents says everything: a setting that it hasn't is TRL's own default."""
    form = LaunchForm(schema=imported.schema)
    for training in TRAINING:
        default = prefill.left_to_trl(training, imported.schema)
        imported.values[training.name] = "" if default is None else sent(default)
    for names in form.advanced.values():
        imported.values |= dict.fromkeys(names, "")
    defaults = {
        one.name: one.default
        for one in settings.SETTINGS
        if one.section not in LEFT_AS_TYPED and one.name not in ("name", "model")
    }
    imported.values |= {name: sent(value) if value else "" for name, value in defaults.items()}
    imported.values |= dict.fromkeys(settings.SINKS.values(), "")
    imported.values |= {"precision": "profile", "eval_rows": "0", "auto_resumes": "0"}
    imported.values |= {"eval_reward_version": "", "vllm_share": ""}
    imported.values |= {name: sent(value) for name, value in left_out().items()}


def _rows(imported: Imported) -> None:
    """The catalogue rows that a spec names."""
    reading = imported.reading
    data, rewards, eval_rewards = (reading.pop(name) for name in ("data", "rewards", "eval_rewards"))
    if isinstance(data, dict):
        number = _number(str(data.get("version")))
        name, sha256 = (str(data.get(key) or "").replace("\0", "") for key in ("name", "sha256"))
        version = offered_datasets().filter(dataset__name=name, number=number).first()
        if version is None and sha256 and (version := offered_datasets().filter(sha256=sha256).order_by("pk").last()):
            reading.note(Verdict.ASSUMED, "data.name", f"{version} has the rows of {short(name)}, which isn't here.")
        if version is None:
            text = f"No dataset {short(data.get('name'))} v{number} is here: choose another."
            reading.note(Verdict.LEFT_OUT, "data", text, path="dataset_version")
        else:
            imported.put("dataset_version", version.pk, "data")
            imported.put("eval_rows", data.get("eval_rows") or 0, "data.eval_rows")
            if data.get("sha256") not in (None, version.sha256):
                reading.note(Verdict.CONTRADICTION, "data.sha256", f"{version} here has other rows.")
    if rewards is not None:
        chosen = _reward_version(rewards, reading.values.get("failed_share"))
        if chosen is None:
            text = "No reward config here has these components: choose another."
            reading.note(Verdict.LEFT_OUT, "rewards", text, path="reward_version")
        else:
            imported.put("reward_version", chosen.pk, "rewards")
            aggregation = reading.values.get("grpo.multi_objective_aggregation")
            if aggregation == chosen.aggregation:
                reading.pop("grpo.multi_objective_aggregation")
    reading.pop("failed_share")
    if eval_rewards:
        chosen = _reward_version(eval_rewards, None)
        if chosen is None:
            text = "No reward config here has these components: evaluations have the run's own only."
            reading.note(Verdict.LEFT_OUT, "eval_rewards", text, path="eval_reward_version")
        else:
            imported.put("eval_reward_version", chosen.pk, "eval_rewards")
    if reading.pop("model.trust_remote_code"):
        reading.note(Verdict.LEFT_OUT, "model.trust_remote_code", trl.TABLE["trust_remote_code"].reason)  # type: ignore[union-attr]


def _environment(imported: Imported) -> None:
    """The version that a spec names, and only the limits in which the run differs from it."""
    reading = imported.reading
    name, number, parts = (reading.pop(f"episodes.{one}") for one in ("name", "version", "parts"))
    version = named(name, number, parts) if parts else None
    if version is not None:
        imported.put("environment", version.pk, "episodes")
    elif parts:
        text = "No environment here has these parts: make one under Environments."
        reading.note(Verdict.LEFT_OUT, "episodes", text, path="environment")
    if reading.complete and version is not None:
        differing = differing_limits(reading.values, version)
        for path in [path for path in reading.values if path.startswith("episodes.limits.")]:
            reading.pop(path)
        for path, value in differing.items():
            reading.put(path, value, path)
    imported.needs = needs(reading, imported.data)


def _reward_version(rewards: Any, failed_share: Any) -> RewardVersion | None:
    try:
        wanted = [to_dict(from_dict(RewardSpec, part)) for part in rewards]
    except (ContractError, TypeError):
        return None
    for version in offered_versions(RewardVersion):
        same_share = failed_share in (None, version.failed_share)
        try:
            if same_share and [to_dict(from_dict(RewardSpec, part)) for part in version.components] == wanted:
                return version
        except ContractError:
            continue
    return None


def _settings(imported: Imported) -> None:
    reading, form = imported.reading, LaunchForm(schema=imported.schema)
    for path, value in list(reading.values.items()):
        name = field_of(path)
        if not name or name in ("bf16", "fp16", "eval_strategy") or path.startswith("lora."):
            continue
        if name in form.fields:
            imported.put(name, value, path)
        else:
            rule = trl.grpo_rule(name, {})
            text = rule.reason if isinstance(rule, Leave) else NOT_IN_TRL if imported.schema else NO_SCHEMA
            reading.note(Verdict.LEFT_OUT, reading.sources.get(path, name), text)


def _lora(imported: Imported) -> None:
    on = imported.reading.values.get("lora")
    if on is None:
        return
    imported.put("use_lora", "on" if on else "", "lora")
    for path, name in settings.FIELDS.items():
        if on and path in imported.reading.values:
            value = imported.reading.values[path]
            value = ", ".join(map(str, value)) or LORA_DEFAULT if isinstance(value, list | tuple) else value
            imported.put(name, value, path)


def _precision(imported: Imported) -> None:
    values = imported.reading.values
    given = {name: bool(values[f"grpo.{name}"]) for name in ("bf16", "fp16") if f"grpo.{name}" in values}
    if given:
        flags = {"bf16": False, "fp16": False, **given}
        name = next((name for name, wanted in PRECISION_FLAGS.items() if wanted == flags), "profile")
        imported.put("precision", name, "grpo.bf16" if "bf16" in given else "grpo.fp16")


def _lengths(imported: Imported) -> None:
    """Epochs count only while steps are empty."""
    values = imported.reading.values
    if "grpo.num_train_epochs" in values and "grpo.max_steps" not in values:
        imported.values["max_steps"] = ""
    if values.get("grpo.save_strategy") != "epoch" and "grpo.save_steps" in values:
        imported.values["save_strategy"] = "steps"


def _profile(imported: Imported) -> None:
    """The stored profile that has all the document's hardware settings, if it is the only one or chosen already."""
    reading = imported.reading
    wanted = {path: value for path, value in reading.values.items() if path.startswith("hardware.")}
    name = wanted.pop("hardware.profile", "")
    if not wanted and not reading.complete:
        return
    fitting = imported.fitting = [row for row in offered_profiles() if _fits(row, wanted, reading)]
    sure = fitting[:1] if len(fitting) == 1 or reading.complete else []
    typed = [row for row in fitting if str(row.pk) == str(imported.typed.get("profile"))]
    imported.profile = next((row for row in (*(row for row in fitting if row.name == name), *typed, *sure)), None)
    if imported.profile is not None:
        imported.put("profile", imported.profile.pk, next(iter(wanted), "hardware"))
        _share(imported, profile_of(imported.profile).spec, wanted)
    imported.hardware = [(_label(path), short(sent(value).strip('"'))) for path, value in wanted.items()]


def _fits(row: HardwareProfile, wanted: Mapping[str, Any], reading: Reading) -> bool:
    try:
        profile = profile_of(row)
    except ContractError:
        return False
    if reading.complete:  # a run may have a share of its own
        values = own.hardware_values(profile.spec.with_vllm_share(own.vllm_share(profile.spec, wanted)))
        values.pop("hardware.profile", None)
        return values == wanted
    values = own.hardware_values(profile.spec)
    server = profile.spec.vllm_server
    swaps = server is not None and server.weight_sync == WeightSync.LORA
    if swaps and not reading.values.get("lora"):
        return False
    defaults = own.default_hardware()
    same = all(values.get(path, defaults.get(path)) == value for path, value in wanted.items())
    batch = {name: reading.values.get(f"grpo.{name}", size) for name, size in profile.batch.items()}
    return same and step_of(batch) == step_of(profile.batch)


def _share(imported: Imported, spec: HardwareSpec, wanted: Mapping[str, Any]) -> None:
    share = own.vllm_share(spec, wanted)
    if imported.reading.complete and share not in (None, spec.vllm_share):
        imported.put("vllm_share", share, own.SHARES[spec.rollout])


def _label(path: str) -> str:
    name = path.removeprefix("hardware.").replace("server.", "server_")
    return LABELS.get(name, name)


def _batch(imported: Imported) -> None:
    """A DeepSpeed JSON's train_batch_size, against the form's batch and its profile's processes."""
    reading = imported.reading
    total = reading.pop("_train_batch_size")
    if total is None:
        return
    data = imported.data
    sizes = [str(data.get(name) or "") for name in ("per_device_train_batch_size", "gradient_accumulation_steps")]
    row = imported.profile or HardwareProfile.objects.filter(pk=_number(str(data.get("profile") or ""))).first()
    processes = row.spec.get("processes", 1) if row else 1
    product = _number(sizes[0]) * _number(sizes[1]) * processes
    if product != total:
        text = f"{total} is not {sizes[0]} × {sizes[1]} × {processes} (batch × accumulation × processes) = {product}."
        reading.note(Verdict.CONTRADICTION, "train_batch_size", text, path="grpo.per_device_train_batch_size")


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def _wrong(imported: Imported) -> None:
    """A value that can't be used stands in its field, as it was written."""
    for note in imported.reading.notes:
        name = field_of(note.path)
        if note.verdict == Verdict.WRONG and name and name not in imported.values:
            imported.values[name] = note.raw
