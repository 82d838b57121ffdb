"""Clocks that are set while runs train, on the host or on the control plane: nothing ends, and nothing is lost."""

from __future__ import annotations

import json
import re
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from glob import glob
from pathlib import Path

import pytest

from controlplane.setup.serving.processes import BASE_DIR as ROOT
from tests.faults import invariants
from tests.faults.harness import FAKES, ARun, Product, with_server
from tests.faults.situations import changed
from workers.supervisor.processes import procfs

FAKETIME = next(iter(glob("/usr/lib/*/faketime/libfaketime.so.1")), "")
pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(not FAKETIME, reason="libfaketime is not installed (Debian: faketime), so no clock can be set"),
]

SLEEP = "import select, time\ntime.sleep = lambda seconds: bool(select.select([], [], [], seconds)) and None\n"
STEPS = """
from runs.engine.records import MetricRow
result = list(MetricRow.objects.filter(run=run, kind="train").order_by("seq").values_list("step", flat=True))
"""
SIDES = {"the host": ("host",), "the control plane": ("web", "control")}


@dataclass(frozen=True)
class Clock:
    """The time of day of some programs; their monotonic clocks go on."""

    file: Path

    def set(self, by: str) -> None:
        """Replaced whole: the programs read it once a second."""
        new = self.file.with_suffix(".new")
        new.write_text(f"{by}\n")
        new.replace(self.file)

    def environment(self) -> dict[str, str]:
        """With another `time.sleep`: Python's sleeps until a moment of the monotonic clock, which libfaketime shifts
        although it is told not to, and answers EINVAL."""
        (self.file.parent / "sitecustomize.py").write_text(SLEEP)
        return {
            "PYTHONPATH": str(self.file.parent),
            "LD_PRELOAD": FAKETIME,
            "FAKETIME_TIMESTAMP_FILE": str(self.file),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }


@pytest.fixture(params=list(SIDES))
def clock(request: pytest.FixtureRequest, product: Product, tmp_path: Path) -> Iterator[Clock]:
    """Of the host: its worker and the supervisors. Of the control plane: the web and its worker."""
    clock, programs = Clock(tmp_path / "clock"), SIDES[request.param]
    clock.set("+0")
    given = clock.environment()
    if "host" in programs:
        # The launcher hands on what a supervisor needs, and a preloaded library is nothing of that.
        words = [f"{name}={value}" for name, value in {**given, "FAKE_GPUS": str(product.gpus.folder)}.items()]
        words[words.index(f"PYTHONPATH={tmp_path}")] = f"PYTHONPATH={ROOT}:{tmp_path}"
        supervisor = ["/usr/bin/env", *words, sys.executable, str(FAKES / "host_with_gpus.py")]
        given["GRPO_SUPERVISOR_COMMAND"] = json.dumps(supervisor)
    with changed(product, *programs, **given):
        yield clock
        product.end_all()
        clock.set("+0")


SEEN = "from runs.engine.models import Attempt\nresult = Attempt.objects.get(run_id=run).last_seen_at.timestamp()"


def is_off(run: ARun, by: str) -> bool:
    """The clock of one side really shows another time: in the supervisor's own lines, or where they are taken in."""
    told = [line["t"] for line in run.outbox() if line["kind"] == "system"][-1]
    taken: float = run.product.stack.django(SEEN, run=run.run)
    return any(abs(stamp - time.time() - float(by)) < 600 for stamp in (told, taken))


def looks_sane(run: ARun) -> None:
    """No page shows a time that is below nothing."""
    with run.product.stack.client("viewer") as client:
        for page in (f"/runs/{run.run}/", "/runs/", f"/runs/{run.run}/events/", "/hardware/"):
            answer = client.get(page, headers={"Connection": "close"})  # when it is kept, timers of the web decide
            assert answer.status_code == 200
            assert not re.search(r"[-−]\d+(\.\d+)? (s|min|h|d)\b", answer.text), page


def test_clocks_that_are_set_end_nothing_and_lose_nothing(product: Product, clock: Clock) -> None:
    runs = [product.launch(with_server()), product.launch()]
    for run in runs:
        run.until_step(2)
    for by in ("+3600", "-3600"):
        clock.set(by)
        product.until(lambda by=by: is_off(runs[0], by), runs[0].why)
        for run in runs:
            assert run.until_step(run.look()["step"] + 3)["status"] == "running"
            looks_sane(run)
        during = product.launch(trainer="steps:2")
        invariants.check(during, status="succeeded", reason="completed")
    lost, ends = runs
    procfs.send(lost.processes()["supervisor"].identity, signal.SIGKILL)
    ends.open_gate("trainer")
    invariants.check(ends, status="succeeded", reason="completed")
    invariants.check(lost, status="failed", reason="supervisor_lost")
    for run in runs:
        steps = product.stack.django(STEPS, run=run.run)
        assert steps == sorted(steps), "order is by seq"
        looks_sane(run)
