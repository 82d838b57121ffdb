"""Several ways to train the same, in turns on the same GPUs: steps of each, and how they compare."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from tests.gpu import ratio
from tests.gpu.figures import Row, settled_seconds, tokens_per_s
from tests.gpu.installation import Site
from tests.gpu.launches import Launch
from tests.gpu.units import Compared, Ratio, Way
from workers.contract.run.overlapping import AHEAD_SECONDS, STALENESS, TRUNCATED
from workers.contract.run.spec import AttemptSpec

PARTS = ("generation", "weight_sync", "rewards", "logps", "update")
TOLD = {
    **{f"{part}_s": f"time/{part}_s" for part in PARTS},
    "ahead_s": AHEAD_SECONDS,
    "staleness": STALENESS,
    "share_truncated": TRUNCATED,
}
"""Name -> metric of the product's runs."""
ON_GPUS = {"generation_kwargs": json.dumps({"ignore_eos": True})}
"""Completions of one length, so that all do the same work."""


def measure(unit: Compared, site: Site, profile: str, deadline: float, say: Callable[[str], None]) -> dict[str, Any]:
    """Of each way its steps, and the figures. `deadline` by time.monotonic()."""
    as_ratio = Ratio(unit.setup, pairs=1, steps=unit.steps, limit_s=unit.limit_s)
    runs: dict[str, list[list[Row]]] = {}
    receipts: list[bool] = []
    spec: AttemptSpec | None = None
    for number, way in enumerate(unit.runs, 1):
        if time.monotonic() + unit.limit_s / 2 > deadline:
            say(f"{unit.name}: no time is left for run {number}, {way.name}")
            break
        begun = time.monotonic()
        if way.bare:
            if spec is None:
                raise ratio.RatioError("a bare script has no run whose arguments it takes")
            steps = ratio.bare_steps(as_ratio, site, spec, site.folder(spec.run.run_id))
        else:
            launch = _launched(unit, way, site, profile, number)
            spec = ratio.spec_of(launch, site)
            ratio.follow(launch, as_ratio, site)
            steps, kill = launch.seen, launch.kill()
            receipts.append(bool(kill["free"]))
        runs.setdefault(way.name, []).append(steps)
        median = statistics.median(settled_seconds(steps))
        say(f"{unit.name}: {way.name}, {median:.3f} s a step; the run took {time.monotonic() - begun:.0f} s")
    ways = {name: _told(of_way) for name, of_way in runs.items()}
    return {**compared(unit, runs), "ways": ways, "receipts_free": receipts, "gpus": unit.setup.gpus}


def compared(unit: Compared, runs: dict[str, list[list[Row]]]) -> dict[str, float | None]:
    """Steps per second of one way over another's, by medians of the settled steps of all their runs; None where one
    did not run."""
    medians = {name: statistics.median(_settled(of_way)) for name, of_way in runs.items()}
    return {
        name: round(medians[slow] / medians[quick], 3) if {quick, slow} <= medians.keys() else None
        for name, (quick, slow) in unit.figures.items()
    }


def _launched(unit: Compared, way: Way, site: Site, profile: str, number: int) -> Launch:
    launch = Launch(unit.setup, site, number, unit.steps, unit.limit_s)
    changes = {**(ON_GPUS if unit.setup.gpus else {}), **way.launch}
    launch.send(profile, {**changes, "name": f"{unit.name} {number}"})
    return launch


def _settled(runs: Sequence[Sequence[Row]]) -> list[float]:
    return [seconds for steps in runs for seconds in settled_seconds(steps)]


def _told(runs: Sequence[Sequence[Row]]) -> dict[str, Any]:
    told: dict[str, Any] = {
        "step_s": round(statistics.median(_settled(runs)), 4),
        "step_s_runs": [round(statistics.median(settled_seconds(steps)), 4) for steps in runs],
        "steps": sum(map(len, runs)),
        "tokens_per_s": [None if (speed := tokens_per_s(steps)) is None else round(speed, 1) for steps in runs],
    }
    for name, metric in TOLD.items():
        values = [row.values[metric] for steps in runs for row in steps[1:] if metric in row.values]
        if values:
            told[name] = round(statistics.fmean(values), 4)
    return told
