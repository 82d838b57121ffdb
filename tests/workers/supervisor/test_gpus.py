"""GPUs: found busy, given back, never proved free. The seam that reads them is a file here."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from controlplane.setup.serving.processes import BASE_DIR as ROOT
from tests.fakes.fake_control import TOKEN
from tests.waiting import wait_until
from tests.workers.supervisor.attempts import FAKES, RUN, Attempt, attempt
from workers.contract.run.hardware import HardwareSpec
from workers.contract.run.spec import Placement
from workers.contract.wire.names import StopMode
from workers.host import reaper
from workers.settings import HostSettings
from workers.supervisor.claim import GpusBusy, gpu_baselines
from workers.supervisor.processes.gpus import GpuReading

pytestmark = pytest.mark.processes


class Gpus:
    def __init__(self, file: Path, used: dict[int, int]) -> None:
        self.file = file
        self.use(used)

    def use(self, used: dict[int, int]) -> None:
        self._write({str(index): mib for index, mib in used.items()})

    def hang(self) -> None:
        self._write([])

    def _write(self, content: Any) -> None:
        temporary = self.file.with_suffix(".new")
        temporary.write_text(json.dumps(content))
        temporary.replace(self.file)


@contextmanager
def gpu_attempt(
    tmp_path: Path, used: dict[int, int], *, trainer: str = "forever", **settings: Any
) -> Iterator[tuple[Attempt, Gpus]]:
    gpus = Gpus(tmp_path / "gpus.json", used)
    command = (sys.executable, str(FAKES / "supervisor_with_gpus.py"), str(gpus.file))
    spec = {"hardware": HardwareSpec("GPU", trainer_gpus=1), "placement": Placement("testhost", gpus=(1,))}
    with attempt(tmp_path, trainer=trainer, spec=spec, supervisor_command=command, **settings) as made:
        yield made, gpus


def test_the_receipt_proves_each_leased_gpu_free(tmp_path: Path) -> None:
    with gpu_attempt(tmp_path, {0: 70_000, 1: 500}) as (made, gpus):
        made.launch()
        made.wait_for_step(2)
        gpus.use({0: 70_000, 1: 40_000})
        wait_until(
            lambda: any(s["data"].get("gpu/1/memory_mib") == 40_000 for s in made.control.of_kind("system")), made.why
        )
        assert made.trainer_environment()["CUDA_VISIBLE_DEVICES"] == "1"
        made.ask_to_stop(StopMode.NOW)
        wait_until(lambda: "verifying" in made.control.phases(), made.why)
        gpus.use({0: 70_000, 1: 700})
        receipt = made.wait_for_end()["receipt"]
        assert receipt["free"] is True
        (gpu,) = receipt["gpus"]
        assert (gpu["gpu"], gpu["before_mib"], gpu["peak_mib"], gpu["after_mib"]) == ("1", 500, 40_000, 700)
        assert gpu["seconds_to_free"] > 0


@pytest.mark.parametrize("how", ["held", "hanging"])
def test_a_gpu_that_is_not_given_back_is_never_called_free(tmp_path: Path, how: str) -> None:
    with gpu_attempt(tmp_path, {1: 500}, gpu_free_deadline_s=0.5) as (made, gpus):
        made.launch()
        made.wait_for_step(2)
        gpus.use({1: 9_000}) if how == "held" else gpus.hang()
        made.ask_to_stop(StopMode.NOW)
        ended = made.wait_for_end()
        assert ended["reason"] == "stopped_by_user"
        assert ended["receipt"]["free"] is False
        assert ended["receipt"]["survivors"] == []
        assert ended["receipt"]["gpus"][0]["seconds_to_free"] is None


def test_a_leased_gpu_in_use_by_something_else_starts_nothing(tmp_path: Path) -> None:
    with gpu_attempt(tmp_path, {1: 30_000}, gpu_free_deadline_s=0.5) as (made, _):
        made.launch()
        ended = made.wait_for_end()
        assert ended["reason"] == "gpus_busy"
        assert "GPU 1: 30000 MiB" in ended["detail"]
        assert made.control.of_kind("process_started") == []


def test_an_attached_server_that_may_hold_the_gpu_is_named() -> None:
    reading = GpuReading(0, "", "H200", 143_771, 1_500, None, None, None, "")
    settings = HostSettings(runs_dir=Path("/nowhere"), control_url="http://127.0.0.1:1", gpu_free_deadline_s=0)
    with pytest.raises(GpusBusy, match=r"GPU 0: 1500 MiB.*restart http://127\.0\.0\.1:8000\."):
        gpu_baselines([0], settings, lambda: [reading], ["http://127.0.0.1:8000"])


def test_a_gpu_that_is_not_there_is_told(tmp_path: Path) -> None:
    with gpu_attempt(tmp_path, {0: 0}) as (made, _):
        made.launch()
        ended = made.wait_for_end()
        assert ended["reason"] == "launch_failed"
        assert "GPU 1 is missing" in ended["detail"]


def test_a_driver_that_never_answers_ends_the_attempt_before_anything_is_started(tmp_path: Path) -> None:
    with gpu_attempt(tmp_path, {1: 500}, gpu_free_deadline_s=0.2) as (made, gpus):
        gpus.hang()
        made.launch()
        ended = made.wait_for_end()
        assert (ended["reason"], ended["receipt"]["free"]) == ("launch_failed", True)
        assert "The GPU driver isn't responding" in ended["detail"]
        assert made.control.of_kind("process_started") == []


def test_a_stop_does_not_wait_for_an_nvml_that_hangs(tmp_path: Path) -> None:
    with gpu_attempt(tmp_path, {1: 500}) as (made, gpus):
        gpus.hang()
        made.launch()
        wait_until(lambda: "preparing" in made.control.phases(), made.why)
        made.ask_to_stop(StopMode.NOW)
        ended = made.wait_for_end()
        assert ended["reason"] == "stopped_by_user"
        assert ended["receipt"]["free"] is True  # nothing was started, so nothing holds memory


@pytest.mark.parametrize(("used", "free"), [(9_000, False), (200, True)])
def test_a_gpu_whose_baseline_was_lost_is_free_only_when_it_is_empty(tmp_path: Path, used: int, free: bool) -> None:
    with gpu_attempt(tmp_path, {1: 0}, gpu_free_deadline_s=0.5) as (made, _):
        made.launch()
        made.wait_for_step(1)
        made.kill_supervisor()
        (made.folder / "pids.json").unlink()
        reading = GpuReading(1, "GPU-1", "a GPU", 80_000, used, None, None, None, "580")
        reaper.reap(RUN, 1, TOKEN, made.settings, read_gpus=lambda: [reading])
        receipt = made.control.reaped[0]["receipt"]
        assert (receipt["free"], [gpu["gpu"] for gpu in receipt["gpus"]]) == (free, ["1"])


def test_a_supervisor_that_died_before_it_started_anything_has_no_gpu_to_prove(tmp_path: Path) -> None:
    with gpu_attempt(tmp_path, {1: 500}, gpu_free_deadline_s=0.5) as (made, gpus):
        gpus.hang()
        made.launch()
        wait_until(lambda: "preparing" in made.control.phases(), made.why)
        made.kill_supervisor()
        reading = GpuReading(1, "GPU-1", "a GPU", 80_000, 500, None, None, None, "580")
        reaper.reap(RUN, 1, TOKEN, made.settings, read_gpus=lambda: [reading])
        receipt = made.control.reaped[0]["receipt"]
        assert (receipt["free"], receipt["gpus"]) == (True, [])


def test_a_child_forked_during_a_reading_can_read_too() -> None:
    code = """
import os
from workers.supervisor.processes import gpus
with gpus._lock:
    child = os.fork()
    if child == 0:
        os._exit(0 if gpus._lock.acquire(timeout=5) else 1)
    assert os.waitpid(child, 0)[1] == 0
"""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
