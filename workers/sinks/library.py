"""The sinks by their kind. Each imports its package when it is opened."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from workers.contract.run import sinks
from workers.sinks.mlflow_server import MlflowSink
from workers.sinks.sink import Sink
from workers.sinks.tensorboard_files import TensorboardSink
from workers.sinks.trackio_store import TrackioSink
from workers.sinks.wandb_run import WandbSink

Library = Mapping[str, Callable[[], Sink]]
LIBRARY: Library = {
    sinks.TENSORBOARD: TensorboardSink,
    sinks.WANDB: WandbSink,
    sinks.TRACKIO: TrackioSink,
    sinks.MLFLOW: MlflowSink,
}
