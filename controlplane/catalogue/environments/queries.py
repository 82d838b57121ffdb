"""Access to environments and versions: the only way for views to get one."""

from __future__ import annotations

from functools import partial

from controlplane.catalogue.environments.models import Environment, EnvironmentVersion
from controlplane.catalogue.versioned import queries

environment_for = partial(queries.item_for, Environment)
version_for = partial(queries.version_for, EnvironmentVersion)
newest_versions = partial(queries.newest_versions, EnvironmentVersion)
offered_versions = partial(queries.offered_versions, EnvironmentVersion)
free_name = partial(queries.free_name, Environment)
