"""One measurement of one tool, in the tools' own environment. Arguments: TOOL TASK FOLDER [NUMBER]. Prints JSON last.

calls    cost of a log call of 20 metrics, each after some work, as in a training
killed   logs every 10 ms, then SIGKILLs itself; prints what it logged
stored   how many steps `killed` left behind
dead     such calls after the server that they go to has died; how long one that waits for its answer takes
visible  from a log call until the tool's server gives the point out
read     a series of NUMBER steps with 20 spikes of one step: time of a chart's read, spikes in it
"""

from __future__ import annotations

import json
import os
import random
import signal
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from _peer_tools import METRIC, TOOLS  # type: ignore[import-not-found]

METRICS = 20
WORK_S = 0.002
BUDGET_S = 20.0
KILLED_AFTER_S = 4.0
DEAD_LIMIT_S = 30.0
VISIBLE_LIMIT_S = 60.0
READS = 9
SPIKES, SPIKE, FLAT = 20, 10.0, 0.5


def row(step: int) -> dict[str, float]:
    return {f"m{number:02}": step / (number + 7) for number in range(METRICS)}


def calls(tool: Any, number: int) -> dict[str, Any]:
    took = sorted(_timed(tool.writer(), number))
    return {"p50": took[len(took) // 2], "p99": took[int(0.99 * len(took))], "max": took[-1], "calls": len(took)}


def _timed(log: Any, number: int) -> list[float]:
    """Microseconds of each call; fewer calls where they would take longer than BUDGET_S."""
    took: list[float] = []
    end = time.monotonic() + BUDGET_S
    for step in range(1, number + 1):
        values = row(step)
        busy = time.perf_counter() + WORK_S
        while time.perf_counter() < busy:
            sorted(range(2_000), key=lambda n: -n)
        begin = time.perf_counter()
        log(step, values)
        took.append(1e6 * (time.perf_counter() - begin))
        if time.monotonic() > end:
            break
    return took


def killed(tool: Any, number: int) -> None:
    log = tool.writer()
    end, step = time.monotonic() + KILLED_AFTER_S, 0
    while time.monotonic() < end:
        step += 1
        log(step, row(step))
        time.sleep(0.01)
    print(json.dumps({"logged": step}), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def stored(tool: Any, number: int) -> dict[str, Any]:
    return {"stored": tool.stored()}


def dead(tool: Any, number: int) -> dict[str, Any]:
    with tool.serving():
        log = tool.writer()
        log(0, row(0))
    raised = []

    def tried(step: int, values: dict[str, float]) -> None:
        try:
            log(step, values)
        except Exception as error:
            raised.append(error)

    longest = max(_timed(tried, number)) / 1e6
    return {"seconds": longest, "raises": bool(raised), "waiting": _waiting(lambda: tool.log_and_wait(row(0)))}


def _waiting(call: Any) -> dict[str, Any]:
    """Of one call; more than DEAD_LIMIT_S is not waited for."""
    done = threading.Event()
    said: dict[str, Any] = {"raises": False}
    begin = time.monotonic()

    def act() -> None:
        try:
            call()
        except Exception:
            said["raises"] = True
        done.set()

    threading.Thread(target=act, daemon=True).start()
    done.wait(DEAD_LIMIT_S)
    return {"seconds": time.monotonic() - begin, "returned": done.is_set(), **said}


def visible(tool: Any, number: int) -> dict[str, Any]:
    dice, took = random.Random(1), []
    if hasattr(tool, "address"):
        with tool.serving() as address:
            return _visible(tool, tool.writer(), address, number, dice, took)
    log = tool.writer()
    log(0, {METRIC: -1.0})
    getattr(tool, "flush", lambda: None)()
    with tool.serving() as address:
        return _visible(tool, log, address, number, dice, took)


def _visible(tool: Any, log: Any, address: str, number: int, dice: random.Random, took: list[float]) -> dict[str, Any]:
    for step in range(1, number + 1):
        time.sleep(dice.random())
        begin = time.perf_counter()
        log(step, {METRIC: step + 0.5})
        getattr(tool, "flush", lambda: None)()
        while (waited := time.perf_counter() - begin) < VISIBLE_LIMIT_S:
            if any(abs(value - step - 0.5) < 1e-6 for value in tool.read(address, chart=False)):
                break
            time.sleep(0.005)
        if step > 1:  # the first one waits for the server to look for the first time
            took.append(1000 * waited)
    return {"p50": statistics.median(took), "max": max(took)}


def read(tool: Any, number: int) -> dict[str, Any]:
    spikes = set(random.Random(1).sample(range(number), SPIKES))
    values = [SPIKE if step in spikes else FLAT for step in range(number)]
    begin = time.monotonic()
    tool.load(values)
    loaded = time.monotonic() - begin
    with tool.serving() as address:
        deadline, before = time.monotonic() + 2 * VISIBLE_LIMIT_S, -1
        # TensorBoard reads the file in the background: until two reads a while apart agree.
        while time.monotonic() < deadline:
            now = len(tool.read(address, chart=True))
            if now and now == before:
                break
            before = now
            time.sleep(6 if type(tool).__name__ == "Tensorboard" else 0)
        took = []
        for _ in range(READS):
            begin = time.perf_counter()
            shown = tool.read(address, chart=True)
            took.append(1000 * (time.perf_counter() - begin))
    kept = sum(value > (SPIKE + FLAT) / 2 for value in shown)
    return {"ms": statistics.median(took), "points": len(shown), "spikes": kept, "load_s": loaded}


TASKS = {"calls": calls, "killed": killed, "stored": stored, "dead": dead, "visible": visible, "read": read}

if __name__ == "__main__":
    name, task, folder = sys.argv[1:4]
    answer = TASKS[task](TOOLS[name](Path(folder)), int(sys.argv[4]) if len(sys.argv) > 4 else 0)
    print(json.dumps(answer), flush=True)
    os._exit(0)  # not kept by what a tool still wants to send
