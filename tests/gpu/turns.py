"""A step through the product beside the same step by a bare TRL script, both loaded, on the same GPUs, in short turns.

While one of them trains, the other stands still (SIGSTOP): its memory stays where it is and nothing of it takes a core
or a GPU. A round has a turn of each mode:

- `product`: the control plane, the supervisor and the product's trainer;
- `beside`: the bare script while the control plane and the supervisor go on, whose trainer stands still;
- `bare`: the bare script alone on the machine.

So `product` over `bare` is what a step costs through the product, and `beside` over `bare` is what the control plane's
processes cost a training that has nothing to do with it.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import random
import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil

from tests.gpu import ratio
from tests.gpu.figures import Row, steps_of
from tests.gpu.installation import Site, tail
from tests.gpu.launches import Launch, Stage
from tests.gpu.results import Entry
from tests.gpu.units import Turns
from workers.contract.run.spec import AttemptSpec
from workers.contract.wire.names import FileName

PRODUCT, BESIDE, BARE = "product", "beside", "bare"
MODES = (PRODUCT, BESIDE, BARE)
WARM_STEPS = 3
"""Of each side before the first turn."""
RESAMPLES = 5000


class TurnsError(RuntimeError):
    """A side failed; the message holds the end of its log."""


@dataclass(frozen=True)
class Turn:
    mode: str
    round: int
    begun: float
    ended: float


@dataclass
class Sides:
    """The processes of both sides; only one of the modes goes on at a time."""

    site: Site
    run: str
    bare: tuple[int, ...]
    """The bare script's pid, and that of its server."""
    stopped: dict[int, psutil.Process] = field(default_factory=dict)

    def go(self, mode: str) -> None:
        bare = [one for pid in self.bare for one in _tree(pid)]
        supervisor = _tree(json.loads((self.site.folder(self.run) / FileName.LOCK).read_text())["pid"])
        trainer = supervisor[1:]
        others = {one.pid for one in (*bare, *trainer)}
        control = [one for one in (*psutil.Process().children(recursive=True), *supervisor) if one.pid not in others]
        goes = {PRODUCT: [*control, *trainer], BESIDE: [*control, *bare], BARE: bare}[mode]
        going = {one.pid for one in goes}
        for one in (*control, *trainer, *bare):
            if one.pid not in going and one.pid not in self.stopped:
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.suspend()
                    self.stopped[one.pid] = one
        for pid in going & set(self.stopped):
            self._resume(pid)

    def resume(self) -> None:
        for pid in list(self.stopped):
            self._resume(pid)

    def _resume(self, pid: int) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            self.stopped.pop(pid).resume()


def measure(unit: Turns, site: Site, profile: str, deadline: float) -> Entry:
    """The ratios with their pairs and intervals. `deadline` by time.monotonic()."""
    launch = Launch(unit.setup, site, 1, steps=10**9, limit_s=unit.limit_s * 10)
    launch.send(profile, {**unit.same_length, "name": unit.name})
    try:
        spec = _started(launch, unit, site)
        with _bare(_elsewhere(spec), site, launch.run) as (pids, lines):
            sides = Sides(site, launch.run, pids)
            try:
                sides.go(BARE)
                _until(
                    lambda: len(_lines(lines)) >= WARM_STEPS, unit.limit_s, lambda: tail(lines.parent / "bare.log", 60)
                )
                turns = list(_turns(unit, sides, deadline))
            finally:
                sides.resume()
            bare = steps_of(_lines(lines))
        product = steps_of(site.rows(launch.run, "train"))
    finally:
        site.person.stop(launch.run)
    return figures(turns, {PRODUCT: product, BESIDE: bare, BARE: bare}, unit.tokens)


