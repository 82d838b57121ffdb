"""Copies a stored SQLite database into the configured one: python -m tests.database.copied FILE

The tables are made as they were when it was stored, by the migrations that it knows, so that migrating it has as much
to do as it had there.
"""

# ruff: noqa: E402
from __future__ import annotations

import os
import sys
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")

import django

django.setup()

from django.core.management.color import no_style
from django.db import connection, connections, transaction
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader


def main(path: str) -> None:
    plain = {**connections.databases["default"], "ENGINE": "django.db.backends.sqlite3", "NAME": path, "OPTIONS": {}}
    connections.databases["stored"] = plain
    applied = set(MigrationLoader(connections["stored"], ignore_no_migrations=True).applied_migrations)
    executor = MigrationExecutor(connection)
    graph = executor.loader.graph
    followed = {parent.key for key in applied & set(graph.nodes) for parent in graph.node_map[key].parents}
    nodes = sorted(key for key in applied & set(graph.nodes) if key not in followed)
    executor.migrate(nodes)
    state = executor.loader.project_state(nodes)
    models = [model for model in state.apps.get_models(include_auto_created=True) if model._meta.managed]
    with transaction.atomic():
        for model in models:
            model._base_manager.all().delete()
        for model in models:
            rows = model._base_manager.using("stored").all()
            model._base_manager.using("default").bulk_create([_fresh(row) for row in rows])
        with connection.cursor() as cursor:
            for statement in connection.ops.sequence_reset_sql(no_style(), models):
                cursor.execute(statement)


def _fresh(row: Any) -> Any:
    row._state.db, row._state.adding = None, True
    return row


if __name__ == "__main__":
    main(sys.argv[1])
