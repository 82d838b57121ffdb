"""The changes between a version of an environment and the previous one."""

from __future__ import annotations

from dataclasses import fields

from controlplane.environments.forms import LIMIT_LABELS
from controlplane.environments.models import EnvironmentVersion
from controlplane.rewards.differences import Difference, changed_params
from controlplane.templatetags.figures import setting
from workers.contract.episodes import EpisodeLimits, PartSpec
from workers.environments import LIBRARY


def differences(before: EnvironmentVersion, after: EnvironmentVersion) -> list[Difference]:
    """Compare parts by name; one whose function changed counts as another one."""
    old, new = ({spec.name: spec for spec in version.specs} for version in (before, after))
    changes = []
    for name, spec in new.items():
        if name not in old or old[name].function != spec.function:
            changes.append(Difference(name, _title(old[name]) if name in old else "", _title(spec)))
        else:
            changes += changed_params(name, LIBRARY.get(spec.function), old[name].params, spec.params)
    changes += [Difference(name, _title(spec), "") for name, spec in old.items() if name not in new]
    common = [name for name in old if name in new]
    if not changes and common != [name for name in new if name in old]:
        changes.append(Difference("order", ", ".join(old), ", ".join(new)))
    first, second = before.episode_limits, after.episode_limits
    for field in fields(EpisodeLimits):
        was, becomes = getattr(first, field.name), getattr(second, field.name)
        if was != becomes:
            changes.append(Difference(LIMIT_LABELS[field.name].lower(), setting(was), setting(becomes)))
    return changes


def _title(spec: PartSpec) -> str:
    entry = LIBRARY.get(spec.function)
    return entry.title if entry else spec.function
