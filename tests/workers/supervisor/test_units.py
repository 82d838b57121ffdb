"""The supervisor's parts on their own: outbox, tail, samples, verification, reasons, settings."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.fake_control import TOKEN, FakeControl
from tests.workers.supervisor.attempts import QUICK
from workers.contract.reports.lines import object_of
from workers.contract.wire.names import EndReason, EventKind
from workers.settings import HostSettings, SettingsError
from workers.supervisor import commands, end_reasons
from workers.supervisor.processes.child import TRAINER, ChildExit
from workers.supervisor.processes.teardown import GpuProof
from workers.supervisor.reports.control import Control
from workers.supervisor.reports.outbox import Outbox
from workers.supervisor.reports.samples import SampleUploader
from workers.supervisor.reports.tail import MAX_LINE_BYTES, Tail
from workers.supervisor.reports.trainerlines import TrainerProgress

SETTINGS = HostSettings(runs_dir=Path("/nowhere"), control_url="http://127.0.0.1:1", **QUICK)


@pytest.fixture
def control() -> Any:
    made = FakeControl().start()
    yield made
    made.close()


@pytest.fixture
def client(control: FakeControl) -> Any:
    made = Control(url=control.url, token=TOKEN, timeout_s=5)
    yield made
    made.close()


# --- outbox ---------------------------------------------------------------------------------------------------


def test_lines_are_numbered_from_the_first_seq_without_a_gap(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "o", first_seq=41)
    assert [outbox.append(EventKind.NOTE, {}, t=1.0) for _ in range(3)] == [41, 42, 43]
    outbox.close()


def test_a_line_cut_in_the_middle_is_no_line_and_numbering_goes_on(tmp_path: Path) -> None:
    first = Outbox(tmp_path / "o", first_seq=1)
    first.append(EventKind.NOTE, {"text": "a"}, t=1.0)
    first.close()
    with open(tmp_path / "o", "ab") as file:
        file.write(b'{"seq":2,"t":1,"ki')
    again = Outbox(tmp_path / "o", first_seq=1)
    assert again.append(EventKind.NOTE, {"text": "b"}, t=1.0) == 2
    lines, _ = again.read_after(again.offset_after(1), max_bytes=1000)
    assert [line.data() for line in lines] == [{"text": "b"}]
    again.close()


def test_a_full_disk_keeps_lines_in_memory_until_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outbox = Outbox(tmp_path / "o", first_seq=1)
    outbox.append(EventKind.NOTE, {"text": "on disk"}, t=1.0)
    real = os.pwrite

    def half(fd: int, data: bytes, at: int) -> int:
        real(fd, data[: len(data) // 2], at)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", half)
    outbox.append(EventKind.NOTE, {"text": "in memory"}, t=1.0)
    assert outbox.trouble is not None
    assert outbox.trouble.errno == errno.ENOSPC
    assert [line.seq for line in outbox.read_after(0, max_bytes=1000)[0]] == [1, 2]
    assert (tmp_path / "o").read_bytes().count(b"\n") == 1
    assert (tmp_path / "o").read_bytes().endswith(b"\n")
    monkeypatch.setattr(os, "pwrite", real)
    outbox.append(EventKind.NOTE, {}, t=1.0)
    assert [json.loads(line)["seq"] for line in (tmp_path / "o").read_text().splitlines()] == [1, 2, 3]
    outbox.close()


def test_a_batch_holds_whole_lines_even_when_one_is_longer_than_it(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "o", first_seq=1)
    outbox.append(EventKind.NOTE, {"text": "x" * 5000}, t=1.0)
    outbox.append(EventKind.NOTE, {"text": "\ud800"}, t=1.0)  # a lone surrogate is no UTF-8
    lines, after = outbox.read_after(0, max_bytes=100)
    assert [line.seq for line in lines] == [1, 2]
    assert after == (tmp_path / "o").stat().st_size
    outbox.close()


# --- tail -----------------------------------------------------------------------------------------------------


def test_only_complete_lines_are_read_and_the_rest_waits(tmp_path: Path) -> None:
    path = tmp_path / "m"
    tail = Tail(path, object_of)
    assert tail.read() == []
    path.write_bytes(b'{"a": 1}\n{"a"')
    assert tail.read() == [{"a": 1}]
    with open(path, "ab") as file:
        file.write(b": 2}\n")
    assert tail.read() == [{"a": 2}]
    tail.close()


def test_lines_that_are_no_objects_are_counted_and_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "m"
    path.write_bytes(b'\xff\xfe\n[1]\n\n"x"\n' + b"[" * 100_000 + b'\n{"v": NaN}\n')
    tail = Tail(path, object_of)
    assert tail.read() == []
    assert tail.bad_lines == 5
    tail.close()


@pytest.mark.parametrize("more", [0, 1, 1 << 19])
def test_the_limit_of_a_line_is_the_same_however_it_falls_into_chunks(tmp_path: Path, more: int) -> None:
    line = json.dumps({"x": ""})
    line = line.replace('""', '"' + "x" * (MAX_LINE_BYTES + more - len(line)) + '"')
    path = tmp_path / "m"
    path.write_text(line + '\n{"x": 1}\n')
    tail = Tail(path, object_of)
    found = 0
    while not tail.is_at_end():
        found += len(tail.read())
    assert (found, tail.bad_lines) == ((2, 0) if more == 0 else (1, 1))
    tail.close()


def test_a_line_without_an_end_takes_no_more_memory_than_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "m"
    path.write_bytes(b"x" * (MAX_LINE_BYTES + (3 << 20)) + b'\n{"a": 1}\n')
    tail = Tail(path, object_of)
    found: list[Any] = []
    while not tail.is_at_end():
        found += tail.read()
        assert len(tail._partial) <= MAX_LINE_BYTES
    assert found == [{"a": 1}]
    tail.close()


# --- samples --------------------------------------------------------------------------------------------------


def test_samples_that_the_control_plane_has_already_are_not_sent_twice(
    tmp_path: Path, control: Any, client: Any
) -> None:
    (tmp_path / "s").write_text("".join(json.dumps({"step": i}) + "\n" for i in range(150)))
    control.samples = [{"step": i} for i in range(100)]
    uploader = SampleUploader("a", tmp_path / "s", client, SETTINGS, hold=lambda: False)
    uploader.close()
    for now in range(10):
        uploader.tick(float(now))
    assert [sample["step"] for sample in control.samples] == list(range(150))
    assert uploader.drained


def test_a_group_longer_than_one_chunk_is_sent_before_the_end_is_called_drained(
    tmp_path: Path, control: Any, client: Any
) -> None:
    (tmp_path / "s").write_text(json.dumps({"step": 1, "prompt": "x" * (5 << 19)}) + "\n")
    uploader = SampleUploader("a", tmp_path / "s", client, SETTINGS, hold=lambda: False)
    uploader.close()
    while not uploader.drained:
        uploader.tick(0.0)
    assert [sample["step"] for sample in control.samples] == [1]


def test_groups_that_wait_for_the_control_plane_come_in_requests_that_it_can_take(
    tmp_path: Path, control: Any, client: Any
) -> None:
    group = json.dumps({"step": 1, "prompt": "x" * 700_000}) + "\n"
    (tmp_path / "s").write_text(group * 20)
    uploader = SampleUploader("a", tmp_path / "s", client, SETTINGS, hold=lambda: False)
    control.refuse["samples"] = 503
    for _ in range(20):
        uploader.tick(0.0)
    assert len(uploader._pending) <= 2
    del control.refuse["samples"]
    uploader.close()
    while not uploader.drained:
        uploader.tick(0.0)
    assert len(control.samples) == 20


# --- verification and reasons ---------------------------------------------------------------------------------


def proof(**changes: Any) -> GpuProof:
    values = {"baselines": {0: 500}, "peaks": {0: 9000}, "margin_mib": 300, "started_at": 10.0, "deadline": 25.0}
    return GpuProof(**{**values, **changes})


def test_one_low_sample_proves_nothing_and_two_in_a_row_do() -> None:
    made = proof()
    made.sample(10.1, {0: 700})
    assert not made.is_free()
    made.sample(10.2, {0: 5000})
    made.sample(10.3, {0: 800})
    made.sample(10.4, {0: 801})
    assert not made.is_free()
    made.sample(10.5, {0: 600})
    made.sample(10.6, {0: 600})
    assert made.is_free()
    assert made.receipts()[0].seconds_to_free == pytest.approx(0.5)


def test_samples_without_the_gpu_prove_nothing() -> None:
    made = proof()
    made.sample(10.1, {})
    made.sample(10.2, {1: 0})
    assert not made.is_finished(24.9)
    assert made.is_finished(25.0)
    assert made.receipts()[0].seconds_to_free is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("OSError: [Errno 28] No space left on device", "disk_full"),
        ("RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory", "oom"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried\nTraceback\n  File x", "oom"),
        ("ValueError: no", "trainer_exited"),
        ("", "trainer_exited"),
    ],
)
def test_the_log_tells_why_a_trainer_failed(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "log").write_text(text)
    exit_ = ChildExit(TRAINER, 1, 1, None)
    end = end_reasons.of_trainer(exit_, TrainerProgress(), log=tmp_path / "log", killed_by_kernel=False)
    assert end.reason == reason


def test_a_sigkill_while_the_kernel_killed_for_memory_is_out_of_memory(tmp_path: Path) -> None:
    exit_ = ChildExit(TRAINER, 1, 137, "SIGKILL")
    end = end_reasons.of_trainer(exit_, TrainerProgress(), log=tmp_path / "none", killed_by_kernel=True)
    assert end.reason == EndReason.OOM


def test_neither_figures_nor_the_launcher_s_report_of_ranks_are_the_last_word(tmp_path: Path) -> None:
    said = "The reward function raised.\n{'loss': '0.1'}\nE1120 20:00:01 torch/elastic: failed (exitcode: 1)\n======\n"
    (tmp_path / "log").write_text(said)
    exit_ = ChildExit(TRAINER, 1, 1, None)
    end = end_reasons.of_trainer(exit_, TrainerProgress(), log=tmp_path / "log", killed_by_kernel=False)
    assert end.detail.endswith("The reward function raised.")


# --- settings -------------------------------------------------------------------------------------------------


def test_settings_survive_the_way_through_an_environment() -> None:
    made = replace(SETTINGS, model_roots=(Path("/a"), Path("/b")), vllm_command=("x", "a b"), port_range=(1, 2))
    assert HostSettings.from_env(made.as_env()) == made


def test_model_folders_are_added_to_the_data_folders_own() -> None:
    env = {"CONTROLPLANE_DATA": "/data", "GRPO_CONTROL_URL": "x", "GRPO_MODEL_ROOTS": "/a:/data/models"}
    assert HostSettings.from_env(env).model_roots == (Path("/data/models"), Path("/a"))


def test_the_file_of_the_hubs_token_is_found_from_the_supervisors_folder_too() -> None:
    env = {"GRPO_RUNS_DIR": "/r", "GRPO_CONTROL_URL": "x", "GRPO_HF_TOKEN_FILE": "hub.token"}
    assert HostSettings.from_env(env).as_env()["GRPO_HF_TOKEN_FILE"] == str(Path.cwd() / "hub.token")


def test_the_hosts_own_token_is_not_handed_on() -> None:
    assert "GRPO_HOST_TOKEN_FILE" not in replace(SETTINGS, host_token_file=Path("/t")).as_env()


@pytest.mark.parametrize(
    ("env", "says"),
    [
        ({}, "GRPO_RUNS_DIR is not set"),
        ({"GRPO_RUNS_DIR": "/r"}, "GRPO_CONTROL_URL is not set"),
        ({"GRPO_RUNS_DIR": "r", "GRPO_CONTROL_URL": "x"}, "absolute"),
        ({"GRPO_RUNS_DIR": "/r", "GRPO_CONTROL_URL": "x", "GRPO_TICK_S": "soon"}, "GRPO_TICK_S: 'soon'"),
        ({"GRPO_RUNS_DIR": "/r", "GRPO_CONTROL_URL": "x", "GRPO_VLLM_COMMAND": "vllm"}, "GRPO_VLLM_COMMAND"),
    ],
)
def test_a_setting_that_is_missing_or_wrong_is_named(env: dict[str, str], says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        HostSettings.from_env(env)


def test_the_supervisor_finds_modules_where_its_launcher_did() -> None:
    made = commands.supervisor_environment(SETTINGS, {"PYTHONPATH": "/kit", "HF_TOKEN": "hf_x"})
    assert made["PYTHONPATH"] == f"{commands.SOURCE_ROOT}{os.pathsep}/kit"
    assert "HF_TOKEN" not in made
