"""Readiness of the control plane: database, migrations, Redis, and beat with its worker. The problems contain neither
addresses nor drivers' messages, because anybody may read them."""

import logging
import time
from pathlib import Path

import redis
from django.conf import settings
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor

from runs.engine.monitoring.measured import client

log = logging.getLogger(__name__)

TICK_FILE = "ticked"
"""File in the data folder that is touched after each tick, so that its age shows whether beat and the worker run."""
TICK_FRESH_S = 60.0

_migrated_to: list[str] = []
"""Databases whose migrations are known to be applied, which doesn't change while the process runs."""


def problems() -> list[str]:
    """List the problems as sentences; an empty list means ready."""
    return [problem for check in (_database, _redis, _tick) if (problem := check())]


def ticked_at() -> float | None:
    """Return the time of the last tick's end in Unix seconds, or None if there has been no tick."""
    try:
        return (Path(settings.DATA_DIR) / TICK_FILE).stat().st_mtime
    except OSError:
        return None


def _database() -> str:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        missing_count = _missing_migrations()
    except DatabaseError as error:
        log.warning("not ready: the database doesn't respond", exc_info=error)  # once per outage (http/outage.py)
        return "The database can't be reached. Start it, or correct CONTROLPLANE_DATABASE_URL."
    if missing_count:
        problem = f"The database is older than this version (missing migrations: {missing_count})."
        return f"{problem} Run `manage.py serve prepare`."
    return ""


def _missing_migrations() -> int:
    name = str(connection.settings_dict["NAME"])
    if name in _migrated_to:
        return 0
    executor = MigrationExecutor(connection)
    missing_count = len(executor.migration_plan(executor.loader.graph.leaf_nodes()))
    if not missing_count:
        _migrated_to.append(name)
    return missing_count


def _redis() -> str:
    if not settings.REDIS_URL:
        return "No Redis is configured. Set REDIS_URL, or start with `manage.py up`, which includes one."
    try:
        with client() as connection:
            connection.ping()
    except (redis.RedisError, OSError) as error:
        log.warning("not ready: Redis doesn't respond: %s", error)
        return "Redis can't be reached. Start it, or correct REDIS_URL."
    return ""


def _tick() -> str:
    last_tick_at = ticked_at()
    if last_tick_at is None:
        return "There has been no tick yet. Start the control worker (`manage.py serve worker`)."
    age_s = abs(time.time() - last_tick_at)  # in the future: the clock was set back since
    if age_s <= max(TICK_FRESH_S, 3 * settings.TICK_S):
        return ""
    return f"The last tick was {age_s:.0f} s ago. Check the control worker's log and restart the worker."
