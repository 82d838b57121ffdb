"""A step through the product beside the same step by a bare TRL script.

Where the machine has GPUs for both, at the same time: what else the machine does then slows either. Else in turns.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import psutil

from controlplane.setup.serving.processes import BASE_DIR as ROOT
from tests.gpu.figures import Row, settled_seconds, step_ratio, step_seconds, steps_of
from tests.gpu.installation import Site, busy, tail
from tests.gpu.launches import Launch, Stage
from tests.gpu.units import Ratio, Setup
from workers.contract.run.hardware import Rollout
from workers.contract.run.spec import AttemptSpec
from workers.contract.stack.commands import own_servers, server_argv
from workers.contract.wire.documents import from_dict, to_json
from workers.contract.wire.names import FileName
from workers.supervisor import commands

TOKENS = 256
LOOK_S = 1.0
PORTS_AWAY = 400


class RatioError(RuntimeError):
    """A side of the comparison failed; the message holds the end of its log."""


def measure(unit: Ratio, site: Site, profiles: Sequence[str], deadline: float) -> dict[str, Any]:
    """The `step_ratio` of a set-up, and how it came about. `profiles`: of `swapped`, one pair of runs after the other.
    `deadline` by time.monotonic()."""
    product: list[list[Row]] = []
    bare: list[list[Row]] = []
    for _ in range(unit.pairs):
        if product and deadline - time.monotonic() < unit.limit_s:
            break
        number = len(product)
        mine, theirs = _pair(unit, site, profiles[number % len(profiles)], number + 1)
        product.append(mine)
        bare.append(theirs)
    medians = [
        statistics.median(seconds for steps in side for seconds in settled_seconds(steps)) for side in (product, bare)
    ]
    ratio = step_ratio(product, bare)
    return {
        "step_ratio": None if ratio is None else round(ratio, 4),
        "step_s_product": round(medians[0], 4),
        "step_s_bare": round(medians[1], 4),
        "step_s_runs": [
            [[round(seconds, 3) for seconds in step_seconds(steps)] for steps in side] for side in (product, bare)
        ],
        "step_ratio_how": (
            f"medians over {sum(map(len, product))} and {sum(map(len, bare))} steps with completions of "
            f"{_changes(unit)['max_completion_length']} tokens, {len(product)} runs of each "
            f"{'at the same time on other GPUs, swapped' if _side_by_side(unit, site) else 'in turns'}"
        ),
    }


def swapped(unit: Ratio, site: Site) -> list[Setup]:
    """The set-up on one of two GPUs and on the other, since no two cards are alike; as it is where it runs in turns."""
    setup = unit.setup
    if setup.gpus != 1 or not _side_by_side(unit, site):
        return [setup]
    return [
        replace(setup, name=f"{setup.name} on GPU {gpu}", profile={**setup.profile, "trainer_gpu_ids": str(gpu)})
        for gpu in sorted(site.baseline)[:2]
    ]


def _changes(unit: Ratio) -> dict[str, Any]:
    """Completions of one length on both sides, so that both do the same work."""
    if unit.setup.gpus == 0:
        return {"max_completion_length": 24, "generation_kwargs": json.dumps({"min_new_tokens": 24})}
    return {"max_completion_length": TOKENS, "generation_kwargs": json.dumps({"ignore_eos": True})}


def _side_by_side(unit: Ratio, site: Site) -> bool:
    return 0 < 2 * unit.setup.gpus <= len(site.baseline)


def _pair(unit: Ratio, site: Site, profile: str, number: int) -> tuple[list[Row], list[Row]]:
    """The log lines of the product's run and of the bare script's."""
    launch = Launch(unit.setup, site, number, unit.steps, unit.limit_s)
    launch.send(profile, {**_changes(unit), "name": f"{unit.name} {number}"})
    if not _side_by_side(unit, site):
        follow(launch, unit, site)
        return launch.seen, bare_steps(unit, site, spec_of(launch, site), site.folder(launch.run))
    spec = elsewhere(spec_of(launch, site), site.baseline)
    with ThreadPoolExecutor(max_workers=1) as pool:
        bare = pool.submit(bare_steps, unit, site, spec, site.folder(launch.run))
        follow(launch, unit, site)
        return launch.seen, bare.result()


def spec_of(launch: Launch, site: Site, seconds: float = 30.0) -> AttemptSpec:
    """Once the run has been dispatched, with its dataset."""
    folder, deadline = site.folder(launch.run), time.monotonic() + seconds
    while not ((folder / FileName.SPEC).exists() and (folder / FileName.DATASET).exists()):
        if time.monotonic() > deadline:
            raise RatioError(f"the product's run has no spec and dataset after {seconds:.0f} s")
        time.sleep(0.1)
    return from_dict(AttemptSpec, json.loads((folder / FileName.SPEC).read_bytes()))


def elsewhere(spec: AttemptSpec, gpus: Iterable[int]) -> AttemptSpec:
    """The same on those of a machine's GPUs, and on ports, that the product's run doesn't have."""
    placement = spec.placement
    others = [gpu for gpu in gpus if gpu not in placement.every_gpu]
    trainer, server = len(placement.gpus), len(placement.server_gpus)
    moved = replace(
        placement,
        gpus=tuple(others[:trainer]),
        server_gpus=tuple(others[trainer : trainer + server]),
        ports=tuple(port + PORTS_AWAY for port in placement.ports),
        group_port=None if placement.group_port is None else placement.group_port + PORTS_AWAY,
    )
    return replace(spec, placement=moved)


