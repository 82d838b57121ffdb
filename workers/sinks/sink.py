"""Interface of sinks, and the data about a run that they get."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from workers.contract.reports.lines import Line
from workers.contract.run.sinks import SinkSpec
from workers.contract.run.spec import AttemptSpec, RunSpec
from workers.contract.wire.documents import to_dict
from workers.contract.wire.names import EndReason, EventKind

CONFIG = ("kind", "model", "data", "hardware", "grpo", "lora")

DONE = (EndReason.COMPLETED, EndReason.EARLY_STOPPED, EndReason.LIMIT_REACHED)
STOPPED = (EndReason.STOPPED_BY_USER, EndReason.PREEMPTED, EndReason.HOST_SHUTDOWN, EndReason.HOST_PREEMPTED)
"""End reasons of stopped runs; reasons that are in neither tuple are failures."""


class Row(NamedTuple):
    seq: int
    t: float
    step: int
    values: dict[str, float]


@dataclass(frozen=True)
class About:
    """Facts about the attempt that a sink reports, and the sink's endpoint."""

    attempt_id: str
    run_id: str
    project: str
    name: str
    config: dict[str, Any]
    link: str
    """Address of the run's page, or ""."""
    folder: Path
    address: str = ""
    key: str = field(default="", repr=False)


class Sink(ABC):
    """A destination for metrics. One thread calls it and may wait; a call that raises is repeated later."""

    resends = False
    """True if the opened sink must get all rows again, because only the destination knows which ones have arrived."""

    @abstractmethod
    def open(self, about: About, state: dict[str, Any]) -> None:
        """Open the destination. `state`: result of the last `write`, perhaps in an earlier process; {} at the
        beginning. Rows written since then are written again, and must not be stored twice."""

    @abstractmethod
    def write(self, rows: Sequence[Row]) -> dict[str, Any]:
        """Write rows and, once they can't be lost, return the state to store."""

    def close(self, reason: str) -> None:  # noqa: B027  # most have nothing to close
        """Close the destination after the last row. `reason`: the attempt's end reason."""


def about_of(spec: AttemptSpec, sink: SinkSpec, folder: Path, *, link: str, endpoint: Mapping[str, str]) -> About:
    run = spec.run
    name = sink.name or run.name
    return About(
        attempt_id=spec.attempt_id,
        run_id=run.run_id,
        project=sink.project or "grpo",
        name=name if spec.number == 1 else f"{name} (attempt {spec.number})",
        config=config_of(run),
        link=link,
        folder=folder,
        address=endpoint.get("address", ""),
        key=endpoint.get("key", ""),
    )


def config_of(run: RunSpec) -> dict[str, Any]:
    """Return the settings that distinguish runs, without what must not reach a third party: the parameters of rewards
    and environments, which may contain code and prompts, and the hardware's environment variables."""
    spec: dict[str, Any] = to_dict(run)
    config: dict[str, Any] = {name: spec[name] for name in CONFIG}
    config["rewards"] = {reward.name: {"function": reward.function, "weight": reward.weight} for reward in run.rewards}
    config["environment"] = run.episodes.name if run.episodes else ""
    config["hardware"].pop("environment", None)
    return config


def row_of(line: Line) -> Row | None:
    """Convert a line to a row with TRL's metric names (train/loss, eval/reward); return None if it has no metrics."""
    data = line.data() or {}
    if line.kind == EventKind.TRAIN:
        data = {_trl_name(name): value for name, value in data.items()}
    numbers = {name: float(value) for name, value in data.items() if isinstance(value, int | float)}
    return Row(line.seq, line.t, line.step or 0, numbers) if numbers else None


def _trl_name(name: str) -> str:
    return f"eval/{name.removeprefix('eval_')}" if name.startswith("eval_") else f"train/{name}"
