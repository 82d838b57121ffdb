"""What the supervisor gathers beside a training: peaks between samples, in threads that give way to it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from workers.contract.wire import processes
from workers.supervisor.processes.gpus import GpuReading
from workers.supervisor.processes.loops import Loop
from workers.supervisor.processes.system import MAX_INTERVAL_S, SystemSampler

GPU = GpuReading(0, "u", "H100", 81_559, 0, 50, 300.0, 60, "580")


def test_a_sample_has_the_peak_between_it_and_the_one_before() -> None:
    used = iter([1000, 70_000, 2000, 3000, 2500])
    samples: list[dict[str, float]] = []
    sampler = SystemSampler(
        (0,), read_gpus=lambda: [replace(GPU, used_mib=next(used))], interval_s=2.0, on_sample=samples.append
    )
    now = 100.0
    for _ in range(5):
        wait = sampler.tick(now)
        assert 0 < wait <= MAX_INTERVAL_S
        now += wait
    assert [sample["gpu/0/memory_mib"] for sample in samples] == [1000, 70_000, 3000]


def test_a_loops_thread_gives_way_and_what_the_main_thread_starts_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "GPU_DEVICE", tmp_path)
    ours, found, ticked = os.getpriority(os.PRIO_PROCESS, 0), [], threading.Event()

    def tick(now: float) -> float:
        found.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
        ticked.set()
        return 60.0

    loop = Loop("test", tick)
    loop.start()
    assert ticked.wait(10)
    loop.stop()
    assert found == [max(ours, processes.NICENESS)]
    child = subprocess.run([sys.executable, "-c", "import os; print(os.nice(0))"], capture_output=True, check=True)
    assert int(child.stdout) == ours


def test_nothing_gives_way_where_no_gpu_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "GPU_DEVICE", tmp_path / "none")
    assert processes.niceness() == 0


def test_a_process_that_leads_its_session_lowers_the_session_s_priority_too() -> None:
    program = (
        "import os; from pathlib import Path; from workers.contract.wire.processes import lower_priority\n"
        "lower_priority(10); autogroup = Path('/proc/self/autogroup')\n"
        "print(os.nice(0), autogroup.read_text() if autogroup.exists() else 'nice 10')"
    )
    command = [sys.executable, "-c", program]
    lowered = subprocess.run(command, capture_output=True, text=True, check=True, start_new_session=True)
    assert lowered.stdout.split()[0] == str(min(19, os.nice(0) + 10))
    assert lowered.stdout.split()[-1] == "10"
