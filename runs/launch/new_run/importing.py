"""Import of another tool's config, or of a run's spec, over the values in the New run form."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from controlplane.catalogue.environments.models import EnvironmentVersion
from controlplane.catalogue.environments.saving import EnvironmentComposition
from controlplane.catalogue.exchange import documents, own, trl
from controlplane.catalogue.exchange.keys import Leave
from controlplane.catalogue.exchange.reading import KeyVerdict, Reading
from controlplane.catalogue.hardware.models import HardwareProfile
from controlplane.catalogue.hardware.profile_fields import LABELS
from controlplane.catalogue.hardware.profiles import profile_of, step_of
from controlplane.catalogue.rewards.models import RewardVersion
from controlplane.catalogue.versioned.queries import offered_versions
from controlplane.platform.safe_yaml import short_value
from runs.launch.new_run import prefill
from runs.launch.new_run.choices import REQUIRED_CHOICES, launch_fields
from runs.launch.new_run.fields.choice_fields import offered_datasets, offered_profiles, row_by_id
from runs.launch.new_run.fields.mix_field import lines_of
from runs.launch.new_run.fields.table import ARGUMENTS
from runs.launch.new_run.forms import LaunchForm
from runs.launch.new_run.leads import Leads, leads_of
from runs.launch.new_run.spec_values import field_of, field_values, form_value, of_empty_spec
from workers.contract.run.hardware import WeightSync
from workers.contract.run.spec import DataSpec, RewardSpec
from workers.contract.wire.documents import ContractError, from_dict, to_dict

NOT_IN_TRL = "TRL on the hosts has no such argument."
NEEDS_TOOLS = "An environment with tools, because these settings apply to episodes of several turns."
NEEDS_TURN_REWARD = (
    "A reward config with a component that scores each turn, such as “answer in the results” for search, and another "
    "that scores the outcome, such as an exact match at the end."
)
NO_SCHEMA = "No host has reported its TRL’s arguments yet."


@dataclass(frozen=True)
class FilledField:
    name: str
    label: str
    value: str
    key: str


@dataclass
class ImportedConfig:
    """The changes that an import makes to the form, and what it leaves to the user."""

    reading: Reading
    typed: Mapping[str, Any]
    schema: dict[str, Any] | None
    values: dict[str, Any] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    """Field -> key in the document."""
    profile: HardwareProfile | None = None
    fitting: list[HardwareProfile] = field(default_factory=list)
    """Profiles with all of the document's hardware settings."""
    hardware: list[tuple[str, str]] = field(default_factory=list)
    """Settings that belong to a hardware profile, as (label, value)."""

    needs: list[str] = field(default_factory=list)
    """Sentences on what else the imported settings need."""

    @property
    def leads(self) -> Leads:
        return leads_of(self.reading)

    @property
    def data(self) -> dict[str, Any]:
        """Values of the whole form, as a browser would send them."""
        data = {name: self.typed[name] for name in self.typed}  # from a QueryDict: the last value of each name
        return data | {name: form_value(value) for name, value in self.values.items()}

    def put(self, name: str, value: Any, path: str) -> None:
        self.values[name] = value
        self.keys[name] = self.reading.sources.get(path, path)

    def form(self) -> LaunchForm:
        """Build the filled form, with invalid values at their fields but no errors for missing choices."""
        form = without_open_choices(LaunchForm(self.data, schema=self.schema))
        for note in self.reading.notes:
            name = field_of(note.path)
            if note.verdict == KeyVerdict.WRONG and name in form.fields:
                form.errors.pop(name, None)
                form.add_error(name, f"{note.key}: {note.text}")
        for name, key in self.keys.items():
            if name in form.fields:
                form.fields[name].imported_from = key  # type: ignore[attr-defined]  # for components/field.html
        return form

    @property
    def filled(self) -> list[FilledField]:
        fields = launch_fields(self.schema, {})
        return [
            FilledField(name, str(fields[name].label), _display_value(value), self.keys[name])
            for name, value in self.values.items()
            if name in fields and name in self.keys
        ]


def read(content: bytes, typed: Mapping[str, Any], schema: dict[str, Any] | None) -> ImportedConfig:
    """Read a document whose settings replace the values typed in a form. Raises UnreadableDocument if the document
    can't be read or its kind isn't recognised."""
    fields = trl.fields_of(schema) | {argument.name: argument.kind.__name__ for argument in ARGUMENTS if argument.kind}
    imported = ImportedConfig(documents.read(content, fields), typed, schema)
    if imported.reading.complete:
        imported.values |= of_empty_spec(schema)
    _rows(imported)
    _environment(imported)
    _settings(imported)
    _lengths(imported)
    _profile(imported)
    _batch(imported)
    _keep_wrong_values(imported)
    return imported


def _display_value(value: Any) -> str:
    return "on" if value is True else "off" if value is False else short_value(form_value(value))


