"""Inserts and updates of many rows with one statement per table. Single-row statements are slow: the driver releases
the interpreter lock for each, and while a page is being rendered, it must wait to get the lock back, with the database
locked. The ORM's bulk methods take several times as long to build their queries. Table and column names are constants
of this code."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import Any

import msgspec
from django.db import connection, models

Rows = list[tuple[Any, ...]]
"""Rows of values in the form that the database driver accepts."""
MAX_VALUES = 30_000
"""Upper bound of the values in a statement; SQLite's limit is 32,766."""


def insert(model: type[models.Model], columns: Sequence[str], rows: Rows) -> None:
    """Insert rows, leaving existing ones unchanged."""
    target = f"{connection.ops.quote_name(model._meta.db_table)} ({', '.join(_quoted(columns))})"
    # ON CONFLICT is understood by SQLite and PostgreSQL alike.
    _execute(f"INSERT INTO {target} {{values}} ON CONFLICT DO NOTHING", model, columns, rows)


def update(model: type[models.Model], changes: Mapping[str, Mapping[str, Any]]) -> None:
    """Update rows. `changes` maps primary keys to new values; rows with the same columns share a statement."""
    rows_by_columns: dict[tuple[str, ...], Rows] = {}
    for pk, values in changes.items():
        if values:
            rows_by_columns.setdefault(tuple(values), []).append((pk, *map(_for_database, values.values())))
    table = connection.ops.quote_name(model._meta.db_table)
    for names, rows in rows_by_columns.items():
        # Both databases call the columns of VALUES column1, column2 and so on.
        assignments = ", ".join(f"{name} = new.column{position}" for position, name in enumerate(_quoted(names), 2))
        sql = f"UPDATE {table} SET {assignments} FROM ({{values}}) AS new WHERE id = new.column1"  # noqa: S608
        _execute(sql, model, ("id", *names), rows)


def encode_json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _execute(sql: str, model: type[models.Model], columns: Sequence[str], rows: Rows) -> None:
    """Execute `sql` with {values} replaced by the rows, as many at a time as fit into a statement."""
    row = f"({', '.join(_placeholder(model, column) for column in columns)})"
    batch_size = MAX_VALUES // len(columns)
    with connection.cursor() as cursor:
        for start in range(0, len(rows), batch_size):
            batch = rows[start : start + batch_size]
            values = f"VALUES {', '.join([row] * len(batch))}"
            cursor.execute(sql.format(values=values), list(chain.from_iterable(batch)))


def _placeholder(model: type[models.Model], column: str) -> str:
    """Build a column's placeholder, with its type for PostgreSQL, which needs it for JSON values and times."""
    if connection.vendor != "postgresql":
        return "%s"
    return f"%s::{model._meta.get_field(column).db_type(connection)}"


def _quoted(columns: Iterable[str]) -> list[str]:
    return [connection.ops.quote_name(column) for column in columns]


def _for_database(value: Any) -> Any:
    if isinstance(value, dict | list):
        return encode_json(value)
    return connection.ops.adapt_datetimefield_value(value) if isinstance(value, datetime) else value
