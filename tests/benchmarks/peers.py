"""Beside trackio, MLflow and TensorBoard, each in its pinned version, in one run on this machine.

What a log call costs, what a SIGKILL of the writer loses, the longest log call after the server has died, the time
until a client has a point, the time to read a chart of a long series, and the one-step spikes on it; on each line
whether ours is ahead, level (where a tool loses nothing, ours can't lose less) or behind. The client is a program,
not a page: ours gets the frame of the run page's websocket, the others' an answer; `bench page` has what a page
draws. A tool without a server can't lose it: its longest log call stands there. The tools are measured in a
throw-away environment and write to local files or servers on loopback; each is used at its best: MLflow logs without
waiting, TensorBoard is flushed by hand where freshness is measured. Beside the tools lies `about`: where ours is
behind, and the machine. The table goes to standard error.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from controlplane.setup.serving.processes import BASE_DIR as ROOT
from tests.benchmarks import _peer_venv, _stored, overhead
from tests.benchmarks._figures import percentile
from tests.benchmarks._peer_table import OURS, Figures, as_text, behind
from tests.benchmarks._product import Product
from tests.benchmarks.live import Live

PEER = Path(__file__).with_name("_peer.py")
PEERS = ("trackio", "mlflow", "tensorboard")
LIMIT_S = 1200.0
READS = 9
SPIKES, SPIKE = 20, 10.0


def main(argv: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(prog="bench peers", description=__doc__)
    parser.add_argument("--steps", type=int, default=100_000, help="of the long series")
    parser.add_argument("--calls", type=int, default=3000, help="log calls")
    parser.add_argument("--points", type=int, default=11, help="points whose way is timed")
    parser.add_argument("--only", default=",".join((OURS, *PEERS)), help="some of the tools, with commas")
    options = parser.parse_args(argv or [])
    logging.getLogger("httpx").setLevel(logging.WARNING)
    work = Path(tempfile.mkdtemp(prefix="gt-"))
    names = options.only.split(",")
    table: dict[str, Figures] = {}
    others = [name for name in PEERS if name in names]
    try:
        if others:
            with _peer_venv.environment() as python:
                for name in others:
                    table[name] = _peer(python, name, work / name, options)
        if OURS in names:
            table = {OURS: _ours(work / "ours", options), **table}
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print(as_text(table), file=sys.stderr)
    return {**table, "about": {"behind": behind(table)}}


# --- the others ---------------------------------------------------------------------------------------------


def _peer(python: Path, name: str, folder: Path, options: argparse.Namespace) -> Figures:
    def ask(task: str, number: int = 0, of: str = "") -> Figures:
        place = folder / (of or task)
        place.mkdir(parents=True, exist_ok=True)
        return _ask([str(python), str(PEER), name, task, str(place), str(number)])

    calls, logged = ask("calls", options.calls), ask("killed")["logged"]
    lost = logged - ask("stored", of="killed")["stored"]
    visible, read = ask("visible", options.points), ask("read", options.steps)
    alone = _stall(calls["max"] / 1e6, "writes to files, needs none")
    stall = _stall_of(ask("dead", options.calls)) if name == "mlflow" else alone
    return {**_lines(calls, logged, lost, visible, read), **stall}


def _stall_of(found: Figures) -> Figures:
    return _stall(found["seconds"], "raises" if found["raises"] else "goes on", _waiting(found["waiting"]))


def _stall(longest_s: float, words: str, waiting: str | None = None) -> Figures:
    return {"dead_server_s": longest_s, "dead_server": words, "dead_server_waiting": waiting}


def _waiting(found: Figures) -> str:
    how = "raises after" if found["raises"] else "returns after"
    return f"{how if found['returned'] else 'stalls for more than'} {found['seconds']:.0f} s"


def _lines(calls: Figures, logged: int, lost: int, visible: Figures, read: Figures) -> Figures:
    return {
        "log_call_p50_us": round(calls["p50"], 1),
        "log_call_p99_us": round(calls["p99"], 1),
        "killed_lost": lost,
        "killed_logged": logged,
        "visible_p50_ms": round(visible["p50"], 1),
        "visible_max_ms": round(visible["max"], 1),
        "read_ms": round(read["ms"], 1),
        "read_points": read["points"],
        "spikes_kept_of_20": read["spikes"],
    }


def _ask(argv: list[str]) -> Figures:
    done = subprocess.run(argv, cwd=tempfile.gettempdir(), capture_output=True, text=True, timeout=LIMIT_S)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise RuntimeError(f"{' '.join(argv)} answered nothing:\n{done.stderr[-2000:]}")
    found: Figures = json.loads(lines[-1])
    return found


# --- ours ---------------------------------------------------------------------------------------------------


def _ours(folder: Path, options: argparse.Namespace) -> Figures:
    folder.mkdir(parents=True)
    trainer = os.environ.get("GRPO_TRAINER_PYTHON") or str(ROOT / ".venv-train" / "bin" / "python")
    calls = overhead.log_calls(trainer, folder)
    writer = [sys.executable, str(PEER), OURS]
    logged = _ask([*writer, "killed", str(folder)])["logged"]
    lost = logged - _ask([*writer, "stored", str(folder)])["stored"]
    product = Product()
    try:
        seen = [1000 * seconds for seconds in Live(product).frames(1, float(options.points))]
        read = _read(product, options.steps)
    finally:
        product.close()
    visible = {"p50": percentile(seen, 0.5), "max": max(seen)}
    cost = {"p50": calls["log_call_p50_us"], "p99": calls["log_call_p99_us"]}
    stall = _stall(calls["log_call_max_us_control_dead"] / 1e6, "goes on, lines wait in a file")
    return {**_lines(cost, logged, lost, visible, read), **stall}


def _read(product: Product, steps: int) -> Figures:
    """What the run page asks for its chart of the reward, as a signed-in browser."""
    spikes = [step + 1 for step in random.Random(1).sample(range(steps), SPIKES)]
    run = _stored.long_run(product.stack, product.page, name="long", steps=steps, metrics=["reward"], spikes=spikes)
    took = []
    for _ in range(READS + 1):
        begin = time.perf_counter()
        shown = product.web.get(f"/runs/{run}/series.json?metrics=reward").json()["series"]["reward"]["value"]
        took.append(1000 * (time.perf_counter() - begin))
    kept = sum(value > SPIKE / 2 for value in shown)
    return {"ms": statistics.median(took[1:]), "points": len(shown), "spikes": kept}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1:])))
