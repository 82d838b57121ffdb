"""What runs take on a host's disk."""

from __future__ import annotations

import os
from pathlib import Path

from workers.host.runsizes import RunSizes, measure

KIB = 1024


def filled(path: Path, kib: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * kib * KIB)
    return path


def test_each_run_counts_its_own_files_once_and_no_link_out_of_it(tmp_path: Path) -> None:
    outside = filled(tmp_path / ".cache" / "big", 4000)
    model = filled(tmp_path / "r1" / "1" / "checkpoints" / "checkpoint-1" / "model", 400)
    filled(tmp_path / "r2" / "1" / "log", 40)
    os.link(model, tmp_path / "r1" / "same")
    (tmp_path / "r2" / "elsewhere").symlink_to(outside.parent)
    (tmp_path / "r3").symlink_to(outside.parent)
    sizes = measure(tmp_path)
    assert list(sizes) == ["r1", "r2"]  # the biggest first
    assert 400 * KIB <= sizes["r1"] < 420 * KIB
    assert 40 * KIB <= sizes["r2"] < 60 * KIB
    assert measure(tmp_path / "nowhere") == {}


def test_a_walk_is_another_measurement(tmp_path: Path) -> None:
    sizes = RunSizes(tmp_path)
    assert sizes.measured is None
    assert sizes.tick(0.0) >= 60.0
    first = sizes.measured
    sizes.tick(60.0)
    assert first == sizes.measured == {}
    assert first is not sizes.measured
