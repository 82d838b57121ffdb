"""Access to reward configs and versions: the only way for views to get one."""

from __future__ import annotations

from functools import partial

from controlplane.catalogue.rewards.models import RewardConfig, RewardVersion
from controlplane.catalogue.versioned import queries

config_for = partial(queries.item_for, RewardConfig)
version_for = partial(queries.version_for, RewardVersion)
newest_versions = partial(queries.newest_versions, RewardVersion)
offered_versions = partial(queries.offered_versions, RewardVersion)
free_name = partial(queries.free_name, RewardConfig)
