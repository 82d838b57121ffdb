"""The New run form's initial values: defaults, a link's choices, a profile's values, or a run's frozen spec."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

from django.forms import BaseForm, CharField, ChoiceField
from django.http import QueryDict

from controlplane.catalogue.hardware.models import HardwareProfile
from controlplane.catalogue.hardware.profiles import launch_values
from controlplane.catalogue.rewards.models import RewardVersion
from runs.engine.models import Run
from runs.engine.spec import hardware_of, spec_of, with_aggregation
from runs.launch.new_run.fields import advanced_fields, episode_fields, sink_fields
from runs.launch.new_run.fields.choice_fields import offered_profiles
from runs.launch.new_run.fields.training_fields import PRECISION_FLAGS, TRAINING, TrainingField
from runs.launch.new_run.forms import LORA_DEFAULT, LaunchForm
from workers.contract.run.ahead import with_correction
from workers.contract.run.hardware import HardwareSpec
from workers.contract.run.settings import SETTINGS, values_of
from workers.contract.run.spec import RunSpec
from workers.contract.stack.training_rules import TRL_DEFAULTS
from workers.contract.wire.documents import ContractError, to_dict

FROM_LINKS = ("model", "dataset_version", "reward_version", "profile", "host", "name", "environment")
"""Choices that a link to the page may make: `?dataset_version=3`."""


def from_query(query: QueryDict) -> dict[str, Any]:
    chosen: dict[str, Any] = {name: query[name][:500] for name in FROM_LINKS if query.get(name)}
    number = str(chosen.get("profile", ""))
    if number.isascii() and number.isdigit() and len(number) < 18:
        return made_for(HardwareProfile.objects.filter(pk=int(number)).first()) | chosen
    return chosen


def made_for(profile: HardwareProfile | None) -> dict[str, str]:
    """The form values of a profile; {} if the profile is from an older contract."""
    if profile is None:
        return {}
    try:
        return launch_values(profile)
    except ContractError:
        return {}


def fillable(form: LaunchForm) -> dict[str, Any]:
    """For the page's script: each profile's form values, and the defaults of all fields involved."""
    profiles = {str(profile.pk): made_for(profile) for profile in offered_profiles()}
    names = dict.fromkeys(name for values in profiles.values() for name in values if name in form.fields)
    initial = {name: form.fields[name].initial for name in names}
    return {
        "base": {name: "" if value is None or value is False else str(value) for name, value in initial.items()},
        "profiles": profiles,
    }


def from_run(run: Run, schema: dict[str, Any] | None) -> dict[str, Any]:
    spec = spec_of(run)
    grpo = _without_the_configs(spec.grpo, run)
    values: dict[str, Any] = {
        "cloned_from": run.pk,
        **_settings(spec),
        "name": _next_name(run.name),
        "dataset_version": run.dataset_version_id,
        "reward_version": run.reward_version_id,
        "profile": run.profile_id,
        "host": run.host_id,
        "vllm_share": _own_share(run, spec.hardware),
        "eval_reward_version": run.eval_reward_version_id,
        **sink_fields.of_spec(spec.sinks),
        **episode_fields.of_spec(spec.episodes, run.environment_version),
        "precision": _precision(spec.grpo),
        # A field that the spec leaves to TRL is left to TRL again, not set to this form's default.
        **{field.name: _offered(field, spec.grpo.get(field.name, left_to_trl(field, schema))) for field in TRAINING},
        **advanced_fields.initial(schema, grpo),
    }
    return values


def _settings(spec: RunSpec) -> dict[str, Any]:
    """Form field -> value of all settings but the episodes', which depend on the environment."""
    values = values_of(spec, tuple(setting for setting in SETTINGS if not setting.path.startswith("episodes.")))
    values["stop_gain"] = values.get("stop_gain") or None
    if spec.lora is not None:
        values |= {"use_lora": True, "lora_targets": ", ".join(spec.lora.target_modules) or LORA_DEFAULT}
    return {name: _in_field(name, value) for name, value in values.items()}


def _in_field(name: str, value: Any) -> Any:
    """A flag that is a choice of two in the form is a word there; no text is an empty one."""
    field = LaunchForm.base_fields[name]
    if isinstance(value, bool) and isinstance(field, ChoiceField):
        return str(value).lower()
    return "" if value is None and isinstance(field, CharField | ChoiceField) else value


