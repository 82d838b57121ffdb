"""Stores a small database of an earlier commit: python -m tests.database.store DATA_FOLDER NAME

DATA_FOLDER is the data folder of an ended installation of that commit, in which `python3 manage.py demo --once --quick`
has run. Secrets, sessions, all but the first rows of bulk, and what the tables' indexes take stay out; the result is
tests/database/stored/NAME.sqlite3.xz.
"""

from __future__ import annotations

import lzma
import sqlite3
import sys
from pathlib import Path

STORED = Path(__file__).with_name("stored")
EMPTIED = ("django_session", "accounts_signinlink", "accounts_apitoken", "joining_hostcredential", "joining_joincode")
ROWS_KEPT = {"runs_samplerow": 40, "runs_promptprogress": 100, "runs_logchunk": 2}


def main(folder: str, name: str) -> None:
    database = Path(folder) / "controlplane.sqlite3"
    target = STORED / f"{name}.sqlite3"
    STORED.mkdir(exist_ok=True)
    with sqlite3.connect(database) as source, sqlite3.connect(target) as copy:
        source.backup(copy)
        tables = {table for (table,) in copy.execute("select name from sqlite_master where type = 'table'")}
        for table in tables.intersection(EMPTIED):
            copy.execute(f'delete from "{table}"')
        for table, count in ROWS_KEPT.items():
            copy.execute(f'delete from "{table}" where id not in (select id from "{table}" order by id limit {count})')
        copy.execute("update accounts_user set password = '!'")
        _replace(copy, tables, str(Path(folder).resolve().parent), "/srv/grpo")
        copy.commit()
        copy.execute("pragma journal_mode = delete")
        copy.execute("vacuum")
    copy.close()
    target.with_name(f"{name}.sqlite3.xz").write_bytes(lzma.compress(target.read_bytes(), preset=9))
    target.unlink()


def _replace(database: sqlite3.Connection, tables: set[str], old: str, new: str) -> None:
    """Replace a path in every text: that of the machine on which the installation was."""
    for table in tables:
        for column in [row[1] for row in database.execute(f'pragma table_info("{table}")')]:
            database.execute(
                f'update "{table}" set "{column}" = replace("{column}", ?, ?) '
                f'where typeof("{column}") = \'text\' and instr("{column}", ?)',
                (old, new, old),
            )


if __name__ == "__main__":
    main(*sys.argv[1:])
