"""The proof itself, where there is a GPU with vLLM beside it."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from controlplane.setup.serving.processes import BASE_DIR as ROOT
from tests.gpu import results
from tests.gpu.installation import read_gpus

pytestmark = [pytest.mark.gpu, pytest.mark.processes, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def gpu() -> None:
    if not read_gpus():
        pytest.skip("no GPU on this machine")
    if importlib.util.find_spec("vllm") is None:
        pytest.skip("vLLM is not installed beside this interpreter")


def test_a_run_on_one_gpu_is_killed_in_mid_generation_and_proved_free(gpu: None, tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "tests.gpu.prove", "--out", str(tmp_path), "--only", "colocate-1gpu"]
    environment = {name: value for name, value in os.environ.items() if name != "CONTROLPLANE_DATA"}
    done = subprocess.run(argv, cwd=ROOT, env=environment, timeout=580, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    entry = next(one for one in results.read(tmp_path / "results.json") if one["name"] == "colocate-1gpu")
    assert entry["receipts_free"] == [True, True, True]
    assert max(entry["kill_free_s"]) <= results.TARGET_S