def changed_since(run: Run) -> list[str]:
    """Catalogue rows that changed since the run was frozen; a clone uses the current ones."""
    changed = [*_rewards_changed(run.reward_version, "reward config")]
    if run.spec.get("eval_rewards"):
        changed += _rewards_changed(run.eval_reward_version, "evaluations’ reward config")
    changed += _environment_changed(run)
    if run.profile is None:
        changed.append("Its hardware profile was deleted: choose another.")
    elif {**run.spec.get("hardware", {}), "profile": ""} != _full(run.profile, spec_of(run).hardware.vllm_share):
        changed.append(f"The profile {run.profile.name} has changed since: the clone uses its current settings.")
    return changed


def _rewards_changed(version: RewardVersion | None, what: str) -> Iterator[str]:
    if version is None:
        yield f"Its {what} was deleted: choose another."
    elif version.config.archived_at:
        yield f"Its {what} {version.config.name} was archived: choose another."
    elif (newest := version.config.newest()) != version:
        yield (f"There is a newer version of its {what}, {newest}: the clone uses v{version.number}, as the run did.")


def _environment_changed(run: Run) -> Iterator[str]:
    version = run.environment_version
    if version is None:
        if (run.spec.get("episodes") or {}).get("parts"):
            yield "Its environment was deleted: choose another."
    elif version.environment.archived_at:
        yield f"Its environment {version.environment.name} was archived: choose another."
    elif (newest := version.environment.newest()) != version:
        yield f"There is a newer version of its environment, {newest}: the clone has v{version.number}, as the run had."


def as_sent(form: BaseForm) -> dict[str, Any]:
    """The form's initial values as a browser would send them."""
    sent: dict[str, Any] = {}
    for bound in form:
        value = bound.value()
        if value is None or value is False or value == "":
            continue
        sent[bound.html_name] = "on" if value is True else value
    return sent


def _without_the_configs(grpo: Mapping[str, Any], run: Run) -> dict[str, Any]:
    """GRPO settings without those of the reward config, which come from the clone's config, and without the correction
    of batches generated ahead, which comes with that setting."""
    from_config = with_aggregation(run.reward_version, {}) if run.reward_version else {}
    from_config |= with_correction({}, bool(run.spec.get("ahead")))
    return {name: value for name, value in grpo.items() if from_config.get(name) != value}


def _full(profile: HardwareProfile, vllm_share: float | None) -> dict[str, Any]:
    """A stored profile with all defaults filled in, as in the frozen copy of a run that has this share."""
    try:
        return {**to_dict(hardware_of(profile, vllm_share)), "profile": ""}
    except ContractError:
        return {}


def _own_share(run: Run, hardware: HardwareSpec) -> float | None:
    """The run's share for vLLM, where it isn't its profile's."""
    try:
        profiles = hardware_of(run.profile).vllm_share if run.profile else None
    except ContractError:
        return None
    return None if hardware.vllm_share == profiles else hardware.vllm_share


def _offered(field: TrainingField, value: Any) -> Any:
    """The value, unless the form doesn't offer it: a trial's save_strategy is `no`."""
    return field.default if field.name == "save_strategy" and value not in dict(field.choices) else value


def left_to_trl(field: TrainingField, schema: Mapping[str, Any] | None) -> Any:
    """The value of a field left to TRL: empty if the form allows that, otherwise the default of the host's trainer."""
    if not field.required:
        return None
    default = ((schema or {}).get("defaults") or {}).get(field.name)
    return TRL_DEFAULTS.get(field.name, field.default) if default is None else default


def _precision(grpo: Mapping[str, Any]) -> str:
    flags = {name: grpo[name] for name in ("bf16", "fp16") if name in grpo}
    return next((name for name, values in PRECISION_FLAGS.items() if values == flags), "profile")


def _next_name(name: str) -> str:
    """run -> run-2 -> run-3; the first that no run has."""
    stem, dash, number = name.rpartition("-")
    if not (dash and number.isascii() and number.isdigit() and len(number) < 6):
        stem, number = name, "1"
    stem = stem[:112]
    taken = set(Run.objects.filter(name__startswith=f"{stem}-").values_list("name", flat=True))
    return next(free for n in count(int(number) + 1) if (free := f"{stem}-{n}") not in taken)
