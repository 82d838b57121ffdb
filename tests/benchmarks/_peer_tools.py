"""trackio, MLflow and TensorBoard, each as little code as it takes to log, serve and read. Runs in their environment.

Every tool is used at its best: TensorBoard is flushed by hand where freshness is measured, MLflow logs without waiting.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

START_S = 300.0
BATCH = 1000
METRIC = "m00"
Log = Callable[[int, dict[str, float]], None]


class Ours:
    """Only the writer: the rest is measured on the whole product."""

    def __init__(self, folder: Path) -> None:
        sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
        self.folder = folder

    def writer(self) -> Log:
        from workers.trainer.recording.metrics import LineFile

        return LineFile(self.folder / "metrics.jsonl").log

    def stored(self) -> int:
        with (self.folder / "metrics.jsonl").open() as lines:
            return sum(line.endswith("}\n") for line in lines)


class Trackio:
    def __init__(self, folder: Path) -> None:
        os.environ |= {"TRACKIO_DIR": str(folder / "trackio"), "HF_HUB_OFFLINE": "1"}
        self.folder = folder

    def writer(self) -> Log:
        import trackio

        trackio.init(project="p", name="r", auto_log_gpu=False, embed=False)
        return lambda step, values: trackio.log(values, step=step)

    def stored(self) -> int:
        files = (self.folder / "trackio").glob("*.db")
        return sum(sqlite3.connect(file).execute("select count(*) from metrics").fetchone()[0] for file in files)

    def load(self, values: Sequence[float]) -> None:
        from trackio.sqlite_storage import SQLiteStorage

        for at in range(0, len(values), BATCH):
            part = [{METRIC: value} for value in values[at : at + BATCH]]
            SQLiteStorage.bulk_log("p", "r", part, steps=list(range(at, at + len(part))), run_id="r")

    @contextmanager
    def serving(self) -> Iterator[str]:
        port = free_port()
        code = (
            "import trackio, time\n"
            f"trackio.show(open_browser=False, block_thread=False, server_port={port}, host='127.0.0.1')\n"
            "time.sleep(3600)"
        )
        with serving([sys.executable, "-c", code], f"http://127.0.0.1:{port}") as address:
            yield address

    def read(self, address: str, *, chart: bool) -> list[float]:
        """`chart`: what its page asks for a chart; else the values as they come in."""
        asked: dict[str, Any] = {"project": "p", "run": "r"}
        if chart:
            rows = json.loads(post(f"{address}/api/get_logs", {**asked, "run_id": "r"}))["data"]
            return [row[METRIC] for row in rows if METRIC in row]
        rows = json.loads(post(f"{address}/api/get_metric_values", {**asked, "metric_name": METRIC}))["data"]
        return [row["value"] for row in rows]


class Mlflow:
    def __init__(self, folder: Path) -> None:
        os.environ |= {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}
        self.folder = folder
        self.address = ""
        self.run = ""

    @property
    def database(self) -> str:
        return f"sqlite:///{self.folder / 'mlflow.db'}"

    def writer(self) -> Log:
        import mlflow

        mlflow.set_tracking_uri(self.address or self.database)
        mlflow.set_experiment("p")
        self.run = mlflow.start_run().info.run_id
        return lambda step, values: mlflow.log_metrics(values, step=step, synchronous=False)

    def log_and_wait(self, values: dict[str, float]) -> None:
        """A log call as it is by default, of the run that `writer` began."""
        import mlflow

        mlflow.log_metrics(values, step=0, synchronous=True)

    def stored(self) -> int:
        found = sqlite3.connect(self.folder / "mlflow.db").execute(
            "select count(distinct step) from metrics where key = ?", [METRIC]
        )
        return int(found.fetchone()[0])

    def load(self, values: Sequence[float]) -> None:
        import mlflow
        from mlflow.entities import Metric

        client = mlflow.MlflowClient(self.database)
        self.run = client.create_run(client.create_experiment("p")).info.run_id
        now = int(1000 * time.time())
        for at in range(0, len(values), BATCH):
            part = enumerate(values[at : at + BATCH], at)
            client.log_batch(self.run, metrics=[Metric(METRIC, value, now + step, step) for step, value in part])

    @contextmanager
    def serving(self) -> Iterator[str]:
        port = free_port()
        program = str(Path(sys.executable).with_name("mlflow"))
        argv = [program, "server", "--backend-store-uri", self.database, "--workers", "1", "--port", str(port)]
        with serving([*argv, "--host", "127.0.0.1"], f"http://127.0.0.1:{port}") as self.address:
            yield self.address

    def read(self, address: str, *, chart: bool) -> list[float]:
        path = "/api/2.0/mlflow/metrics/get-history"
        query: dict[str, Any] = {"run_id": self.run, "metric_key": METRIC}
        if chart:
            path = "/ajax-api/2.0/mlflow/metrics/get-history-bulk-interval"
            query = {"run_ids": self.run, "metric_key": METRIC, "max_results": 320}
        return [row["value"] for row in json.loads(get(f"{address}{path}", query)).get("metrics", [])]


class Tensorboard:
    def __init__(self, folder: Path) -> None:
        self.folder = folder / "logs"
        self.flush: Callable[[], None] = lambda: None

    def writer(self) -> Log:
        """An event a scalar, as SummaryWriter.add_scalar writes them."""
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        file = EventFileWriter(str(self.folder / "r"))
        self.flush = file.flush

        def log(step: int, values: dict[str, float]) -> None:
            for name, value in values.items():
                summary = Summary(value=[Summary.Value(tag=name, simple_value=value)])
                file.add_event(Event(wall_time=time.time(), step=step, summary=summary))

        return log

    def stored(self) -> int:
        from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

        files = (self.folder / "r").glob("*")
        return len({event.step for file in files for event in EventFileLoader(str(file)).Load() if event.summary.value})

    def load(self, values: Sequence[float]) -> None:
        log = self.writer()
        for step, value in enumerate(values):
            log(step, {METRIC: value})
        self.flush()

    @contextmanager
    def serving(self) -> Iterator[str]:
        port = free_port()
        program = str(Path(sys.executable).with_name("tensorboard"))
        argv = [program, "--logdir", str(self.folder), "--port", str(port), "--host", "127.0.0.1"]
        with serving(argv, f"http://127.0.0.1:{port}") as address:
            yield address

    def read(self, address: str, *, chart: bool) -> list[float]:
        try:
            rows = json.loads(get(f"{address}/data/plugin/scalars/scalars", {"run": "r", "tag": METRIC}))
        except urllib.error.HTTPError:
            return []  # it has not looked at the folder yet
        return [value for _, _, value in rows]


TOOLS: dict[str, Any] = {"ours": Ours, "trackio": Trackio, "mlflow": Mlflow, "tensorboard": Tensorboard}


@contextmanager
def serving(argv: list[str], address: str) -> Iterator[str]:
    """A server of its own process group while the block runs."""
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        deadline = time.monotonic() + START_S
        while True:
            try:
                get(address, {})
                break
            except OSError:  # refused, or an HTTP error: then it answers
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"{argv[0]} serves nothing") from None
                time.sleep(0.2)
        yield address
    finally:
        with contextlib.suppress(ProcessLookupError):  # it may have ended by itself
            os.killpg(process.pid, 9)
        process.wait()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def get(address: str, query: dict[str, Any]) -> bytes:
    with urllib.request.urlopen(f"{address}?{urllib.parse.urlencode(query)}", timeout=120) as answer:
        return bytes(answer.read())


def post(address: str, body: dict[str, Any]) -> bytes:
    asked = urllib.request.Request(address, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(asked, timeout=120) as answer:
        return bytes(answer.read())
