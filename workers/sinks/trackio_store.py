"""trackio sink: writes a SQLite file in the attempt's folder for `TRACKIO_DIR=… trackio show`, without trackio's
server, or sends to an endpoint's server or Space. A line's number is its id there, so that no line is stored twice."""

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from workers.sinks.sink import About, Row, Sink

HUB_TOKEN_PREFIX = "hf_"  # noqa: S105  # a prefix, not a token
"""Prefix of the hub's tokens, which Spaces accept; a server has its own write token."""
TIMEOUT_S = 20.0
BATCH = 1_000


class TrackioSink(Sink):
    def open(self, about: About, state: dict[str, Any]) -> None:
        os.environ["TRACKIO_DIR"] = str(about.folder)
        self._about = about
        self._config = {**about.config, "run_page": about.link}
        if about.address:
            from trackio.remote_client import RemoteClient

            is_hub_token = about.key.startswith(HUB_TOKEN_PREFIX)
            token, write_token = (about.key, None) if is_hub_token else (None, about.key or None)
            timeout = {"timeout": TIMEOUT_S}
            self._client = RemoteClient(about.address, hf_token=token, write_token=write_token, httpx_kwargs=timeout)
            self._hub_token = token
        else:
            from trackio.sqlite_storage import SQLiteStorage

            self._store = SQLiteStorage

    def write(self, rows: Sequence[Row]) -> dict[str, Any]:
        for start in range(0, len(rows), BATCH):
            part = rows[start : start + BATCH]
            if self._about.address:
                self._send(part)
            else:
                self._store_locally(part)
        return {}

    def _send(self, rows: Sequence[Row]) -> None:
        about = self._about
        run = {"project": about.project, "run": about.name, "run_id": about.attempt_id, "config": self._config}
        logs = [{**run, "metrics": row.values, "step": row.step, "log_id": self._id(row)} for row in rows]
        self._client.predict(api_name="/bulk_log", logs=logs, hf_token=self._hub_token)

    def _store_locally(self, rows: Sequence[Row]) -> None:
        about = self._about
        self._store.bulk_log(
            about.project,
            about.name,
            [row.values for row in rows],
            steps=[row.step for row in rows],
            timestamps=[datetime.fromtimestamp(row.t, UTC).isoformat() for row in rows],
            config=self._config,
            log_ids=[self._id(row) for row in rows],
            run_id=about.attempt_id,
        )

    def _id(self, row: Row) -> str:
        return f"{self._about.attempt_id}-{row.seq}"
