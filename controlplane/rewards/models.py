"""Reward configs and their versions. A version never changes: runs refer to it."""

from __future__ import annotations

from django.conf import settings
from django.db import models

SUM_THEN_NORMALIZE, NORMALIZE_THEN_SUM = "sum_then_normalize", "normalize_then_sum"
AGGREGATIONS = (SUM_THEN_NORMALIZE, NORMALIZE_THEN_SUM)
"""TRL's two ways of combining components into advantages; the first one is its default."""
FAILED_SHARE = 0.5


class RewardConfig(models.Model):
    """A named definition of a good completion; its newest version holds the current scoring."""

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

    def newest(self) -> RewardVersion:
        """The newest version, in one query. Every config has one: both are created in one transaction."""
        return self.versions.order_by("-number")[0]


class RewardVersion(models.Model):
    config = models.ForeignKey(RewardConfig, on_delete=models.CASCADE, related_name="versions")
    number = models.IntegerField()
    components = models.JSONField(default=list)
    """A list of workers.contract.RewardSpec; component names are unique."""
    aggregation = models.CharField(
        max_length=24, default=SUM_THEN_NORMALIZE, choices=[(name, name) for name in AGGREGATIONS]
    )
    failed_share = models.FloatField(default=FAILED_SHARE)
    """The share of rows on which a component may fail before the run ends; 1: never ends."""
    note = models.CharField(max_length=200, blank=True)
    """The user's note about the change."""
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("config", "-number")
        constraints = [models.UniqueConstraint(fields=["config", "number"], name="reward_version_number")]

    def __str__(self) -> str:
        return f"{self.config.name} v{self.number}"

    @property
    def weights(self) -> list[tuple[str, float]]:
        """(component, weight) in order."""
        return [(part.get("name", ""), part.get("weight", 1.0)) for part in self.components]
