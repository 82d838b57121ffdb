"""The changes between a version of a config and the previous one."""

from __future__ import annotations

from controlplane.catalogue.rewards.models import RewardVersion
from controlplane.catalogue.versioned.differences import Difference, of_parts, of_setting
from controlplane.platform.templatetags.figures import setting
from workers.contract.run.spec import RewardSpec


def differences(before: RewardVersion, after: RewardVersion) -> list[Difference]:
    return [
        *of_parts(before, after, more=_weight, settings=_settings),
        *of_setting("aggregation", before.aggregation, after.aggregation),
        *of_setting("failure threshold", before.failed_share, after.failed_share),
    ]


def _weight(spec: RewardSpec) -> str:
    return f" × {setting(spec.weight)}{', each turn' if spec.per_turn else ''}"


def _settings(old: RewardSpec, new: RewardSpec) -> list[Difference]:
    return [
        *of_setting(f"{new.name} weight", old.weight, new.weight),
        *of_setting(f"{new.name} scores", _scored(old), _scored(new)),
    ]


def _scored(spec: RewardSpec) -> str:
    return "each turn" if spec.per_turn else "the whole completion"
