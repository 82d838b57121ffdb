"""The New run form's initial values: defaults, a link's choices, a profile's values, or a run's frozen spec."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import count
from typing import Any

from django.forms import BaseForm
from django.http import QueryDict

from controlplane.catalogue.environments.models import EnvironmentVersion
from controlplane.catalogue.exchange import own
from controlplane.catalogue.hardware.models import HardwareProfile
from controlplane.catalogue.hardware.profiles import launch_values
from controlplane.catalogue.rewards.models import RewardVersion
from runs.engine.models import Run
from runs.engine.spec import hardware_of, spec_of, with_aggregation
from runs.launch.new_run.fields.choice_fields import offered_profiles, row_by_id
from runs.launch.new_run.fields.mix_field import lines_of
from runs.launch.new_run.fields.table import BY_FIELD
from runs.launch.new_run.forms import LaunchForm
from runs.launch.new_run.spec_values import field_values, form_value, of_empty_spec
from workers.contract.run.episodes import EpisodeLimits
from workers.contract.run.hardware import HardwareSpec
from workers.contract.run.overlapping import with_correction
from workers.contract.wire.documents import ContractError, to_dict

FROM_LINKS = ("model", "dataset_version", "reward_version", "profile", "host", "name", "environment")
"""Choices that a link to the page may make, as in `?dataset_version=3`."""


def from_query(query: QueryDict) -> dict[str, Any]:
    choices: dict[str, Any] = {name: query[name][:500] for name in FROM_LINKS if query.get(name)}
    return made_for(row_by_id(HardwareProfile, choices.get("profile"))) | choices


def made_for(profile: HardwareProfile | None) -> dict[str, str]:
    """Read the form values of a profile; return {} if it was saved under an older contract."""
    if profile is None:
        return {}
    try:
        return launch_values(profile)
    except ContractError:
        return {}


def fillable_values(form: LaunchForm) -> dict[str, Any]:
    """Collect each profile's form values, and the defaults of the fields that they fill, for the page's script."""
    profiles = {str(profile.pk): made_for(profile) for profile in offered_profiles()}
    names = dict.fromkeys(name for values in profiles.values() for name in values if name in form.fields)
    initial = {name: form.fields[name].initial for name in names}
    return {
        "base": {name: "" if value is None or value is False else str(value) for name, value in initial.items()},
        "profiles": profiles,
    }


def from_run(run: Run, schema: dict[str, Any] | None) -> dict[str, Any]:
    spec = spec_of(run)
    values = own.values_of(replace(spec, grpo=_without_the_configs(spec.grpo, run)))
    version = run.environment_version
    values = with_differing_limits(values, version.episode_limits if version is not None else EpisodeLimits())
    fields = of_empty_spec(schema) | {name: _in_field(name, value) for name, value, _ in field_values(values)}
    return fields | {
        "cloned_from": run.pk,
        "name": _next_name(run.name),
        "dataset_version": run.dataset_version_id,
        "eval_rows": spec.data.eval_rows,
        "sources": lines_of(spec.data),
        "reward_version": run.reward_version_id,
        "profile": run.profile_id,
        "host": run.host_id,
        "vllm_share": _own_share(run, spec.hardware),
        "eval_reward_version": run.eval_reward_version_id,
        "environment": version.pk if version is not None and spec.episodes else None,
    }


def with_differing_limits(values: Mapping[str, Any], own_limits: EpisodeLimits) -> dict[str, Any]:
    """Return a spec's values by path without the episode limits that equal those of its environment. A limit that the
    spec omits has its default."""
    own_values = {path: value for path, value in values.items() if not path.startswith("episodes.limits.")}
    if not any(path.startswith("episodes.") for path in values):
        return own_values
    for name, default in vars(EpisodeLimits()).items():
        value = values.get(f"episodes.limits.{name}", default)
        if value != getattr(own_limits, name):
            own_values[f"episodes.limits.{name}"] = value
    return own_values


def _in_field(name: str, value: Any) -> Any:
    """Convert a value to what its form field takes: a string for a flag that is a choice, and the default for a save
    strategy that the form doesn't offer, such as a trial's `no`."""
    field = BY_FIELD.get(name)
    if isinstance(value, bool) and (field is None or field.kind is not bool or field.choices):
        return form_value(value)
    return field.default if field and name == "save_strategy" and value not in dict(field.choices) else value


def changed_since(run: Run) -> list[str]:
    """Describe what has changed in the catalogue since the run was frozen and matters to its clone."""
    changes = [*_version_changed(run.reward_version, "reward config")]
    if run.spec.get("eval_rewards"):
        changes += _version_changed(run.eval_reward_version, "evaluations’ reward config")
    if run.environment_version or (run.spec.get("episodes") or {}).get("parts"):
        changes += _version_changed(run.environment_version, "environment")
    if run.profile is None:
        changes.append("Its hardware profile was deleted. Choose another.")
    elif {**run.spec.get("hardware", {}), "profile": ""} != _settings_of(run.profile, spec_of(run).hardware.vllm_share):
        changes.append(f"Its profile {run.profile.name} has changed since. The clone uses its current settings.")
    return changes


def _version_changed(version: RewardVersion | EnvironmentVersion | None, label: str) -> Iterator[str]:
    if version is None:
        yield f"Its {label} was deleted. Choose another."
        return
    item = version.config if isinstance(version, RewardVersion) else version.environment
    if item.archived_at:
        yield f"Its {label} {item.name} was archived. Choose another."
    elif (newest_version := item.newest()) != version:
        yield f"Its {label} has a newer version, {newest_version}. The clone uses v{version.number}, as the run did."


def as_sent(form: BaseForm) -> dict[str, Any]:
    """Collect the form's initial values as a browser would send them."""
    values: dict[str, Any] = {}
    for bound in form:
        value = bound.value()
        if value is None or value is False or value == "":
            continue
        values[bound.html_name] = "on" if value is True else value
    return values


