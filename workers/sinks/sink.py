"""What a sink is told of a run, and what it has to do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from workers.contract.reports.lines import Line
from workers.contract.run.sinks import SinkSpec
from workers.contract.run.spec import AttemptSpec, RunSpec
from workers.contract.wire.documents import to_dict
from workers.contract.wire.names import EndReason, EventKind

CONFIG = ("kind", "model", "data", "hardware", "grpo", "lora")
"""Parts of a run's spec."""

DONE = (EndReason.COMPLETED, EndReason.EARLY_STOPPED, EndReason.LIMIT_REACHED)
STOPPED = (EndReason.STOPPED_BY_USER, EndReason.PREEMPTED, EndReason.HOST_SHUTDOWN, EndReason.HOST_PREEMPTED)
"""Ends that are neither of these are failures."""


class Row(NamedTuple):
    """The figures of one line."""

    seq: int
    t: float
    """Unix seconds."""
    step: int
    values: dict[str, float]


@dataclass(frozen=True)
class About:
    attempt_id: str
    run_id: str
    project: str
    name: str
    config: dict[str, Any]
    link: str
    """The address of the run's page, or ""."""
    folder: Path
    """Of this sink's own files."""
    address: str = ""
    key: str = field(default="", repr=False)


class Sink(ABC):
    """Called by one thread, which may take its time: nothing else waits for it. Whatever it raises is tried again."""

    resends = False
    """Whether, once opened, it takes all rows from the first on, since only the other side knows what has arrived."""

    @abstractmethod
    def open(self, about: About, kept: dict[str, Any]) -> None:
        """`kept`: what the last `write` returned, perhaps in an earlier process; {} at the beginning. What was written
        since must not count twice."""

    @abstractmethod
    def write(self, rows: Sequence[Row]) -> dict[str, Any]:
        """Returns once the rows can't be lost, with what to keep."""

    def close(self, reason: str) -> None:  # noqa: B027  # most have nothing to close
        """After the last row; the reason of the attempt's end."""


def about_of(spec: AttemptSpec, sink: SinkSpec, folder: Path, *, link: str, address: str, key: str) -> About:
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
        address=address,
        key=key,
    )


def config_of(run: RunSpec) -> dict[str, Any]:
    """What tells runs apart. Without the parameters of rewards and environments: they hold code and prompts of ours."""
    whole: dict[str, Any] = to_dict(run)
    config: dict[str, Any] = {name: whole[name] for name in CONFIG}
    config["rewards"] = {reward.name: {"function": reward.function, "weight": reward.weight} for reward in run.rewards}
    config["environment"] = run.episodes.name if run.episodes else ""
    config["hardware"].pop("environment", None)
    return config


def row_of(line: Line) -> Row | None:
    """The figures of a line, with the names that TRL's own reports have: train/loss, eval/reward. None: it has none."""
    data = line.data() or {}
    if line.kind == EventKind.TRAIN:
        data = {_named(name): value for name, value in data.items()}
    numbers = {name: float(value) for name, value in data.items() if isinstance(value, int | float)}
    return Row(line.seq, line.t, line.step or 0, numbers) if numbers else None


def _named(name: str) -> str:
    return f"eval/{name.removeprefix('eval_')}" if name.startswith("eval_") else f"train/{name}"
