from __future__ import annotations

import json
import socket
import subprocess
from pathlib import Path

import pytest

from controlplane.platform.datafolder import DataFolderUnusable, data_folder
from controlplane.setup.serving.claims import (
    ServingRefused,
    children_lock,
    data_folder_lock,
    listen,
    open_listener,
    refuse_full_disk,
)
from controlplane.setup.serving.embedded import Installation


def test_a_second_one_on_the_same_data_folder_is_told_where_the_first_is(tmp_path: Path) -> None:
    with data_folder_lock(tmp_path, "demo") as lock:
        lock.describe(url="http://127.0.0.1:8123")
        with (
            pytest.raises(ServingRefused, match=r"manage.py demo.*already serves.*8123"),
            data_folder_lock(tmp_path, "up"),
        ):
            pass


def test_a_lock_file_left_by_a_dead_process_is_no_lock(tmp_path: Path) -> None:
    (tmp_path / "serving.lock").write_text(json.dumps({"pid": 1, "command": "demo"}))
    with data_folder_lock(tmp_path, "up"):
        pass


def test_a_lock_file_that_makes_no_sense_still_gives_a_clear_message(tmp_path: Path) -> None:
    with data_folder_lock(tmp_path, "up"):
        (tmp_path / "serving.lock").write_text("}{")
        with pytest.raises(ServingRefused, match="already serves"), data_folder_lock(tmp_path, "up"):
            pass


def test_what_a_killed_one_left_is_waited_for(tmp_path: Path) -> None:
    said: list[str] = []
    with children_lock(tmp_path, said.append) as handle:
        left = subprocess.Popen(["sleep", "100"], pass_fds=[handle])
    with pytest.raises(ServingRefused, match="aren't ending"), children_lock(tmp_path, said.append, deadline_s=0):
        pass
    assert said == ["Waiting for the processes of an earlier start to end …"]
    left.kill()
    left.wait()
    with children_lock(tmp_path, said.append):
        assert len(said) == 1


def test_the_default_port_gives_way_to_a_program_that_has_it() -> None:
    with open_listener("127.0.0.1", None) as first, open_listener("127.0.0.1", None) as second:
        assert second.getsockname()[1] > first.getsockname()[1]


def test_a_port_that_was_asked_for_and_is_busy_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy, pytest.raises(ServingRefused, match="is in use"):
        open_listener("127.0.0.1", busy.getsockname()[1])


@pytest.mark.parametrize("port", [-1, 70_000])
def test_a_port_that_does_not_exist_is_refused(port: int) -> None:
    with pytest.raises(ServingRefused):
        open_listener("127.0.0.1", port)


def test_what_the_web_accepts_waits_for_no_confirmation_of_the_browser() -> None:
    with listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_an_address_that_is_not_ours_is_refused() -> None:
    with pytest.raises(ServingRefused, match=r"Can't listen on 203.0.113.1"):
        open_listener("203.0.113.1", 0)


def test_a_full_disk_is_said_before_anything_is_half_written(tmp_path: Path) -> None:
    refuse_full_disk(tmp_path)
    with pytest.raises(ServingRefused, match="MiB are free"):
        refuse_full_disk(tmp_path, needed_mib=10**9)


def test_a_data_folder_that_cannot_be_made_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CONTROLPLANE_DATA", str(tmp_path / "file" / "data"))
    with pytest.raises(DataFolderUnusable, match="Set CONTROLPLANE_DATA"):
        data_folder(tmp_path)


@pytest.mark.parametrize(("bind", "host"), [("fd00::5", "[fd00::5]"), ("10.0.0.5", "10.0.0.5"), ("::", "127.0.0.1")])
def test_the_address_is_one_that_the_web_answers_to(tmp_path: Path, bind: str, host: str) -> None:
    here = Installation(tmp_path, 8000, "redis://", "box", None, bind=bind)
    assert here.control_url == f"http://{host}:8000"
    assert host in [*here.environment()["CONTROLPLANE_HOSTS"].split(","), "127.0.0.1"]
