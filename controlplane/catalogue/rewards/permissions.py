"""Permissions for components. Operators may use code that an admin has saved, unchanged."""

from __future__ import annotations

from functools import partial

from controlplane.catalogue.rewards.models import RewardVersion
from controlplane.catalogue.versioned import permissions

REFUSED = permissions.refused(RewardVersion)
may_use = partial(permissions.may_use, RewardVersion)
is_saved = partial(permissions.is_saved, RewardVersion)
