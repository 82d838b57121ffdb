"""Attempt folders that the trainer can be started on by hand."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

from tests.datasets import parquet
from workers.contract.run import mixing
from workers.contract.run.hardware import HardwareSpec
from workers.contract.run.spec import AttemptSpec, DataSpec, ModelSpec, Placement, RewardSpec, RunSpec
from workers.contract.wire.documents import from_dict, to_json
from workers.contract.wire.names import EventKind, FileName
from workers.trainer import demo

REWARDS = (
    RewardSpec("accuracy", "numeric_match", 1.0, {"source": "answer tag"}),
    RewardSpec("answers", "answer_tag", 0.25),
    RewardSpec("variety", "unique_chars_normalised", 0.5),
)
"""The last one differs between any two completions, so that a model that answers nothing right still learns."""

GRPO: dict[str, Any] = {
    "max_steps": 4,
    "learning_rate": 1e-3,
    "lr_scheduler_type": "constant",
    "per_device_train_batch_size": 8,
    "num_generations": 4,
    "max_completion_length": 12,
    "beta": 0.02,
    "save_steps": 100,
    "seed": 7,
}


def rows(count: int = 40) -> list[dict[str, Any]]:
    """Canonical rows: arithmetic problems as text prompts."""
    return [
        {"row": number, "prompt": problem["question"], "answer": problem["answer"]}
        for number, problem in enumerate(demo.problems(count, seed=0))
    ]


def mixed(folder: Path, data: DataSpec, sources: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]]) -> DataSpec:
    """The first dataset with the further ones, whose files are written."""
    specs = []
    for name, (rows, settings) in sources.items():
        if name == data.name:
            data = dataclasses.replace(data, **settings)
            continue
        content = parquet(rows)
        path = mixing.path_in(folder, hashlib.sha256(content).hexdigest())
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        specs.append(mixing.SourceSpec(name, 1, path.stem, len(rows), **settings))
    return dataclasses.replace(data, sources=tuple(specs))


def attempt_folder(
    folder: Path,
    *,
    model: Path | str,
    grpo: dict[str, Any] | None = None,
    dataset: list[dict[str, Any]] | None = None,
    rewards: tuple[RewardSpec, ...] = REWARDS,
    eval_rows: int = 0,
    validation: int | None = None,
    hardware: dict[str, Any] | None = None,
    placement: dict[str, Any] | None = None,
    run: dict[str, Any] | None = None,
    sources: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] | None = None,
    **attempt: Any,
) -> Path:
    """Write spec.json and the dataset into `folder`; its last `eval_rows` rows, or `validation`, are kept out of
    training. `grpo` is laid over GRPO; `run` over the other run fields. `sources`: further datasets, each name with its
    rows and SourceSettings; those of the first are under "problems"."""
    folder.mkdir(parents=True, exist_ok=True)
    chosen = rows() if dataset is None else dataset
    content = parquet(chosen, validation=eval_rows if validation is None else validation)
    (folder / FileName.DATASET).write_bytes(content)
    data = DataSpec("problems", 1, hashlib.sha256(content).hexdigest(), len(chosen), eval_rows)
    spec = RunSpec(
        run_id="r1",
        name="a test",
        kind="train",
        model=ModelSpec(str(model)),
        data=mixed(folder, data, sources or {}),
        rewards=rewards,
        hardware=HardwareSpec(profile="cpu", **{"cpu_slots": 1, "threads": 1, **(hardware or {})}),
        grpo={**GRPO, **(grpo or {})},
    )
    spec = dataclasses.replace(spec, **(run or {}))
    placed = Placement(host="test", **{"cpu_slots": (0,), **(placement or {})})
    attempt = {"attempt_id": "r1-1", "number": 1, "first_seq": 1, **attempt}
    document = to_json(AttemptSpec(run=spec, placement=placed, **attempt))
    (folder / FileName.SPEC).write_text(document, encoding="utf-8")
    return folder


def spec_of(folder: Path) -> AttemptSpec:
    return from_dict(AttemptSpec, json.loads((folder / FileName.SPEC).read_bytes()))


def lines(path: Path) -> list[dict[str, Any]]:
    """The complete lines of a JSON lines file that is perhaps still being written, or not there yet."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]


def logs(folder: Path) -> dict[int, dict[str, float]]:
    """Training values by step, without those that measure time."""
    found: dict[int, dict[str, float]] = {}
    for line in lines(folder / FileName.METRICS):
        if line["kind"] == EventKind.TRAIN and "loss" in line["data"]:
            values = line["data"].items()
            found[line["step"]] = {k: v for k, v in values if k != "step_time" and not k.startswith("time/")}
    return found
