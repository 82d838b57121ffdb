"""Program of the sinks, with a thread for each sink of an attempt, so that a hanging sink delays no other."""

import json
import os
import sys
import threading
from collections.abc import Callable, Mapping, MutableMapping
from pathlib import Path

from workers.contract.run import sinks
from workers.contract.run.spec import AttemptSpec
from workers.contract.wire.documents import from_dict
from workers.contract.wire.names import FileName
from workers.sinks.following import Follower, replace_file
from workers.sinks.mlflow_server import MlflowSink
from workers.sinks.sink import Sink, about_of
from workers.sinks.tensorboard_files import TensorboardSink
from workers.sinks.trackio_store import TrackioSink
from workers.sinks.wandb_run import WandbSink

STATE_S = 1.0
"""Interval at which the sinks' problems are written to the state file."""
UNSENT_EXIT_CODE = 4
"""Exit code if the attempt has ended and a sink refuses the remaining metrics."""
Library = Mapping[str, Callable[[], Sink]]
LIBRARY: Library = {
    sinks.TENSORBOARD: TensorboardSink,
    sinks.WANDB: WandbSink,
    sinks.TRACKIO: TrackioSink,
    sinks.MLFLOW: MlflowSink,
}
"""Sinks by kind, each of which imports its package when it is opened."""


def run(folder: Path, library: Library) -> int:
    """Follow the outbox until every sink has all metrics or has been given up, then exit this process."""
    spec = from_dict(AttemptSpec, json.loads((folder / FileName.SPEC).read_text()))
    sinks_folder = folder / FileName.SINKS
    sinks_folder.mkdir(mode=0o700, exist_ok=True)
    endpoints = _take_endpoints(os.environ)
    followers: dict[str, Follower] = {}
    for number, sink in enumerate(spec.run.sinks, 1):
        sink_folder = sinks_folder / f"{number}-{sink.kind}"
        sink_folder.mkdir(mode=0o700, exist_ok=True)
        endpoint = endpoints.get(sink.secret, {}) if sink.secret else {}
        about = about_of(spec, sink, sink_folder, link=os.environ.get(sinks.LINK, ""), endpoint=endpoint)
        follower = Follower(folder / FileName.OUTBOX, sink_folder / "cursor.json", library[sink.kind], about)
        followers[f"{number} {sinks.TITLES[sink.kind]}"] = follower
        threading.Thread(target=follower.run, name=sink_folder.name, daemon=True).start()
    written_state: dict[str, str] | None = None
    while not all(follower.finished.wait(STATE_S / len(followers)) for follower in followers.values()):
        written_state = _write_state(sinks_folder, followers, written_state)
    _write_state(sinks_folder, followers, written_state)
    sys.stdout.flush()
    # A hanging thread of a sink's package must not keep the process alive.
    os._exit(UNSENT_EXIT_CODE if any(follower.problem for follower in followers.values()) else 0)


def _write_state(
    sinks_folder: Path, followers: Mapping[str, Follower], written_state: dict[str, str] | None
) -> dict[str, str]:
    problems = {title: follower.problem for title, follower in followers.items()}
    if problems != written_state:
        replace_file(sinks_folder / sinks.STATE, json.dumps(problems))
    return problems


def _take_endpoints(environment: MutableMapping[str, str]) -> dict[str, dict[str, str]]:
    """Remove the endpoints from the environment, which a sink's programs would inherit, and return them by name."""
    names = [name for name in environment if name.startswith(sinks.SECRET_PREFIX)]
    return {name.removeprefix(sinks.SECRET_PREFIX): json.loads(environment.pop(name)) for name in names}
