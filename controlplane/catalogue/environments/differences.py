"""The changes between a version of an environment and the previous one."""

from __future__ import annotations

from dataclasses import fields

from controlplane.catalogue.environments.forms import LIMIT_LABELS
from controlplane.catalogue.environments.models import EnvironmentVersion
from controlplane.catalogue.versioned.differences import Difference, of_parts, of_setting
from workers.contract.run.episodes import EpisodeLimits


def differences(before: EnvironmentVersion, after: EnvironmentVersion) -> list[Difference]:
    changes, old, new = of_parts(before, after), before.episode_limits, after.episode_limits
    for name in (field.name for field in fields(EpisodeLimits)):
        changes += of_setting(LIMIT_LABELS[name].lower(), getattr(old, name), getattr(new, name))
    return changes
