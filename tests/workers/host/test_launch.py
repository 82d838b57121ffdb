"""Launching: once whatever is delivered, nothing without a claim."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes.fake_control import TOKEN
from tests.waiting import wait_until
from tests.workers.supervisor.attempts import attempt
from workers.contract.wire.documents import ContractError, to_dict
from workers.host.launcher import Launch, launch, launch_and_report
from workers.supervisor.processes import procfs

pytestmark = pytest.mark.processes


def test_a_second_delivery_sees_the_lock_and_starts_nothing(tmp_path: Path) -> None:
    with attempt(tmp_path, trainer="steps:10,pause:0.05") as made:
        assert made.launch() == Launch.STARTED
        first = made.supervisor()
        assert made.launch() == Launch.RUNNING
        made.wait_for_end()
        assert made.supervisor() == first
        assert len(made.control.of_kind("process_started")) == 1


def test_ten_deliveries_at_once_make_one_supervisor(tmp_path: Path) -> None:
    with attempt(tmp_path, trainer="steps:10,pause:0.05") as made:
        with ThreadPoolExecutor(10) as pool:
            outcomes = set(pool.map(lambda _: made.launch(), range(10)))
        assert outcomes <= {Launch.STARTED, Launch.RUNNING}
        made.wait_for_end()
        assert {claim["pid"] for claim in made.control.claims} == {made.supervisor().pid}
        assert len(made.control.of_kind("process_started")) == 1


def test_a_finished_attempt_is_not_started_again(tmp_path: Path) -> None:
    with attempt(tmp_path) as made:
        made.launch()
        made.wait_for_end()
        made.wait_until_gone()
        assert made.launch() == Launch.ENDED
        assert len(made.control.claims) == 1


def test_a_launch_that_the_control_plane_no_longer_wants_starts_nothing(tmp_path: Path) -> None:
    with attempt(tmp_path) as made:
        made.control.go, made.control.why = False, "The attempt is failed."
        assert made.launch() == Launch.STARTED
        made.wait_until_gone()
        assert "The attempt is failed." in made.log()
        assert made.outbox() == []
        assert not (made.folder / "environment.json").exists()


def test_a_spec_that_was_changed_on_its_way_starts_nothing(tmp_path: Path) -> None:
    with attempt(tmp_path) as made:
        honest = made.spec.run
        made.spec = replace(made.spec, run=replace(honest, model=replace(honest.model, trust_remote_code=True)))
        made.launch()
        assert made.wait_for_end()["reason"] == "spec_refused"
        assert made.control.of_kind("process_started") == []


def test_no_claim_before_the_deadline_starts_nothing(tmp_path: Path) -> None:
    with attempt(tmp_path, claim_deadline_s=0.5) as made:
        made.control.stop()
        assert made.launch() == Launch.STARTED
        made.wait_until_gone()
        assert "nothing is started" in made.log()
        assert made.outbox() == []


def test_a_claim_is_tried_until_the_control_plane_is_there(tmp_path: Path) -> None:
    with attempt(tmp_path) as made:
        made.control.stop()
        made.launch()
        wait_until(made.lock_is_held)
        made.control.start()
        assert made.wait_for_end()["reason"] == "completed"


def test_a_supervisor_follows_a_control_plane_that_moved(tmp_path: Path) -> None:
    with attempt(tmp_path, control_url="http://127.0.0.1:9") as made:
        made.settings.control_url_file.parent.mkdir(parents=True)
        made.settings.control_url_file.write_text(made.control.url)
        made.launch()
        assert made.wait_for_end()["reason"] == "completed"


def test_a_stale_lock_file_holds_nobody(tmp_path: Path) -> None:
    with attempt(tmp_path) as made:
        made.folder.create()
        (made.folder / "supervisor.lock").write_text('{"pid": 1, "boot_id": "x", "start_time": 1}')
        assert made.launch() == Launch.STARTED
        assert made.wait_for_end()["reason"] == "completed"


def test_a_folder_whose_supervisor_died_is_left_to_the_reaper(tmp_path: Path) -> None:
    with attempt(tmp_path) as made:
        made.folder.create()
        (made.folder / "outbox.jsonl").write_text('{"seq":1,"t":1,"kind":"phase","step":null,"data":{}}\n')
        assert made.launch() == Launch.LOST
        assert made.control.claims == []


def test_the_supervisor_leads_no_terminal_is_nobodys_child_and_cannot_be_read(tmp_path: Path) -> None:
    with attempt(tmp_path, trainer="steps:10,pause:0.05") as made:
        made.launch()
        found = procfs.read(made.supervisor().pid)
        assert found is not None
        assert found.tty == 0
        assert found.ppid != os.getpid()
        assert os.getsid(found.pid) != os.getsid(0)
        assert os.stat(f"/proc/{found.pid}/environ").st_uid == 0  # undumpable: the kernel gives it to root
        made.wait_for_end()


def test_the_spec_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    with attempt(tmp_path) as made:
        made.launch()
        made.wait_for_end()
        assert stat.S_IMODE((made.folder / "spec.json").stat().st_mode) == 0o600
        assert stat.S_IMODE(made.folder.path.stat().st_mode) == 0o700


def test_a_checkpoint_is_found_where_this_host_keeps_its_runs(tmp_path: Path) -> None:
    with attempt(tmp_path) as made:
        document = to_dict(made.spec) | {"resume_from": "rearlier/1/checkpoints/checkpoint-2"}
        launch(document, "token", made.settings)
        spec = made.folder.read_json("spec.json") or {}
        assert spec["resume_from"] == f"{made.settings.runs_dir}/rearlier/1/checkpoints/checkpoint-2"


def test_a_run_id_that_is_a_path_is_refused(tmp_path: Path) -> None:
    with attempt(tmp_path) as made:
        document = to_dict(made.spec)
        document["run"]["run_id"] = "../../etc"
        with pytest.raises(ValueError, match="not a run id"):
            launch(document, "token", made.settings)


def test_a_spec_of_another_version_is_refused_by_name(tmp_path: Path) -> None:
    with attempt(tmp_path) as made:
        document = to_dict(made.spec) | {"surprise": 1}
        with pytest.raises(ContractError, match="unknown field 'surprise'"):
            launch(document, "token", made.settings)


def test_a_refused_spec_is_told_to_the_run(tmp_path: Path) -> None:
    with attempt(tmp_path) as made:
        with pytest.raises(ContractError):
            launch_and_report(to_dict(made.spec) | {"surprise": 1}, TOKEN, made.settings)
        [told] = made.control.not_launched
        assert "unknown field 'surprise'" in told["detail"]
        assert told["final"] is True


def test_a_folder_that_can_not_be_made_is_told_to_the_run(tmp_path: Path) -> None:
    with attempt(tmp_path) as made:
        made.settings.runs_dir.write_text("in the way")
        with pytest.raises(OSError, match="Not a directory"):
            launch_and_report(to_dict(made.spec), TOKEN, made.settings)
        [told] = made.control.not_launched
        assert "Not a directory" in told["detail"]
        assert told["final"] is False
        made.settings.runs_dir.unlink()


def test_a_supervisor_that_does_not_start_is_told_with_its_last_words(tmp_path: Path) -> None:
    words = ("/bin/sh", "-c", "echo no module named workers >&2")
    with attempt(tmp_path, supervisor_command=words, lock_wait_s=0.5) as made:
        assert launch_and_report(to_dict(made.spec), TOKEN, made.settings) == Launch.FAILED
        assert "no module named workers" in made.control.not_launched[0]["detail"]
