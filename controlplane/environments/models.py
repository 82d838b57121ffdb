"""Environments and their versions: what a model may call or play in. A version never changes: runs refer to it."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from controlplane.environments.reading import limits_of, specs
from workers.contract.episodes import EpisodeLimits, EpisodeSpec, PartSpec


class Environment(models.Model):
    """A named set of tools, with at most one game or server; its newest version is the current one."""

    name = models.CharField(max_length=80, unique=True)
    description = models.TextField(blank=True)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    archived_at = models.DateTimeField(null=True)
    """Archived: not offered for new runs."""
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name

    def newest(self) -> EnvironmentVersion:
        """The newest version, in one query. Every environment has one: both are created in one transaction."""
        return self.versions.order_by("-number")[0]


class EnvironmentVersion(models.Model):
    environment = models.ForeignKey(Environment, on_delete=models.CASCADE, related_name="versions")
    number = models.IntegerField()
    parts = models.JSONField(default=list)
    """A list of workers.contract.episodes.PartSpec; their names are unique."""
    limits = models.JSONField(default=dict)
    """A workers.contract.episodes.EpisodeLimits; what is missing has its default."""
    note = models.CharField(max_length=200, blank=True)
    """The user's note about the change."""
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("environment", "-number")
        constraints = [models.UniqueConstraint(fields=["environment", "number"], name="environment_version_number")]

    def __str__(self) -> str:
        return f"{self.environment.name} v{self.number}"

    @property
    def specs(self) -> list[PartSpec]:
        """The parts that the contract can read."""
        return specs(self.parts)

    @property
    def episode_limits(self) -> EpisodeLimits:
        return limits_of(self.limits)

    def episode_spec(self, turn_advantage_coef: float = 1.0) -> EpisodeSpec:
        """What the spec of a run with this version holds."""
        return EpisodeSpec(
            name=self.environment.name,
            version=self.number,
            parts=tuple(self.specs),
            limits=self.episode_limits,
            turn_advantage_coef=turn_advantage_coef,
        )
