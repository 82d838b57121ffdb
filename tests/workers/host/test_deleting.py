"""Deleting a model on its host: that folder and nothing else, once, and the control plane hears it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.fake_control import TOKEN, FakeControl
from tests.workers.supervisor.attempts import build_settings
from workers.host import deleting
from workers.supervisor.processes.folder import AttemptFolder, Lock

FOLDER = "r1/2/checkpoints/checkpoint-30"


@pytest.fixture
def control() -> Iterator[FakeControl]:
    fake = FakeControl().start()
    yield fake
    fake.close()


def a_model(runs_dir: Path, folder: str = FOLDER) -> Path:
    path = runs_dir / folder
    path.mkdir(parents=True)
    (path / "model.safetensors").write_bytes(b"weights")
    return path


def delete(control: FakeControl, runs_dir: Path, folder: str = FOLDER) -> bool:
    return deleting.delete_and_report(folder, TOKEN, build_settings(runs_dir, control))


def test_only_the_named_checkpoint_goes_and_a_repeated_task_says_the_same(control: FakeControl, tmp_path: Path) -> None:
    model, other = a_model(tmp_path), a_model(tmp_path, "r1/2/checkpoints/checkpoint-40")
    half = a_model(tmp_path, "r1/2/checkpoints/deleted-checkpoint-30")  # of a task that was killed
    assert delete(control, tmp_path)
    assert delete(control, tmp_path)
    assert [path.name for path in model.parent.iterdir()] == [other.name]
    assert not half.exists()
    told = {"path": "checkpoints/checkpoint-30", "problem": ""}
    assert control.deleted == [told, told]
    assert control.requests == ["/api/attempts/r1-2/deleted"] * 2


def test_all_of_an_ended_attempt_goes_and_its_runs_folder_with_the_last_one(
    control: FakeControl, tmp_path: Path
) -> None:
    a_model(tmp_path)
    (tmp_path / "r1" / "1").mkdir()
    held = Lock(AttemptFolder.of(tmp_path, "r1", 2))
    assert held.acquire()
    assert not delete(control, tmp_path, "r1/2")
    assert "is still using" in control.deleted[0]["problem"]
    held.release()
    assert delete(control, tmp_path, "r1/2")
    assert [path.name for path in (tmp_path / "r1").iterdir()] == ["1"]
    assert delete(control, tmp_path, "r1/1")
    assert delete(control, tmp_path, "r1/1")
    assert not (tmp_path / "r1").exists()
    assert control.deleted[1:] == [{"path": "", "problem": ""}] * 3


@pytest.mark.parametrize("at", ["r1", "r1/2/checkpoints", FOLDER])
def test_no_link_leads_out_of_the_runs_folder(control: FakeControl, tmp_path: Path, at: str) -> None:
    elsewhere = a_model(tmp_path / "elsewhere").parents[3]
    runs_dir = tmp_path / "runs"
    (runs_dir / at).parent.mkdir(parents=True)
    (runs_dir / at).symlink_to(elsewhere / at)
    assert not delete(control, runs_dir)
    assert (elsewhere / FOLDER / "model.safetensors").exists()
    assert "is a link or is below one" in control.deleted[0]["problem"]


@pytest.mark.parametrize(
    "folder",
    [
        "",
        "r1",
        "r1/0",
        "r1/2/",
        "r1/2/checkpoints",
        "r1/2/checkpoints/unfinished",
        f"../{FOLDER}",
        f"/{FOLDER}",
        f"{FOLDER}/..",
        "a/" * 9,
    ],
)
def test_anything_else_is_no_folder_to_delete(control: FakeControl, tmp_path: Path, folder: str) -> None:
    a_model(tmp_path)
    with pytest.raises(ValueError, match="is not the folder of a checkpoint"):
        delete(control, tmp_path, folder)
    assert (tmp_path / FOLDER).exists()
    assert control.deleted == []
