"""An outbox of very many lines, as a control plane finds it that was away for long, and its way into the store."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.benchmarks._cpu import CpuWatch
from tests.benchmarks._crowd import HOST, announce, submit
from tests.benchmarks._load import FREE
from tests.benchmarks._product import HERE, Product, until
from tests.benchmarks._store import Kept, kept
from workers.contract.reports.lines import event_line, metrics_line, numbered
from workers.contract.wire.names import EventKind, FileName

METRICS = 20
VARIETIES = 101
FOLDED = (
    "from runs.engine.models import Run\nresult = list(Run.objects.values_list('last_seq', 'folded_seq').get(pk=run))"
)
FOLD_ROWS = 1000
"""runs.insight.metrics.folding.FOLD_ROWS: fewer rows than these wait unfolded."""


def handover(product: Product, lines: int) -> tuple[dict[str, Any], Kept]:
    announce(product, slots=1)
    attempt = submit(product, 1)[0]
    if attempt["status"] != "starting":
        raise RuntimeError("the run whose outbox is handed over was not dispatched")
    folder = product.stack.installation.data / "replay"
    folder.mkdir()
    write(folder / FileName.OUTBOX, lines)
    argv = [sys.executable, str(HERE / "_replay.py"), str(folder)]
    said = {"url": product.stack.url, "token": attempt["token"], "attempt": attempt["id"], "host": HOST}
    watch = CpuWatch({name: [pid] for name, pid in product.stack.fleet.pids().items()})
    done = subprocess.run(argv, input=json.dumps(said), capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"the hand-over failed:\n{done.stderr[-4000:]}")
    cpu, found = watch.percent(), json.loads(done.stdout)
    begin = time.monotonic()
    until(lambda: _folded(product, attempt["run"]), "the rows were not folded", limit_s=1200, pause_s=0.5)
    stored = kept(product.stack.django, {attempt["run"]: lines})
    figures = {
        "replay_lines_per_s": round(found["lines"] / found["seconds"]),
        "replay_lines": found["lines"],
        "replay_stored": stored.stored,
        "replay_seconds": round(found["seconds"], 1),
        "replay_open_seconds": round(found["open_s"], 1),
        "replay_mib": (folder / FileName.OUTBOX).stat().st_size >> 20,
        "replay_failures": found["failures"],
        "replay_supervisor_rss_mib": round(found["max_rss_mib"]),
        "replay_supervisor_cpu_percent": round(100 * found["cpu_s"] / (found["seconds"] + found["open_s"]), 1),
        "replay_web_cpu_percent": cpu["web"],
        "replay_control_cpu_percent": cpu["control"],
        "replay_folded_after_s": round(time.monotonic() - begin, 1),
    }
    return figures, stored


def write(path: Path, lines: int) -> None:
    """An outbox as a supervisor leaves it: it began to train, logged, and ended."""
    t = round(time.time() - lines, 3)
    texts = [
        metrics_line(EventKind.TRAIN, {f"metric_{n}": (n + variety) / 7 for n in range(METRICS)}, t=t)[0].decode()
        for variety in range(VARIETIES)
    ]
    ends = [text[text.index('"data":') :] for text in texts]
    with path.open("w") as file:
        file.write(_event(1, EventKind.TRAINING, {"max_steps": lines, "step": 0}, t))
        for seq in range(2, lines):
            head = f'{{"seq":{seq},"t":{t + seq},"kind":"train","step":{seq - 1},'
            file.write(f"{head}{ends[seq % VARIETIES]}\n")
        data = {"reason": "completed", "detail": "", "exit_codes": {"trainer": 0}, "receipt": FREE}
        file.write(_event(lines, EventKind.ENDED, data, t + lines))


def _event(seq: int, kind: EventKind, data: dict[str, Any], t: float) -> str:
    return numbered(event_line(kind, data, t=t), seq).decode() + "\n"


def _folded(product: Product, run: str) -> bool:
    last, folded = product.stack.django(FOLDED, run=run)
    return bool(last - folded < FOLD_ROWS)
