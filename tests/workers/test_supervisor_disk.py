"""No space in the run's folder: the run ends with that reason, and the control plane hears it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workers.attempts import attempt

pytestmark = pytest.mark.processes


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(path: Path) -> None:
    with pytest.raises(OSError, match="No space"):
        path.write_bytes(b"x" * (4 << 20))


def test_a_trainer_that_fills_the_disk_ends_with_that_reason(small_disk: Path) -> None:
    with attempt(small_disk, trainer="fill") as made:
        made.launch()
        ended = made.wait_for_end()
        assert ended["reason"] == "disk_full"
        assert ended["receipt"]["free"] is True
        assert made.control.train_steps() == [1]
    assert sorted(made.control.lines) == list(range(1, len(made.control.lines) + 1))


def test_a_disk_that_another_program_fills_stops_the_run(small_disk: Path) -> None:
    with attempt(small_disk, trainer="forever") as made:
        made.launch()
        made.wait_for_step(3)
        fill(small_disk / "others")
        ended = made.wait_for_end()
        assert ended["reason"] == "disk_full"
        made.wait_until_gone()
    assert sorted(made.control.lines) == list(range(1, len(made.control.lines) + 1))


def test_a_dataset_that_does_not_fit_starts_nothing(small_disk: Path) -> None:
    with attempt(small_disk) as made:
        made.control.dataset = b"x" * (4 << 20)
        made.launch()
        ended = made.wait_for_end()
        assert ended["reason"] == "disk_full"
        assert made.control.of_kind("process_started") == []
