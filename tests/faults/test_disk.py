"""A full disk on the host: the run ends with that reason, its GPUs are proved free, and the next one works."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

import pytest

from tests.faults import invariants
from tests.faults.harness import ARun, Product, on_gpus, with_server

pytestmark = pytest.mark.processes


@pytest.fixture
def small_disk(product: Product) -> Iterator[Path]:
    """The folder of the runs has place for 2 MiB."""
    folder = product.stack.runs_dir
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.decode().strip()}")
    yield folder
    product.end_all()
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
        write_without_end(file)


def write_without_end(file: FileIO) -> None:
    while True:
        file.write(b"x" * 4096)


def ends_with_a_full_disk(run: ARun) -> None:
    """The lines that found no place came from memory: the store has them all, in order, each once."""
    row = invariants.check(run, status="failed", reason="disk_full", complete=False)
    assert row["receipt"]["free"] is True
    stored = run.product.stack.django(invariants.STORED, run=run.run, number=run.number)
    raw, events = [line[0] for line in stored["raw"]], [line[0] for line in stored["events"]]
    folded = {seq for points in stored["chunks"].values() for seq, _ in points}
    assert {*raw, *events, *folded} == set(range(1, row["last_seq"] + 1))
    assert len({*raw, *events}) == len(raw) + len(events)
    assert events[-1] == row["last_seq"], "the end"
    with run.product.stack.client("viewer") as client:
        for page in ("/runs/", f"/runs/{run.run}/", f"/runs/{run.run}/events/", "/hardware/"):
            assert client.get(page).status_code == 200
        assert "disk is full" in client.get(f"/runs/{run.run}/").text


def test_a_trainer_that_fills_the_disk(product: Product, small_disk: Path) -> None:
    run = product.launch(on_gpus(2), trainer="fill")
    ends_with_a_full_disk(run)
    (run.folder / "checkpoints.bin").unlink()
    after = product.launch(on_gpus(8), trainer="steps:3")
    invariants.check(after, status="succeeded", reason="completed")


def test_a_disk_that_somebody_else_fills(product: Product, small_disk: Path) -> None:
    """Under a run that trains, and before one that is to be launched, which waits for space among its tries."""
    run = product.launch(with_server())
    run.until_step(3)
    fill(small_disk / "others")
    ends_with_a_full_disk(run)
    after = product.launch(on_gpus(8), trainer="steps:3")
    after.until(lambda row: row["launches_sent"] and row["status"] == "starting")
    (small_disk / "others").unlink()
    invariants.check(after, status="succeeded", reason="completed")
