"""A pytest plugin: `pytest -p tests.on_postgres tests/runs` runs those tests on a private PostgreSQL, not on SQLite."""

from __future__ import annotations

import atexit
import os

from tests import environment  # first: it takes a person's own settings away
from tests.postgres import Postgres, missing

if reason := missing():
    raise SystemExit(reason)

assert environment.folder
server = Postgres.create()
atexit.register(server.remove)
os.environ["CONTROLPLANE_DATABASE_URL"] = server.url("controlplane")


def pytest_unconfigure() -> None:
    """Idle connections, one of them to the server's own database, would be reported as forgotten."""
    from controlplane.platform.postgres import base

    for pool in base._pools.values():
        pool.clear()
