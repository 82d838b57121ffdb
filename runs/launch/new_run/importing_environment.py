"""The environment of an imported config: which one it is here, and what a multi-turn config needs beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from controlplane.catalogue.environments.models import EnvironmentVersion
from controlplane.catalogue.environments.saving import EnvironmentComposition
from controlplane.catalogue.exchange.reading import Reading
from controlplane.catalogue.rewards.models import RewardVersion
from controlplane.catalogue.versioned.queries import offered_versions
from runs.launch.new_run.fields.episode_fields import EPISODE_FIELDS, LIMITS, EpisodeFields
from workers.contract.run.episodes import EpisodeLimits

TOOLS = "An environment with tools: these settings are for episodes of several turns."
EACH_TURN = (
    "A reward config with a component that scores each turn, such as “answer in the results” for search, beside one "
    "for the outcome, such as an exact match at the end."
)


def left_out() -> dict[str, Any]:
    """The fields' values for a document that says everything and has no environment."""
    initial = {name: EpisodeFields.base_fields[name].initial for name in EPISODE_FIELDS}
    return {name: "" if value in (None, False) else value for name, value in initial.items()}


def named(name: Any, number: Any, parts: Any) -> EnvironmentVersion | None:
    """The version of this name and number if it has these parts, otherwise an offered one that has them."""
    same_name = EnvironmentVersion.objects.filter(
        environment__name=str(name).replace("\0", "")[:80],
        number=number if isinstance(number, int) and 0 < number < 2**31 else 0,
        environment__archived_at=None,
        environment__deleted_at=None,
    )
    wanted = EnvironmentComposition(parts)
    versions = [*same_name.select_related("environment"), *offered_versions(EnvironmentVersion)]
    return next((one for one in versions if EnvironmentComposition(one.parts).same_as(wanted)), None)


def differing_limits(values: Mapping[str, Any], version: EnvironmentVersion) -> dict[str, Any]:
    """Path -> value of the limits that the version has otherwise; what a spec leaves out is the default."""
    own, default = version.episode_limits, EpisodeLimits()
    given = {limit: values.get(f"episodes.limits.{limit}", getattr(default, limit)) for limit in LIMITS}
    return {f"episodes.limits.{limit}": value for limit, value in given.items() if value != getattr(own, limit)}


def needs(reading: Reading, data: Mapping[str, Any]) -> list[str]:
    """`data`: the filled form, as a browser sends it."""
    if not reading.below("episodes") or reading.below("episodes.gateway"):
        return []
    found = [] if data.get("environment") else [TOOLS]
    if "episodes.turn_advantage_coef" in reading.values and not _scores_turns(data.get("reward_version")):
        found.append(EACH_TURN)
    return found


def _scores_turns(chosen: Any) -> bool:
    text = str(chosen or "")
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 18 else None
    version = RewardVersion.objects.filter(pk=number).first() if number else None
    return version is not None and any(part.get("per_turn") for part in version.components)
