"""No space in the run's folder: the run ends with that reason, and the control plane hears it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.disk import fill, mounted
from tests.fakes.fake_control import TOKEN
from tests.waiting import wait_until
from tests.workers.supervisor.attempts import FAKES, RUN, Attempt, attempt
from tests.workers.supervisor.test_gpus import Gpus
from workers.contract.run.hardware import HardwareSpec
from workers.contract.run.spec import Placement
from workers.contract.wire.documents import to_dict
from workers.host import reaper
from workers.host.launcher import Launch, launch_and_report

pytestmark = pytest.mark.processes


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "small", "1m") as folder:
        yield folder


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


def written_steps(made: Attempt) -> list[int]:
    whole, _, _torn = (made.folder / "metrics.jsonl").read_bytes().rpartition(b"\n")
    lines = [json.loads(line) for line in whole.splitlines()]
    return [line["step"] for line in lines if line["kind"] == "train"]


def test_when_there_is_space_again_the_next_run_needs_no_repair(small_disk: Path) -> None:
    with attempt(small_disk, trainer="forever") as made:
        made.launch()
        made.wait_for_step(1)
        fill(small_disk / "others")
        assert made.wait_for_end()["reason"] == "disk_full"
    (small_disk / "others").unlink()
    with attempt(small_disk, spec={"number": 2, "attempt_id": f"{RUN}-2"}) as made:
        made.launch()
        assert made.wait_for_end()["reason"] == "completed"


def test_a_launcher_that_can_not_write_the_spec_says_why_and_leaves_nothing_in_the_way(small_disk: Path) -> None:
    with attempt(small_disk) as made:
        fill(small_disk / "others")
        with pytest.raises(OSError, match="No space"):
            launch_and_report(to_dict(made.spec), TOKEN, made.settings)
        (told,) = made.control.not_launched
        assert ("No space left on device" in told["detail"], told["final"]) == (True, False)
        assert [path.name for path in made.folder.path.iterdir() if path.is_file()] == []
        (small_disk / "others").unlink()
        assert made.launch() == Launch.STARTED
        assert made.wait_for_end()["reason"] == "completed"


def test_a_supervisor_that_finds_the_disk_full_says_so_and_starts_nothing(small_disk: Path) -> None:
    with attempt(small_disk) as made:
        made.control.refuse["claim"] = 503
        made.launch()
        wait_until(lambda: made.control.requests, made.why)
        fill(small_disk / "others")
        made.control.refuse.clear()
        assert made.wait_for_end()["reason"] == "disk_full"
        assert made.control.of_kind("process_started") == []


def test_a_reaper_on_a_full_disk_hands_over_every_line_and_proves_what_is_free(small_disk: Path) -> None:
    with attempt(small_disk, trainer="forever,renamed") as made:
        made.control.refuse["sync"] = 503
        made.launch()
        wait_until(lambda: len(made.outbox()) > 8, made.why)
        made.kill_supervisor()
        fill(small_disk / "others")
        del made.control.refuse["sync"]
        reaper.reap(RUN, 1, TOKEN, made.settings, to_dict(made.spec.placement))
        assert made.control.reaped[0]["receipt"]["free"] is True
        assert made.control.train_steps() == written_steps(made)
        seqs = [line["seq"] for line in made.control.reaped[0]["lines"]]
        assert seqs == sorted(set(seqs))


def test_lines_that_were_sent_from_memory_are_not_stored_twice_by_a_reaper(small_disk: Path) -> None:
    gpus = Gpus(small_disk.parent / "gpus.json", {1: 500})
    command = (sys.executable, str(FAKES / "supervisor_with_gpus.py"), str(gpus.file))
    spec = {"hardware": HardwareSpec("GPU", trainer_gpus=1), "placement": Placement("testhost", gpus=(1,))}
    with attempt(small_disk, trainer="forever", spec=spec, supervisor_command=command) as made:
        made.launch()
        made.wait_for_step(3)
        gpus.hang()  # the proof of its GPU keeps it from its end
        fill(small_disk / "others")
        wait_until(lambda: "verifying" in made.control.phases(), made.why)
        made.kill_supervisor()
        on_disk, stored = made.outbox()[-1]["seq"], max(made.control.lines)
        assert stored > on_disk
        (small_disk / "others").unlink()
        reaper.reap(RUN, 1, TOKEN, made.settings, read_gpus=list)
        steps = made.control.train_steps()
        assert steps == sorted(set(steps))
        assert len(written_steps(made)) - len(steps) <= stored - on_disk
        assert list(made.control.lines) == list(range(1, len(made.control.lines) + 1))
