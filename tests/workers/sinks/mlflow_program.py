"""A real MLflow tracking server on loopback, with SQLite, and what it answers over its HTTP API."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import httpx

from tests.waiting import wait_until
from tests.workers.sinks.outboxes import ROOT

MLFLOW = shutil.which("mlflow", path=f"{os.environ.get('PATH', '')}:{ROOT / '.venv-mlflow' / 'bin'}")
REASON = (
    "no MLflow server: the whole package `mlflow` in .venv-mlflow, or on PATH (for example "
    "`uv venv .venv-mlflow && uv pip install --python .venv-mlflow/bin/python mlflow==3.17.2`)"
)
START_S = 300.0
API = "/api/2.0/mlflow"


class MlflowServer:
    """Its address stays, also while it is down."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with socket.create_server(("127.0.0.1", 0)) as held:
            self._port = held.getsockname()[1]
        self.address = f"http://127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        store = ["--backend-store-uri", f"sqlite:///{self._folder / 'mlflow.db'}"]
        argv = [str(MLFLOW), "server", *store, "--workers", "1", "--host", "127.0.0.1", "--port", str(self._port)]
        variables = {"PATH": f"{Path(str(MLFLOW)).parent}:{os.environ['PATH']}", "HOME": str(self._folder)}
        quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}
        with open(self._folder / "server.log", "ab") as log:
            self._process = subprocess.Popen(
                argv, cwd=self._folder, env=variables | quiet, stdout=log, stderr=log, start_new_session=True
            )
        wait_until(self._answers, lambda: (self._folder / "server.log").read_text()[-2000:], START_S)

    def kill(self) -> None:
        """Without a goodbye."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def run(self, experiment: str) -> dict[str, Any]:
        """The one run of an experiment."""
        found = self._get("experiments/get-by-name", experiment_name=experiment)["experiment"]["experiment_id"]
        asked = {"experiment_ids": [found]}
        [run] = httpx.post(f"{self.address}{API}/runs/search", json=asked, timeout=60).json()["runs"]
        return dict(run)

    def history(self, run: dict[str, Any], metric: str) -> list[list[float]]:
        """Its points, [step, value]."""
        asked = {"run_id": run["info"]["run_id"], "metric_key": metric, "max_results": 25_000}
        points = self._get("metrics/get-history", **asked)["metrics"]
        return sorted([point["step"], point["value"]] for point in points)

    def _get(self, path: str, **query: Any) -> dict[str, Any]:
        answer = httpx.get(f"{self.address}{API}/{path}", params=query, timeout=60)
        answer.raise_for_status()
        return dict(answer.json())

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._folder / "server.log").read_text()[-2000:]
        with contextlib.suppress(httpx.HTTPError):
            return httpx.get(f"{self.address}/health", timeout=5).status_code == httpx.codes.OK
        return False
