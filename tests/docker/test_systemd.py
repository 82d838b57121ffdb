"""The systemd units, as systemd itself reads them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docker.files import DOCKER
from workers.host import shutdown
from workers.settings import HostSettings

UNITS = sorted((DOCKER / "systemd").glob("*.service"))


def test_systemd_finds_no_fault(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not on PATH")
    for unit in UNITS:  # programs must exist for it
        (tmp_path / unit.name).write_text(unit.read_text().replace("/usr/bin/python3", sys.executable))
    argv = ["systemd-analyze", "verify", "--man=no", *(tmp_path / unit.name for unit in UNITS)]
    checked = subprocess.run(argv, capture_output=True, text=True)
    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_runs_outlive_the_service(unit: Path) -> None:
    lines = unit.read_text().splitlines()
    has_runs = unit.name in ("grpo.service", "grpo-host.service")
    assert ("KillMode=process" if has_runs else "KillMode=mixed") in lines
    assert "User=grpo" in lines


def test_a_host_that_saves_its_runs_is_given_the_time() -> None:
    (line,) = [line for line in UNITS[0].read_text().splitlines() if line.startswith("TimeoutStopSec=")]
    settings = HostSettings(runs_dir=Path("/srv/grpo/runs"), control_url="")
    assert int(line.partition("=")[2]) > shutdown.max_duration_s(settings, save=True)
