"""The MLflow sink against a real tracking server."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import wait_until
from tests.workers.sinks.mlflow_program import MLFLOW, REASON, MlflowServer
from tests.workers.sinks.outboxes import (
    ENDPOINT,
    PAGE,
    attempt_without_lines,
    losses,
    needs_sinks_python,
    sending,
    write_steps,
)
from workers.contract.run.sinks import STATE
from workers.contract.wire.names import EndReason
from workers.sinks.program import UNSENT_EXIT_CODE

pytestmark = [
    pytest.mark.processes,
    needs_sinks_python,
    pytest.mark.skipif(MLFLOW is None, reason=REASON),
]
LOSS = "train/loss"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowServer]:
    server = MlflowServer(tmp_path_factory.mktemp("mlflow"))
    server.start()
    yield server
    server.kill()


def test_metrics_config_tags_and_the_link_back_arrive(server: MlflowServer, tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "arrives")
    write_steps(folder, (1, 2, 4), end=EndReason.COMPLETED)
    assert sending(folder, server.address).wait(300) == 0
    run = server.run("arrives")
    tags = named(run["data"]["tags"])
    params = named(run["data"]["params"])
    assert server.history(run, LOSS) == losses((1, 2, 4))
    assert (params["model.path"], params["grpo.max_steps"], params["rewards.exact.weight"]) == (
        "some/model",
        "3",
        "1.0",
    )
    assert (tags["grpo.attempt"], tags["mlflow.note.content"]) == ("r1-1", PAGE)
    assert (run["info"]["run_name"], run["info"]["status"]) == ("a run", "FINISHED")


def test_a_server_that_was_down_gets_everything_once(server: MlflowServer, tmp_path: Path) -> None:
    training, over = (folder_of(tmp_path, name) for name in ("training", "over"))
    write_steps(training, range(1, 101))
    sinks = sending(training, server.address)
    wait_until(lambda: sent(training) == 100, seconds=300)
    server.kill()
    write_steps(training, range(101, 201))
    write_steps(over, range(1, 101), end=EndReason.COMPLETED)
    wait_until(lambda: problem(training), seconds=300)
    assert sending(over, server.address).wait(300) == UNSENT_EXIT_CODE
    server.start()
    wait_until(lambda: sent(training) == 200, seconds=300)
    write_steps(training, (), end=EndReason.COMPLETED)
    assert sinks.wait(300) == sending(over, server.address).wait(300) == 0
    assert server.history(server.run("training"), LOSS) == losses(range(1, 201))
    assert server.history(server.run("over"), LOSS) == losses(range(1, 101))


def test_a_sink_that_is_killed_between_write_and_cursor_doubles_nothing(server: MlflowServer, tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "killed")
    write_steps(folder, range(1, 101))
    sinks = sending(folder, server.address)
    wait_until(lambda: sent(folder) == 100, seconds=300)
    sinks.send_signal(signal.SIGKILL)
    sinks.wait()
    (folder / "sinks/1-mlflow/cursor.json").unlink()
    write_steps(folder, range(101, 151), end=EndReason.TRAINER_EXITED)
    assert sending(folder, server.address).wait(300) == 0
    run = server.run("killed")
    assert server.history(run, LOSS) == losses(range(1, 151))
    assert run["info"]["status"] == "FAILED"


def folder_of(within: Path, experiment: str) -> Path:
    folder = within / experiment
    folder.mkdir()
    attempt_without_lines(folder, "mlflow", secret=ENDPOINT, project=experiment)
    return folder


def named(pairs: list[dict[str, str]]) -> dict[str, str]:
    return {pair["key"]: pair["value"] for pair in pairs}


def sent(folder: Path) -> int:
    """The last line that the server has, by the cursor."""
    return int((read(folder / "sinks/1-mlflow/cursor.json") or {"seq": 0})["seq"])


def problem(folder: Path) -> str:
    return str((read(folder / "sinks" / STATE) or {}).get("1 MLflow", ""))


def read(path: Path) -> Any:
    return json.loads(path.read_text()) if path.exists() else None