def follow(launch: Launch, unit: Ratio, site: Site) -> None:
    while not launch.over:
        launch.tick(time.time())
        time.sleep(LOOK_S)  # the looking is not the product's: it shall not cost its steps anything
    if launch.stage is Stage.FAILED:
        raise RatioError(
            f"the product's run: {launch.failed}\n{tail(site.folder(launch.run) / 'logs/trainer.log', 60)}"
        )
    launch.seen = launch.seen[: unit.steps]


def bare_steps(unit: Ratio, site: Site, spec: AttemptSpec, run: Path) -> list[Row]:
    """With the arguments and the environment of the product's run."""
    gpus = spec.placement.every_gpu
    _wait_until_free(site, gpus)
    with bare_script(site, spec, run, unit.steps) as (process, folder):
        deadline = time.monotonic() + unit.limit_s
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.2)
        if process.poll() != 0:
            raise RatioError(f"the bare script ended with {process.poll()}:\n{tail(folder / 'bare.log', 60)}")
    found = [json.loads(line) for line in (folder / "bare.jsonl").read_text().splitlines()]
    _wait_until_free(site, gpus)
    numbers = [{k: v for k, v in one["values"].items() if isinstance(v, int | float)} for one in found]
    return steps_of(Row(one["t"], one["step"], values) for one, values in zip(found, numbers, strict=True))


@contextlib.contextmanager
def bare_script(site: Site, spec: AttemptSpec, run: Path, steps: int) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """The script, with its own server where it needs one, and the folder of its logs."""
    folder = Path(tempfile.mkdtemp(prefix="bare-"))
    (folder / FileName.SPEC).write_text(to_json(spec))
    words = ["-m", "tests.gpu.bare_trl", str(folder), str(folder / FileName.SPEC), str(run / FileName.DATASET)]
    argv = [site.trainer_python, *words, "--steps", str(steps)]
    environment = commands.trainer_environment(spec, site.settings, os.environ, {})
    with _server(spec, site, folder), _running(argv, environment, folder / "bare.log") as process:
        yield process, folder


@contextlib.contextmanager
def _server(spec: AttemptSpec, site: Site, folder: Path) -> Iterator[None]:
    """The run's own vLLM server, started by the same command; nothing without one."""
    if spec.run.hardware.rollout is not Rollout.SERVER:
        yield
        return
    place = own_servers(spec)[0]
    argv = server_argv(spec, place, commands.programs(site.settings))
    environment = commands.server_environment(spec, site.settings, os.environ, place)
    with _running(argv, environment, folder / "vllm.log") as process:
        deadline = time.monotonic() + 180
        while not _healthy(place.address):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RatioError(f"the bare script's server did not come up:\n{tail(folder / 'vllm.log', 60)}")
            time.sleep(0.2)
        yield


@contextlib.contextmanager
def _running(argv: list[str], environment: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A program and whatever it starts: at the end all of it is killed by pid."""
    with log.open("ab") as file:
        process = subprocess.Popen(argv, cwd=ROOT, env=environment, stdout=file, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        tree = [psutil.Process(process.pid)] if process.poll() is None else []
        tree += [child for one in tree for child in one.children(recursive=True)]
        for one in tree:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        process.wait()


def _healthy(address: str) -> bool:
    try:
        return httpx.get(f"{address}/health", timeout=2, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


def _wait_until_free(site: Site, gpus: tuple[int, ...], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while taken := busy(site.baseline, gpus):
        if time.monotonic() > deadline:
            raise RatioError(f"GPU {taken[0]} is not free {seconds:.0f} s after the run before")
        time.sleep(0.1)
