"""Environments (tools to call and games to play) and their versions, which never change, because runs refer to them."""

from collections.abc import Mapping
from typing import Any

from django.db import models

from controlplane.catalogue.datasets.corpora.queries import titles_in
from controlplane.catalogue.datasets.models import CorpusVersion
from controlplane.catalogue.versioned.kind import ItemKind
from controlplane.catalogue.versioned.models import Item, Version
from controlplane.platform.deletable import Kept
from workers.contract.run.episodes import EpisodeLimits, EpisodeSpec, PartSpec
from workers.contract.wire.documents import ContractError, from_dict
from workers.environments.library import LIBRARY

MAX_NAMED = 5


class Environment(Item):
    """Named set of tools with at most one game or server; its newest version is the current one."""

    objects = Kept["Environment"]()
    every = models.Manager["Environment"]()

    def newest(self) -> "EnvironmentVersion":
        """Find the newest version in one query. Every environment has a version, created in the same transaction."""
        return self.versions.order_by("-number")[0]


class EnvironmentVersion(Version):
    environment = models.ForeignKey(Environment, on_delete=models.CASCADE, related_name="versions")
    parts = models.JSONField(default=list)
    """List of workers.contract.run.episodes.PartSpec with unique names."""
    limits = models.JSONField(default=dict)
    """Fields of workers.contract.run.episodes.EpisodeLimits; missing ones have their defaults."""
    kind = ItemKind(
        name="environment",
        slug="environment",
        page="Environments",
        route="environment",
        version_route="environment_version",
        item="environment",
        parts="parts",
        spec=PartSpec,
        library=LIBRARY,
        entry="entry",
    )

    class Meta:
        ordering = ("environment", "-number")
        constraints = [models.UniqueConstraint(fields=["environment", "number"], name="environment_version_number")]

    @property
    def episode_limits(self) -> EpisodeLimits:
        return limits_of(self.limits)

    def episode_spec(self, turn_advantage_coef: float = 1.0) -> EpisodeSpec:
        return EpisodeSpec(
            name=self.environment.name,
            version=self.number,
            parts=tuple(self.specs),
            limits=self.episode_limits,
            turn_advantage_coef=turn_advantage_coef,
        )


def limits_of(limits: Mapping[str, Any]) -> EpisodeLimits:
    try:
        return from_dict(EpisodeLimits, dict(limits))
    except ContractError:
        return EpisodeLimits()


def environments_searching(corpus: CorpusVersion) -> list[str]:
    """List the environments with a version that searches a corpus, so that the corpus can't be deleted. After the first
    few, the list ends with "other environments"."""
    title = str(corpus)
    versions = EnvironmentVersion.objects.select_related("environment").order_by("environment__name", "-number")
    environment_names = (version.environment.name for version in versions if title in titles_in(version.specs))
    names = [f"the environment {name}" for name in dict.fromkeys(environment_names)]
    return [*names[:MAX_NAMED], "other environments"] if len(names) > MAX_NAMED else names
