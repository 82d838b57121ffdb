"""Inside a stack's Django: what a long-lived installation has stored, as much of it as people meet."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from controlplane.catalogue.rewards.models import RewardConfig
from runs.engine.models import Run
from runs.engine.records import LogChunk
from runs.intake.host_api import uploads
from tests.browser import completions_data
from tests.runs import builders

LINES_AT_ONCE = 400
CHUNK = 65_536
FILLER = b"all is well, and nothing is to be said of it that was not said before, in this line or in another one\n"


def catalogue() -> dict[str, Any]:
    """What tests.benchmarks._stored_rows launches its runs from: more GPUs than the host has, so nothing is started."""
    run = builders.a_run("the first of many", hardware={"rollout": "colocate", "trainer_gpus": 8})
    RewardConfig.objects.filter(versions__runs=run).update(name="of many")
    return {
        "dataset_version": run.dataset_version_id,
        "reward_version": run.reward_version_id,
        "profile": run.profile_id,
        "model": "/models/tiny",
    }


def a_log(run_id: str, chunks: int, broken: int) -> None:
    """So many stretches of 64 KiB, each begun by its number; in one of them something breaks."""
    attempt = Run.objects.get(pk=run_id).latest()
    LogChunk.objects.bulk_create(_chunks(attempt, chunks, broken), batch_size=100)


def _chunks(attempt: Any, chunks: int, broken: int) -> Iterator[LogChunk]:
    filler = FILLER * (CHUNK // len(FILLER) + 1)
    for number in range(chunks):
        head = b"stretch %06d begins\n" % number
        if number == broken:
            head += b"RuntimeError: it broke in stretch %06d\n" % number
        data = head + filler[: CHUNK - len(head) - 1] + b"\n"
        yield LogChunk(attempt=attempt, name="trainer", offset=number * CHUNK, data=data)


def completions(run_id: str, steps: int, rows: int) -> None:
    """A group of four at each step, of one prompt after another."""
    attempt = Run.objects.get(pk=run_id).latest()
    draw = random.Random(1)
    names = [part["name"] for part in attempt.run.spec["rewards"]]
    for first in range(1, steps + 1, LINES_AT_ONCE):
        of = range(first, min(first + LINES_AT_ONCE, steps + 1))
        lines = [_group(draw, step, step % rows, names) for step in of]
        uploads.samples(attempt, first, lines)


def _group(draw: random.Random, step: int, row: int, names: list[str]) -> dict[str, Any]:
    return {
        "step": step,
        "row": row,
        "prompt": f"What is {row} plus 1?",
        "answer": str(row + 1),
        "mode": "train",
        "completions": [
            {**completions_data.completion(draw, 0.5, names, 0), "text": f"At step {step}, answer {n}: {row + 1}."}
            for n in range(4)
        ],
    }