def without_open_choices(form: LaunchForm) -> LaunchForm:
    """Remove the errors of missing choices and return the form, since no launch has been tried."""
    errors = form.errors.as_data()
    for name in [name for name in REQUIRED_CHOICES if any(error.code == "required" for error in errors.get(name, ()))]:
        del form.errors[name]
    return form


def _rows(imported: ImportedConfig) -> None:
    reading = imported.reading
    data, rewards, eval_rewards = (reading.pop(name) for name in ("data", "rewards", "eval_rewards"))
    if isinstance(data, dict):
        number = _number(str(data.get("version")))
        name, sha256 = (str(data.get(key) or "").replace("\0", "") for key in ("name", "sha256"))
        version = offered_datasets().filter(dataset__name=name, number=number).first()
        if version is None and sha256 and (version := offered_datasets().filter(sha256=sha256).order_by("pk").last()):
            message = f"Dataset {short_value(name)} doesn't exist here; {version} has the same rows."
            reading.note(KeyVerdict.ASSUMED, "data.name", message)
        if version is None:
            message = f"Dataset {short_value(data.get('name'))} v{number} doesn't exist here. Choose another."
            reading.note(KeyVerdict.LEFT_OUT, "data", message, path="dataset_version")
        else:
            imported.put("dataset_version", version.pk, "data")
            imported.put("eval_rows", data.get("eval_rows") or 0, "data.eval_rows")
            if data.get("sources"):
                _mix(imported, data)
            if data.get("sha256") not in (None, version.sha256):
                reading.note(KeyVerdict.CONTRADICTION, "data.sha256", f"{version} has different rows here.")
    if rewards is not None:
        config = _put_rewards(imported, "rewards", rewards, "Choose another.", reading.values.get("failed_share"))
        if config and reading.values.get("grpo.multi_objective_aggregation") == config.aggregation:
            reading.pop("grpo.multi_objective_aggregation")
    reading.pop("failed_share")
    if eval_rewards:
        _put_rewards(imported, "eval_rewards", eval_rewards, "Evaluations use only the run's rewards.")
    if reading.pop("model.trust_remote_code"):
        reading.note(KeyVerdict.LEFT_OUT, "model.trust_remote_code", trl.TABLE["trust_remote_code"].reason)  # type: ignore[union-attr]


def _mix(imported: ImportedConfig, data: dict[str, Any]) -> None:
    """Take the mix as it is written; the field says what of it doesn't exist here."""
    try:
        imported.put("sources", lines_of(from_dict(DataSpec, data, at="data")), "data.sources")
    except ContractError as error:
        imported.reading.note(KeyVerdict.WRONG, "data.sources", f"{str(error).capitalize()[:300]}.", path="sources")


def _environment(imported: ImportedConfig) -> None:
    """Choose the environment version that a spec names, and keep only the limits that differ from the version's."""
    reading = imported.reading
    name, number, parts = (reading.pop(f"episodes.{key}") for key in ("name", "version", "parts"))
    version = _environment_version(name, number, parts) if parts else None
    if version is not None:
        imported.put("environment", version.pk, "episodes")
    elif parts:
        message = "No environment here has these parts. Create one under Environments."
        reading.note(KeyVerdict.LEFT_OUT, "episodes", message, path="environment")
    if reading.complete and version is not None:
        reading.values = prefill.with_differing_limits(reading.values, version.episode_limits)
    if reading.below("episodes") and not reading.below("episodes.gateway"):
        data = imported.data
        imported.needs = [] if data.get("environment") else [NEEDS_TOOLS]
        rewards = row_by_id(RewardVersion, data.get("reward_version"))
        scores_turns = rewards is not None and any(part.get("per_turn") for part in rewards.components)
        if "episodes.turn_advantage_coef" in reading.values and not scores_turns:
            imported.needs.append(NEEDS_TURN_REWARD)


def _environment_version(name: Any, number: Any, parts: Any) -> EnvironmentVersion | None:
    """Find the version with this name and number if it has these parts, otherwise any offered version that has them."""
    same_name = EnvironmentVersion.objects.filter(
        environment__name=str(name).replace("\0", "")[:80],
        number=number if isinstance(number, int) and 0 < number < 2**31 else 0,
        environment__archived_at=None,
        environment__deleted_at=None,
    )
    composition = EnvironmentComposition(parts)
    versions = [*same_name.select_related("environment"), *offered_versions(EnvironmentVersion)]
    return next((version for version in versions if EnvironmentComposition(version.parts).same_as(composition)), None)


def _put_rewards(
    imported: ImportedConfig, path: str, rewards: Any, consequence: str, failed_share: Any = None
) -> RewardVersion | None:
    """Choose and return the reward config with these components. If there is none, note that with its consequence."""
    name, config = f"{path.removesuffix('s')}_version", _reward_version(rewards, failed_share)
    if config is None:
        message = f"No reward config here has these components. {consequence}"
        imported.reading.note(KeyVerdict.LEFT_OUT, path, message, path=name)
    else:
        imported.put(name, config.pk, path)
    return config


