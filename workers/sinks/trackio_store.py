"""trackio: its SQLite file in the attempt's folder, for `TRACKIO_DIR=… trackio show`, without the server that it starts
otherwise. A line's number is its id there, so that none is stored twice."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from workers.sinks.sink import About, Row, Sink


class TrackioSink(Sink):
    def open(self, about: About, kept: dict[str, Any]) -> None:
        os.environ["TRACKIO_DIR"] = str(about.folder)
        from trackio.sqlite_storage import SQLiteStorage

        self._about, self._store = about, SQLiteStorage

    def write(self, rows: Sequence[Row]) -> dict[str, Any]:
        about = self._about
        self._store.bulk_log(
            about.project,
            about.name,
            [row.values for row in rows],
            steps=[row.step for row in rows],
            timestamps=[datetime.fromtimestamp(row.t, UTC).isoformat() for row in rows],
            config={**about.config, "run_page": about.link},
            log_ids=[f"{about.attempt_id}-{row.seq}" for row in rows],
            run_id=about.attempt_id,
        )
        return {}
