"""Many runs at once: some with real supervisors, the others in one generator that speaks for theirs."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from tests.benchmarks._cpu import CpuWatch
from tests.benchmarks._figures import percentile
from tests.benchmarks._product import HERE, Product, until
from tests.benchmarks._store import Kept, kept
from tests.benchmarks._watching import Acks, Page
from workers.contract.wire.names import SCHEMA, FileName
from workers.supervisor.reports.control import Control

HOST = "loadhost"
"""Its supervisors are the generator: launch messages to it are read by nobody, and expire."""
SUBMIT = """
from controlplane.platform.accounts.models import User
from controlplane.catalogue.datasets.models import DatasetVersion
from controlplane.catalogue.hardware.models import HardwareProfile, Host
from controlplane.catalogue.rewards.models import RewardVersion
from runs.engine.scheduling import dispatching, launching
from runs.engine.models import Attempt
from controlplane.platform.http.tokens import attempt_token
runs = [
    launching.submit(launching.LaunchRequest(name=f"bench crowd {number}", host=Host.objects.get(name=host),
        dataset_version=DatasetVersion.objects.get(pk=page["dataset_version"]),
        reward_version=RewardVersion.objects.get(pk=page["reward_version"]),
        profile=HardwareProfile.objects.get(pk=page["profile"]), model=page["model"], grpo={"max_steps": 1_000_000}),
        user=User.objects.get(username="operator"), dispatch=False)
    for number in range(count)
]
dispatching.dispatch_ready()
found = Attempt.objects.filter(run__in=runs).order_by("created_at")
result = [{"id": a.pk, "run": a.run_id, "token": attempt_token(a.pk), "status": a.status} for a in found]
"""
TOKEN = "from controlplane.catalogue.joining import credentials\nresult = credentials.embedded_token(host, '')"
DISPATCH = """
import time
from django.utils import timezone
from runs.engine.scheduling import dispatching, launching
from runs.housekeeping import tick
result = []
for act in (dispatching.dispatch_ready, lambda: tick.tick(timezone.now())):
    times = []
    for _ in range(7):
        begin = time.perf_counter()
        act()
        times.append(time.perf_counter() - begin)
    result.append(sorted(times)[3])
"""
CANCEL = """
from controlplane.platform.accounts.models import User
from runs.engine.scheduling import stopping
from runs.engine.models import Attempt
from workers.contract.wire.names import StopMode
for attempt in Attempt.objects.filter(pk__in=attempts):
    stopping.request_stop(attempt, StopMode.NOW, User.objects.get(username="operator"))