def _reward_version(rewards: Any, failed_share: Any) -> RewardVersion | None:
    try:
        components = [to_dict(from_dict(RewardSpec, part)) for part in rewards]
    except (ContractError, TypeError):
        return None
    for version in offered_versions(RewardVersion):
        same_share = failed_share in (None, version.failed_share)
        try:
            if same_share and [to_dict(from_dict(RewardSpec, part)) for part in version.components] == components:
                return version
        except ContractError:
            continue
    return None


def _settings(imported: ImportedConfig) -> None:
    reading, fields = imported.reading, launch_fields(imported.schema, {})
    for name, value, path in field_values(reading.values):
        if name in fields:
            imported.put(name, value, path)
        else:
            rule = trl.grpo_rule(name, {})
            message = rule.reason if isinstance(rule, Leave) else NOT_IN_TRL if imported.schema else NO_SCHEMA
            reading.note(KeyVerdict.LEFT_OUT, reading.sources.get(path, name), message)


def _lengths(imported: ImportedConfig) -> None:
    values = imported.reading.values
    if "grpo.num_train_epochs" in values and "grpo.max_steps" not in values:
        imported.values["max_steps"] = ""
    if values.get("grpo.save_strategy") != "epoch" and "grpo.save_steps" in values:
        imported.values["save_strategy"] = "steps"


def _profile(imported: ImportedConfig) -> None:
    """Choose a stored profile with all of the document's hardware settings: the named one, the one chosen already, or
    the only one (the first for a complete spec)."""
    reading = imported.reading
    settings = {path: value for path, value in reading.values.items() if path.startswith("hardware.")}
    name = settings.pop("hardware.profile", "")
    if not settings and not reading.complete:
        return
    fitting = imported.fitting = [row for row in offered_profiles() if _fits(row, settings, reading)]
    fitting_profiles = fitting[:1] if len(fitting) == 1 or reading.complete else []
    typed = [row for row in fitting if str(row.pk) == str(imported.typed.get("profile"))]
    imported.profile = next(
        (row for row in (*(row for row in fitting if row.name == name), *typed, *fitting_profiles)), None
    )
    if imported.profile is not None:
        imported.put("profile", imported.profile.pk, next(iter(settings), "hardware"))
        spec = profile_of(imported.profile).spec
        share = own.vllm_share(spec, settings)
        if reading.complete and share not in (None, spec.vllm_share):
            imported.put("vllm_share", share, own.SHARES[spec.rollout])
    names = {path: path.removeprefix("hardware.").replace("server.", "server_") for path in settings}
    imported.hardware = [
        (LABELS.get(names[path], names[path]), short_value(form_value(value).strip('"')))
        for path, value in settings.items()
    ]


def _fits(row: HardwareProfile, settings: Mapping[str, Any], reading: Reading) -> bool:
    try:
        profile = profile_of(row)
    except ContractError:
        return False
    if reading.complete:  # a run may override its profile's share
        values = own.hardware_values(profile.spec.with_vllm_share(own.vllm_share(profile.spec, settings)))
        values.pop("hardware.profile", None)
        return values == settings
    values = own.hardware_values(profile.spec)
    server = profile.spec.vllm_server
    swaps = server is not None and server.weight_sync == WeightSync.LORA
    if swaps and not reading.values.get("lora"):
        return False
    defaults = own.default_hardware()
    same_settings = all(values.get(path, defaults.get(path)) == value for path, value in settings.items())
    stated = {name: reading.values[f"grpo.{name}"] for name in profile.batch if reading.states(f"grpo.{name}")}
    return same_settings and step_of({**profile.batch, **stated}) == step_of(profile.batch)


def _batch(imported: ImportedConfig) -> None:
    """Compare a DeepSpeed JSON's train_batch_size with the form's batch sizes and its profile's processes."""
    reading = imported.reading
    key, total = reading.take("_train_batch_size")
    if total is None:
        return
    data = imported.data
    sizes = [str(data.get(name) or "") for name in ("per_device_train_batch_size", "gradient_accumulation_steps")]
    row = imported.profile or row_by_id(HardwareProfile, data.get("profile"))
    processes = row.spec.get("processes", 1) if row else 1
    product = _number(sizes[0]) * _number(sizes[1]) * processes
    if product != total:
        message = (
            f"{total} is not {sizes[0]} × {sizes[1]} × {processes} (batch × accumulation × processes) = {product}."
        )
        reading.note(KeyVerdict.CONTRADICTION, key, message, path="grpo.per_device_train_batch_size")


def _number(digits: str) -> int:
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 10 else 0


def _keep_wrong_values(imported: ImportedConfig) -> None:
    for note in imported.reading.notes:
        name = field_of(note.path)
        if note.verdict == KeyVerdict.WRONG and name and name not in imported.values:
            imported.values[name] = note.raw
