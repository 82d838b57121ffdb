"""Reward configs and their versions. A version never changes: runs point at it."""

from __future__ import annotations

from django.conf import settings
from django.db import models

SUM_THEN_NORMALIZE, NORMALIZE_THEN_SUM = "sum_then_normalize", "normalize_then_sum"
AGGREGATIONS = (SUM_THEN_NORMALIZE, NORMALIZE_THEN_SUM)
"""TRL's two ways from components to advantages; the first one is its default."""
FAILED_SHARE = 0.5


class RewardConfig(models.Model):
    """What a good completion is, by a name; its newest version says how it is scored now."""

    name = models.CharField(max_length=80, unique=True)
    description = models.TextField(blank=True)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    archived_at = models.DateTimeField(null=True)
    """Put away: not offered for new runs."""
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name

    def newest(self) -> RewardVersion:
        """One query. Every config has a version: both are made in one transaction."""
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
    """A component that fails on more than this share of its rows ends the run; 1: never."""
    note = models.CharField(max_length=200, blank=True)
    """What a person wrote of the change."""
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
        """Of each component, in their order."""
        return [(part.get("name", ""), part.get("weight", 1.0)) for part in self.components]