def submitted_form(form: LaunchForm) -> LaunchForm:
    """Build a form to which this form's initial values have been submitted."""
    return LaunchForm(as_sent(form), schema=form.schema)


def _without_the_configs(grpo: Mapping[str, Any], run: Run) -> dict[str, Any]:
    """Return GRPO settings without those that a clone sets again: the reward config's, and the correction for batches
    generated ahead."""
    from_config = with_aggregation(run.reward_version, {}) if run.reward_version else {}
    from_config |= with_correction({}, bool(run.spec.get("ahead")))
    return {name: value for name, value in grpo.items() if from_config.get(name) != value}


def _settings_of(profile: HardwareProfile, vllm_share: float | None) -> dict[str, Any]:
    """Return a stored profile's settings with all defaults, as they are frozen for a run with this vLLM share, or {} if
    it can't be read."""
    try:
        return {**to_dict(hardware_of(profile, vllm_share)), "profile": ""}
    except ContractError:
        return {}


def _own_share(run: Run, hardware: HardwareSpec) -> float | None:
    """Return the run's vLLM share, or None if it is the profile's."""
    try:
        profile_share = hardware_of(run.profile).vllm_share if run.profile else None
    except ContractError:
        return None
    return None if hardware.vllm_share == profile_share else hardware.vllm_share


def _next_name(name: str) -> str:
    """Choose the next unused name: run -> run-2 -> run-3."""
    stem, dash, number = name.rpartition("-")
    if not (dash and number.isascii() and number.isdigit() and len(number) < 6):
        stem, number = name, "1"
    stem = stem[:112]
    taken_names = set(Run.objects.filter(name__startswith=f"{stem}-").values_list("name", flat=True))
    return next(candidate for n in count(int(number) + 1) if (candidate := f"{stem}-{n}") not in taken_names)
