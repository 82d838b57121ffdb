"""Reward configs and their versions, which never change, because runs refer to them."""

from django.db import models

from controlplane.catalogue.versioned.kind import ItemKind
from controlplane.catalogue.versioned.models import Item, Version
from controlplane.platform.deletable import Kept
from workers.contract.run.spec import RewardSpec
from workers.rewards.library import LIBRARY

SUM_THEN_NORMALIZE, NORMALIZE_THEN_SUM = "sum_then_normalize", "normalize_then_sum"
AGGREGATIONS = (SUM_THEN_NORMALIZE, NORMALIZE_THEN_SUM)
"""TRL's two ways of combining components into advantages, its default first."""
FAILED_SHARE = 0.5


class RewardConfig(Item):
    """Named definition of how completions are scored; its newest version is the current one."""

    objects = Kept["RewardConfig"]()
    every = models.Manager["RewardConfig"]()

    def newest(self) -> "RewardVersion":
        """Find the newest version in one query. Every config has a version, created in the same transaction."""
        return self.versions.order_by("-number")[0]


class RewardVersion(Version):
    config = models.ForeignKey(RewardConfig, on_delete=models.CASCADE, related_name="versions")
    components = models.JSONField(default=list)
    """List of workers.contract.run.spec.RewardSpec with unique names."""
    aggregation = models.CharField(
        max_length=24, default=SUM_THEN_NORMALIZE, choices=[(name, name) for name in AGGREGATIONS]
    )
    failed_share = models.FloatField(default=FAILED_SHARE)
    """Share of rows on which a component may fail before the run ends; at 1, failures never end it."""
    kind = ItemKind(
        name="reward config",
        slug="reward",
        page="Rewards",
        route="reward_config",
        version_route="reward_version",
        item="config",
        parts="components",
        spec=RewardSpec,
        library=LIBRARY,
        entry="reward",
    )

    class Meta:
        ordering = ("config", "-number")
        constraints = [models.UniqueConstraint(fields=["config", "number"], name="reward_version_number")]
