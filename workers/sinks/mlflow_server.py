"""MLflow sink: sends over HTTP to a tracking server, which stores a metric once for each time and step, so that batches
may be repeated."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from workers.sinks.sink import DONE, STOPPED, About, Row, Sink

MAX_METRICS = 1_000
MAX_PARAMETERS = 100
MAX_PARAMETER_LENGTH = 500
ATTEMPT_TAG = "grpo.attempt"
_REFUSED_CHARACTERS = re.compile(r"[^\w\-. :/]")


class MlflowSink(Sink):
    def open(self, about: About, state: dict[str, Any]) -> None:
        os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"], os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] = "20", "0"
        os.environ.update(_credentials(about.key))
        from mlflow.entities import Param
        from mlflow.tracking import MlflowClient

        self._client = MlflowClient(tracking_uri=about.address)
        experiment = self._client.get_experiment_by_name(about.project)
        experiment_id = experiment.experiment_id if experiment else self._client.create_experiment(about.project)
        runs = self._client.search_runs([experiment_id], f"tags.`{ATTEMPT_TAG}` = '{about.attempt_id}'", max_results=1)
        tags = {ATTEMPT_TAG: about.attempt_id, "mlflow.note.content": about.link}
        run = runs[0] if runs else self._client.create_run(experiment_id, run_name=about.name, tags=tags)
        self._run = run.info.run_id
        pairs = [Param(_valid_name(key), value[:MAX_PARAMETER_LENGTH]) for key, value in _flatten(about.config)]
        for start in range(0, len(pairs), MAX_PARAMETERS):  # repeated parameters change nothing
            self._client.log_batch(self._run, params=pairs[start : start + MAX_PARAMETERS])

    def write(self, rows: Sequence[Row]) -> dict[str, Any]:
        from mlflow.entities import Metric

        metrics = [
            Metric(_valid_name(n), v, int(row.t * 1000), row.step) for row in rows for n, v in row.values.items()
        ]
        for start in range(0, len(metrics), MAX_METRICS):
            self._client.log_batch(self._run, metrics=metrics[start : start + MAX_METRICS])
        return {}

    def close(self, reason: str) -> None:
        status = "FINISHED" if reason in DONE else "KILLED" if reason in STOPPED else "FAILED"
        self._client.set_terminated(self._run, status)


def _credentials(key: str) -> dict[str, str]:
    name, colon, password = key.partition(":")
    if colon:
        return {"MLFLOW_TRACKING_USERNAME": name, "MLFLOW_TRACKING_PASSWORD": password}
    return {"MLFLOW_TRACKING_TOKEN": key} if key else {}


def _valid_name(name: str) -> str:
    return _REFUSED_CHARACTERS.sub("_", name)


def _flatten(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", str(value)
