"""Environments of imported configs: the matching one here, and further needs of a multi-turn config."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from controlplane.catalogue.environments.models import EnvironmentVersion
from controlplane.catalogue.environments.saving import EnvironmentComposition
from controlplane.catalogue.exchange.reading import Reading
from controlplane.catalogue.rewards.models import RewardVersion
from controlplane.catalogue.versioned.queries import offered_versions

TOOLS = "An environment with tools: these settings are for episodes of several turns."
EACH_TURN = (
    "A reward config with a component that scores each turn, such as “answer in the results” for search, beside one "
    "for the outcome, such as an exact match at the end."
)


def named(name: Any, number: Any, parts: Any) -> EnvironmentVersion | None:
    """The version of this name and number if it has these parts, otherwise an offered one that has them."""
    same_name = EnvironmentVersion.objects.filter(
        environment__name=str(name).replace("\0", "")[:80],
        number=number if isinstance(number, int) and 0 < number < 2**31 else 0,
        environment__archived_at=None,
        environment__deleted_at=None,
    )
    composition = EnvironmentComposition(parts)
    versions = [*same_name.select_related("environment"), *offered_versions(EnvironmentVersion)]
    return next((version for version in versions if EnvironmentComposition(version.parts).same_as(composition)), None)


def needs(reading: Reading, data: Mapping[str, Any]) -> list[str]:
    """List what a multi-turn config still needs. `data`: the filled form, as a browser sends it."""
    if not reading.below("episodes") or reading.below("episodes.gateway"):
        return []
    needed = [] if data.get("environment") else [TOOLS]
    if "episodes.turn_advantage_coef" in reading.values and not _scores_turns(data.get("reward_version")):
        needed.append(EACH_TURN)
    return needed


def _scores_turns(chosen: Any) -> bool:
    text = str(chosen or "")
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 18 else None
    version = RewardVersion.objects.filter(pk=number).first() if number else None
    return version is not None and any(part.get("per_turn") for part in version.components)