def figures(turns: Sequence[Turn], lines: dict[str, Sequence[Row]], tokens: int) -> Entry:
    """Of the steps that began and ended within a turn. A pair is of one round's medians."""
    medians: dict[str, dict[int, float]] = {mode: {} for mode in MODES}
    counted = dict.fromkeys(MODES, 0)
    for turn in turns:
        times = [row.t for row in lines[turn.mode] if turn.begun <= row.t <= turn.ended]
        seconds = [later - earlier for earlier, later in itertools.pairwise(times)]
        if seconds:
            medians[turn.mode][turn.round] = statistics.median(seconds)
            counted[turn.mode] += len(seconds)
    entry: Entry = {f"step_s_{mode}": _median(medians[mode].values()) for mode in MODES}
    for name, mode in (("step_ratio", PRODUCT), ("beside_ratio", BESIDE)):
        rounds = sorted(medians[mode].keys() & medians[BARE].keys())
        pairs = [medians[mode][number] / medians[BARE][number] for number in rounds]
        entry |= {f"{name}_pairs": [round(pair, 4) for pair in pairs]}
        entry |= {name: round(_mean(pairs), 4) if pairs else None, f"{name}_interval": interval(pairs)}
    pairs = len(entry["step_ratio_pairs"])
    entry["step_ratio_how"] = (
        f"{pairs} pairs of turns on the same GPUs, the other side standing still; medians of {counted[PRODUCT]} and "
        f"{counted[BARE]} steps with completions of {tokens} tokens; the interval holds 95 % of {RESAMPLES:,} resamples"
    )
    return entry


def interval(pairs: Sequence[float], share: float = 0.95) -> list[float] | None:
    """Percentile bootstrap of the geometric mean of the pairs; None for fewer than two."""
    if len(pairs) < 2:
        return None
    draw = random.Random(0)  # the same pairs give the same interval
    means = sorted(_mean(draw.choices(pairs, k=len(pairs))) for _ in range(RESAMPLES))
    edge = (1 - share) / 2
    return [round(means[int(edge * RESAMPLES)], 4), round(means[math.ceil((1 - edge) * RESAMPLES) - 1], 4)]


def _mean(pairs: Sequence[float]) -> float:
    return statistics.geometric_mean(pairs)


def _median(values: Iterable[float]) -> float | None:
    found = list(values)
    return round(statistics.median(found), 4) if found else None


def _turns(unit: Turns, sides: Sides, deadline: float) -> Iterator[Turn]:
    """Each round in the opposite order of the one before: what drifts does so for all."""
    for number in range(unit.rounds):
        if deadline - time.monotonic() < len(MODES) * unit.turn_s:
            return
        for mode in MODES if number % 2 == 0 else reversed(MODES):
            sides.go(mode)
            begun = time.time()
            time.sleep(unit.turn_s)  # the turn's length; nobody looks at anything meanwhile
            yield Turn(mode, number, begun, time.time())


def _started(launch: Launch, unit: Turns, site: Site) -> AttemptSpec:
    """The product's run, once it is warm."""

    def warm() -> bool:
        launch.tick(time.time())
        if launch.stage is Stage.FAILED:
            raise TurnsError(f"the product's run: {launch.failed}")
        return len(steps_of(site.rows(launch.run, "train"))) >= WARM_STEPS

    _until(warm, unit.limit_s, lambda: tail(site.folder(launch.run) / "logs/trainer.log", 60))
    return ratio.spec_of(launch, site)


def _elsewhere(spec: AttemptSpec) -> AttemptSpec:
    """On the same GPUs, and on ports that the product's run doesn't have."""
    moved = ratio.elsewhere(spec, spec.placement.every_gpu).placement
    place = replace(moved, gpus=spec.placement.gpus, server_gpus=spec.placement.server_gpus)
    return replace(spec, placement=place)


@contextlib.contextmanager
def _bare(spec: AttemptSpec, site: Site, run: str) -> Iterator[tuple[tuple[int, ...], Path]]:
    """The bare script, loading while the product's trainer stands still."""
    trainer = _tree(json.loads((site.folder(run) / FileName.LOCK).read_text())["pid"])[1:]
    for one in trainer:
        one.suspend()
    before = {one.pid for one in psutil.Process().children()}
    try:
        with ratio.bare_script(site, spec, site.folder(run), 10**9) as (_, folder):
            ours = tuple(one.pid for one in psutil.Process().children() if one.pid not in before)
            yield ours, folder / "bare.jsonl"
    finally:
        for one in trainer:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.resume()


def _tree(pid: int) -> list[psutil.Process]:
    """A process and its descendants."""
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _lines(path: Path) -> list[Row]:
    with contextlib.suppress(FileNotFoundError):
        found = [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]
        return [Row(one["t"], one["step"], _numbers(one["values"])) for one in found]
    return []


def _numbers(values: dict[str, Any]) -> dict[str, float]:
    return {name: value for name, value in values.items() if isinstance(value, int | float)}


def _until(there: Any, seconds: float, why: Any) -> None:
    deadline = time.monotonic() + seconds
    while not there():
        if time.monotonic() > deadline:
            raise TurnsError(f"not warm after {seconds:.0f} s:\n{why()}")
        time.sleep(0.5)
