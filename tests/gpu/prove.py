"""Proves the set-ups on real GPUs through the whole product: pages, queue, supervisor, trainer, vLLM, kill, receipt.

    python -m tests.gpu.prove --out DIR [--plan PLAN] [--only NAME,NAME]
    python -m tests.gpu.prove --render [FILE]     take FILE's entries into results.json, and write RESULTS.md

The interpreter that runs it runs everything, and needs the packages of the control plane, the trainer and vLLM;
GRPO_TRAINER_PYTHON, or a .venv-train, is another one for the trainer. DIR gets results.json after each launch, and
failures.log.
"""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from controlplane.setup.serving.processes import BASE_DIR as ROOT
from tests.gpu import lora, results
from tests.gpu.installation import Site, busy, read_gpus
from tests.gpu.proof import Sitting
from tests.gpu.results import Entry
from tests.gpu.setups import PLANS, REHEARSAL, START_CPU, TURNS_CPU, chosen
from tests.gpu.units import Setup, Unit
from workers.supervisor.processes import gpus

WORK = Path(tempfile.gettempdir()) / "gpu-prove"
VERSIONS = ("torch", "transformers", "trl", "peft", "accelerate", "vllm", "deepspeed", "bitsandbytes")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.prove", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="folder for results.json and failures.log")
    parser.add_argument("--plan", choices=PLANS, default="one-gpu")
    parser.add_argument("--only", default="", help="names of set-ups, with commas")
    parser.add_argument("--deadline-s", type=float, default=560.0)
    parser.add_argument("--model-dir", type=Path, default=WORK / "models")
    parser.add_argument("--cache-dir", type=Path, default=WORK / "cache", help="vLLM's and torch's compile caches")
    parser.add_argument("--render", nargs="?", const="", metavar="FILE", help="only write RESULTS.md")
    options = parser.parse_args(argv)
    if options.render is not None:
        return render(Path(options.render) if options.render else None)
    if options.out is None:
        parser.error("--out is needed")
    os.environ.setdefault("CONTROLPLANE_BOOTSTRAP", "off")
    os.environ.pop("CONTROLPLANE_DATA", None)
    # Told to end, it still stops what it has started: supervisors would outlive it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    return prove(options, time.monotonic() + options.deadline_s)


def render(file: Path | None) -> int:
    entries = results.read(results.COMMITTED)
    if file is not None:
        rehearsed = {unit.name for unit in (*REHEARSAL, START_CPU, TURNS_CPU)} | {f"cpu-{lora.NAME}"}
        entries = results.merged(entries, [one for one in results.read(file) if one["name"] not in rehearsed])
    if not entries:
        print("there are no results to write of", file=sys.stderr)
        return 1
    _use_django()
    from tests.gpu.estimates import with_estimates  # of the shipped profiles, which are Django's

    entries = [with_estimates(entry) for entry in entries]
    lora.write_speeds(entries)
    results.write(results.COMMITTED, entries)
    results.PAGE.write_text(results.render(entries), encoding="utf-8")
    return 0


def _use_django() -> None:
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
    django.setup()


def prove(options: argparse.Namespace, deadline: float) -> int:
    units = chosen(options.plan, options.only)
    rehearsal = all(unit.gpus == 0 for unit in setups_of(units))
    options.out.mkdir(parents=True, exist_ok=True)
    python, baseline = trainer_python(), read_gpus()
    making = make_models(options.model_dir, python, setups_of(units))
    site = Site(
        models=options.model_dir,
        cache=options.cache_dir,
        trainer_python=python,
        baseline=baseline,
        rehearsal=rehearsal,
        often=any(isinstance(unit, Setup) for unit in units),
    )
    try:
        site.open()
        wait_for_models(making)
        settled(baseline)
        sitting = Sitting(
            site,
            deadline,
            save=Saver(options.out / "results.json"),
            failures=options.out / "failures.log",
            machine={"machine": machine(), "versions": versions(site.host())},
            command=lambda name: shlex.join(["python", "-m", "tests.gpu.prove", "--out", "OUT", "--only", name]),
        )
        sitting.say(f"ready with {', '.join(unit.name for unit in units)}")
        sitting.go(units)
    finally:
        site.close()
        if making is not None and making.poll() is None:
            making.kill()
    left = left_busy(baseline)
    if left:
        print(f"NOT FREE at the end: GPU {', '.join(map(str, left))}: {read_gpus()}", flush=True)
    failed = [entry["name"] for entry in results.read(options.out / "results.json") if entry.get("failed")]
    print(f"done; failed: {', '.join(failed) or 'none'}; GPUs {'busy' if left else 'free'}", flush=True)
    return 1 if left or failed else 0


def trainer_python() -> str:
    """The one that is named, the one that `manage.py` built, or this one."""
    built = ROOT / ".venv-train" / "bin" / "python"
    return os.environ.get("GRPO_TRAINER_PYTHON") or (str(built) if built.exists() else sys.executable)


def setups_of(units: Sequence[Unit]) -> list[Setup]:
    return [unit if isinstance(unit, Setup) else unit.setup for unit in units]


class Saver:
    """Into DIR's file after each launch: what this sitting has found, and only that; `--render` adds it up."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, entry: Entry) -> None:
        results.write(self._path, results.merged(results.read(self._path), [entry]))


# --- models ---------------------------------------------------------------------------------------------------


def make_models(folder: Path, python: str, setups: Sequence[Setup]) -> subprocess.Popen[bytes] | None:
    """While the installation starts; those that are there already are kept."""
    shapes = dict.fromkeys(setup.shape for setup in setups if not (folder / setup.shape / "config.json").exists())
    if not shapes:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    argv = [python, "-m", "tests.gpu.models", str(folder), *shapes]
    if "tiny" in shapes:
        argv = [python, "-m", "workers.trainer.tiny", str(folder / "tiny"), "--quick"]
    path = os.pathsep.join(part for part in (str(ROOT), os.environ.get("PYTHONPATH", "")) if part)
    return subprocess.Popen(argv, cwd=ROOT, env={**os.environ, "PYTHONPATH": path})


def wait_for_models(making: subprocess.Popen[bytes] | None) -> None:
    if making is not None and making.wait(timeout=300):
        raise RuntimeError("the models could not be made; its output is above")


# --- the machine ----------------------------------------------------------------------------------------------


def settled(baseline: dict[int, int], seconds: float = 20.0) -> None:
    """Until what made the models has let go of its GPU."""
    deadline = time.monotonic() + seconds
    while busy(baseline):
        if time.monotonic() > deadline:
            raise RuntimeError(f"GPUs {busy(baseline)} are in use before the first launch: {read_gpus()}")
        time.sleep(0.2)


def left_busy(baseline: dict[int, int], seconds: float = 15.0) -> list[int]:
    deadline = time.monotonic() + seconds
    while (found := busy(baseline)) and time.monotonic() < deadline:
        time.sleep(0.2)
    return found


def machine() -> str:
    found = gpus.read()
    cards = f"{len(found)} × {found[0].name}, driver {found[0].driver}" if found else "no GPU"
    return f"{cards}; {os.cpu_count()} CPU cores"


def versions(host: dict[str, object]) -> str:
    known = host.get("versions")
    names = known if isinstance(known, dict) else {}
    words = [f"{name} {names[name]}" for name in VERSIONS if name in names]
    return ", ".join([f"Python {platform.python_version()}", *words])


if __name__ == "__main__":
    sys.exit(main())