"""
COUNT = "from runs.engine.models import Attempt\nresult = Attempt.objects.filter(run__in=runs, status=status).count()"


class Crowd:
    """`runs` of them, `supervisors` real; use as a context."""

    def __init__(self, product: Product, *, runs: int, supervisors: int, metrics: int = 20) -> None:
        self.product = product
        self.made = max(0, runs - supervisors)
        self.supervisors = supervisors
        self.metrics = metrics
        """Of a made run's step."""
        self.generator = Generator()
        self.real: list[str] = []
        self.runs: list[str] = []

    def __enter__(self) -> Crowd:
        return self

    def __exit__(self, *_: object) -> None:
        self.generator.close()

    def start(self) -> float:
        """Seconds that it took to bring all of them into training."""
        begin = time.monotonic()
        announce(self.product, slots=max(1, self.made))
        attempts = submit(self.product, self.made)
        self.runs = [attempt["run"] for attempt in attempts]
        waiting = [attempt["id"] for attempt in attempts if attempt["status"] != "starting"]
        if waiting:
            raise RuntimeError(f"{len(waiting)} of {self.made} runs were not dispatched")
        where = {"host": "127.0.0.1", "port": self.product.stack.installation.port, "name": HOST, "schema": SCHEMA}
        where["metrics"] = self.metrics
        self.generator.ask("claim", attempts=attempts, **where)
        self.real = [self.product.launch(pause_s=1.0) for _ in range(self.supervisors)]
        every = [*self.runs, *self.real]
        until(
            lambda: self.product.stack.django(COUNT, runs=every, status="running") == len(every), "not all runs train"
        )
        return time.monotonic() - begin

    def measure(self, seconds: float) -> dict[str, Any]:
        folders = [self.product.folder(run) for run in self.real]
        with Acks(folders) as acks, Page(self.product.stack, self.real[0]) as page:
            time.sleep(3)  # until the page counts as watched, and every run has found its pace
            watch = CpuWatch(self._processes(folders))
            self.generator.ask("measure")
            since = time.time()
            time.sleep(seconds)
            seen = self.generator.ask("look")
            end = time.time()
            cpu = watch.percent()
            time.sleep(2.5)  # acks of the window's last lines
        if page.problems:
            raise RuntimeError("; ".join(page.problems))
        watched, *others = [acks.row_s(folder, since, end) for folder in folders]
        unwatched = [wait for waits in others for wait in waits]
        rows = [*seen["row_s"], *unwatched, *watched]
        lines = len(rows)
        return {
            "web_cpu_percent": cpu["web"],
            **{f"{name}_cpu_percent": value for name, value in cpu.items() if name != "web"},
            "row_p50_ms": one_ms(rows, 0.5),
            "row_p99_ms": one_ms(rows, 0.99),
            "row_generated_p99_ms": one_ms(seen["row_s"], 0.99),
            "row_supervised_p99_ms": one_ms(unwatched, 0.99),
            "row_watched_p99_ms": one_ms(watched, 0.99),
            **milliseconds("frame", page.frame_s(since), (0.5, 0.95)),
            **milliseconds("sync", seen["sync_s"], (0.5, 0.99)),
            "page_ms_p50": one_ms(page.get_s, 0.5),
            "page_ms_most": one_ms(page.get_s, 1.0),
            "rows_timed": lines,
            "rows_per_s": round(lines / seconds, 1),
            "beat_late_ms": round(seen["late_s"] * 1000),
            "sync_errors": seen["errors"],
        }

    def dispatch(self, queued: int) -> dict[str, Any]:
        """How long a look at the queue takes while `queued` more runs wait, and a whole tick."""
        announce(self.product, slots=max(1, self.made))
        attempts = submit(self.product, queued)
        look_s, tick_s = self.product.stack.django(DISPATCH)
        self.product.stack.django(CANCEL, attempts=[attempt["id"] for attempt in attempts])
        return {"queued": queued, "dispatch_ms": round(look_s * 1000, 1), "tick_ms": round(tick_s * 1000, 1)}

    def finish(self) -> Kept:
        """Every run to its end, then what of it is in the store."""
        acked = self.generator.ask("finish")["acked"]
        for run in self.real:
            self.product.click_stop(run)
        sent = {attempt.rpartition("-")[0]: seq for attempt, seq in acked.items()}
        for run in self.real:
            self.product.wait(run, "stopped")
            sent[run] = written(self.product.folder(run))
        return kept(self.product.stack.django, sent)

    def _processes(self, folders: list[Path]) -> Mapping[str, list[int]]:
        holders = [int(json.loads((folder / FileName.LOCK).read_text())["pid"]) for folder in folders]
        trainers = [child.pid for pid in holders for child in psutil.Process(pid).children()]
        fleet = {name: [pid] for name, pid in self.product.stack.fleet.pids().items()}
        return {**fleet, "generator": [self.generator.pid], "supervisors": holders, "of_it_trainers": trainers}


class Generator:
    def __init__(self) -> None:
        argv = [sys.executable, str(HERE / "_load.py")]
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self._process.pid

    def ask(self, act: str, **words: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": act, **words}) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the load generator ended with code {self._process.wait()}")
        found: dict[str, Any] = json.loads(answer)
        return found

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def announce(product: Product, *, slots: int) -> None:
    """The host that nobody is, with room for so many runs on its CPU."""
    control = Control(url=product.stack.url, token=product.stack.django(TOKEN, host=HOST), timeout_s=20)
    try:
        control.announce(
            {"name": HOST, "inventory": {"boot_id": "bench", "cpu_slots": slots, "gpus": []}, "trainer_schema": None}
        )
    finally:
        control.close()


def submit(product: Product, count: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = product.stack.django(SUBMIT, host=HOST, page=product.page, count=count)
    return found


def written(folder: Path) -> int:
    """The last seq of a first attempt's outbox, whose lines follow each other without a gap."""
    seqs = [json.loads(line)["seq"] for line in (folder / FileName.OUTBOX).read_bytes().splitlines()]
    if seqs != list(range(1, len(seqs) + 1)):
        raise RuntimeError(f"the outbox in {folder} has gaps")
    return len(seqs)


def milliseconds(name: str, seconds: list[float], shares: tuple[float, ...]) -> dict[str, float | None]:
    return {f"{name}_ms_p{share * 100:.0f}": one_ms(seconds, share) for share in shares}


def one_ms(seconds: list[float], share: float) -> float | None:
    """None of nothing: JSON has no NaN."""
    return round(percentile(seconds, share) * 1000, 1) if seconds else None
