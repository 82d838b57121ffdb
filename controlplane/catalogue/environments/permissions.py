"""Permissions for parts. Operators may use code that an admin has saved, unchanged."""

from __future__ import annotations

from functools import partial

from controlplane.catalogue.environments.models import EnvironmentVersion
from controlplane.catalogue.versioned import permissions

REFUSED = permissions.refused(EnvironmentVersion)
may_use = partial(permissions.may_use, EnvironmentVersion)
