"""Logs of any size and content, and what a run's folder adds to them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from workers.diagnosis import judging
from workers.diagnosis.catalogue import Confidence
from workers.diagnosis.folder import NothingToRead, diagnose
from workers.diagnosis.judging import Report
from workers.diagnosis.scanning import BLOCK_BYTES, STEM_CONTEXT_BYTES

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
NO_SPACE = "OSError: [Errno 28] No space left on device: '/runs/a/checkpoint-5'"
STEP = "{'loss': 0.1, 'reward': 0.5, 'memory/rank0/reserved_mib': 4000.0}"


def of(folder: Path, text: str | bytes, name: str = "trainer.log", most: int | None = None) -> Report:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return diagnose(path, most)


def ids(report: Report) -> list[str]:
    return [one.id for one in report.diagnoses]


def a_folder(folder: Path, logs: dict[str, str], events: list[dict[str, Any]] | None = None) -> Path:
    (folder / "logs").mkdir(parents=True)
    for role, text in logs.items():
        (folder / "logs" / f"{role}.log").write_text(text)
    if events is not None:
        (folder / "outbox.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    return folder


def exited(role: str, code: int) -> dict[str, Any]:
    return {"seq": 1, "t": 1.0, "kind": "process_exited", "step": None, "data": {"role": role, "exit_code": code}}


def ending(reason: str) -> dict[str, Any]:
    data = {"phase": "stopping", "detail": "", "reason": reason}
    return {"seq": 2, "t": 2.0, "kind": "phase", "step": None, "data": data}


@pytest.mark.parametrize(
    "noise",
    [
        b"\0" * 5_000,
        b"\xff\xfe\xe9\n" * 1_000,
        b"\x1b[32mfine\x1b[0m\n" * 1_000,
        b"x" * (3 * BLOCK_BYTES),
        b"an error that is not one, " * 200_000 + b"\n",
        b"\r".join(b" 12%| 3/25 [00:10<01:00]" for _ in range(10_000)),
    ],
    ids=["NUL", "not UTF-8", "colours", "no newline", "a long line of hits", "progress"],
)
def test_whatever_else_is_in_a_log_the_cause_is_found(noise: bytes, tmp_path: Path) -> None:
    report = of(tmp_path, noise + b"\n" + OOM.encode() + b"\n")
    assert ids(report) == ["gpu_memory"]
    assert report.diagnoses[0].lines[0].text == OOM


def test_an_error_within_one_endless_line_is_found(tmp_path: Path) -> None:
    report = of(tmp_path, b"x" * (2 * BLOCK_BYTES) + b" CUDA out of memory " + b"y" * (2 * BLOCK_BYTES))
    assert ids(report) == ["gpu_memory"]
    assert len(report.diagnoses[0].lines[0].text) < 2 * STEM_CONTEXT_BYTES


@pytest.mark.parametrize("most", [None, 4 << 20])
def test_line_numbers_are_right_even_if_the_middle_is_not_read(most: int | None, tmp_path: Path) -> None:
    lines = [f"{number} nothing to see here, of any kind" for number in range(300_000)]
    lines[290_000] = NO_SPACE
    lines[150_000] = OOM
    report = of(tmp_path, "\n".join(lines), most=most)
    numbers = {one.id: one.lines[0].number for one in report.diagnoses}
    assert numbers["disk_full"] == 290_001
    assert numbers.get("gpu_memory") == (150_001 if most is None else None)


def test_what_a_process_survived_is_only_possible(tmp_path: Path) -> None:
    report = of(tmp_path, f"{OOM}\n{STEP}\n{NO_SPACE}\n")
    assert [(one.id, one.confidence) for one in report.diagnoses] == [
        ("disk_full", Confidence.CERTAIN),
        ("gpu_memory", Confidence.POSSIBLE),
    ]


def test_the_same_line_after_it_counts_again(tmp_path: Path) -> None:
    report = of(tmp_path, f"{NO_SPACE}\n{STEP}\n{NO_SPACE}\n")
    assert report.diagnoses[0].confidence is Confidence.CERTAIN


def test_a_progress_bar_drawn_again_at_the_end_is_no_progress(tmp_path: Path) -> None:
    bar = "  0%|          | 0/1250 [00:{}<?, ?it/s]\n"
    again = of(tmp_path, bar.format("00") + f"{NO_SPACE}\n" + bar.format("39"))
    assert again.diagnoses[0].confidence is Confidence.CERTAIN
    further = of(tmp_path, bar.format("00") + f"{NO_SPACE}\n" + bar.format("39").replace(" 0/", " 1/"))
    assert further.diagnoses[0].confidence is Confidence.POSSIBLE


def test_advice_on_the_allocator_in_the_line_of_an_error_hides_nothing(tmp_path: Path) -> None:
    advice = "If reserved but unallocated memory is large try setting PYTORCH_ALLOC_CONF=expandable_segments:True."
    assert ids(of(tmp_path, f"{OOM} {advice}\n")) == ["gpu_memory"]
    assert ids(of(tmp_path, f"UserWarning: expandable_segments not supported on this platform\n{advice}\n")) == []


def test_an_error_after_more_kinds_of_lines_than_are_kept_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judging, "MAX_SHAPES", 3)
    lines = "".join(f"completion {word}: cannot say\n" for word in ("one", "two", "three", "four", "five"))
    assert ids(of(tmp_path, f"{lines}{NO_SPACE}\n")) == ["disk_full"]


def test_a_healthy_log_has_no_cause(tmp_path: Path) -> None:
    warnings = "UserWarning: this is not an error\nINFO 11-23 10:11:12 [api.py:1] failed requests: 0\n"
    assert ids(of(tmp_path, f"{STEP}\n{warnings}" * 50)) == []


def test_a_completion_that_speaks_of_an_error_is_not_certain(tmp_path: Path) -> None:
    report = of(tmp_path, "completion: the program says CUDA out of memory, so use less\n")
    assert all(one.confidence is not Confidence.CERTAIN for one in report.diagnoses)


def test_an_unknown_failure_shows_each_process_s_first_error(tmp_path: Path) -> None:
    folder = a_folder(
        tmp_path / "1",
        {"trainer": "fine\nZorgError: 7 zorgs\nValueError: then this\n", "vllm": "INFO fine\nRuntimeError: no zorg\n"},
    )
    report = diagnose(folder)
    assert ids(report) == []
    assert [(line.file, line.number, line.text) for line in report.first_errors] == [
        ("trainer.log", 2, "ZorgError: 7 zorgs"),
        ("vllm.log", 2, "RuntimeError: no zorg"),
    ]


def test_the_process_that_ended_first_has_the_cause(tmp_path: Path) -> None:
    server = "ValueError: No available memory for the cache blocks.\nRuntimeError: Engine core initialization failed.\n"
    trainer = "ConnectionError: The vLLM server can't be reached at http://127.0.0.1:8000 after 5 seconds.\n"
    events = [exited("vllm", 1), ending("vllm_exited"), exited("trainer", 137)]
    report = diagnose(a_folder(tmp_path / "1", {"trainer": trainer, "vllm": server}, events))
    assert ids(report) == ["vllm_no_cache"]


def test_a_reason_is_evidence_without_a_line(tmp_path: Path) -> None:
    report = diagnose(a_folder(tmp_path / "1", {"vllm": "INFO loading\n"}, [ending("vllm_not_ready")]))
    assert [(one.id, one.facts) for one in report.diagnoses] == [
        ("vllm_not_ready", ("The run ended as vllm not ready.",))
    ]


def test_an_exit_code_is_the_last_resort(tmp_path: Path) -> None:
    events = [exited("trainer", 137), ending("trainer_exited")]
    report = diagnose(a_folder(tmp_path / "1", {"trainer": f"{STEP}\n"}, events))
    assert ids(report) == ["ended_by_kill"]
    assert report.diagnoses[0].confidence is Confidence.POSSIBLE
    assert report.diagnoses[0].facts == ("trainer exited with 137.",)


def test_the_kernel_s_kill_for_want_of_memory_is_not_the_gpu_s(tmp_path: Path) -> None:
    report = diagnose(a_folder(tmp_path / "1", {"trainer": f"{STEP}\n"}, [exited("trainer", 137), ending("oom")]))
    assert [(one.id, one.facts) for one in report.diagnoses] == [("host_memory", ("The run ended as oom.",))]


def test_the_supervisor_s_own_kills_are_no_evidence(tmp_path: Path) -> None:
    events = [exited("vllm", 1), ending("vllm_exited"), exited("trainer", 137)]
    report = diagnose(a_folder(tmp_path / "1", {"trainer": f"{STEP}\n", "vllm": "fine\n"}, events))
    assert "ended_by_kill" not in ids(report)


def test_metrics_that_are_not_finite_are_evidence(tmp_path: Path) -> None:
    left_out = {"seq": 1, "t": 1.0, "kind": "metrics_left_out", "step": 3, "data": {"names": "loss, grad_norm"}}
    report = diagnose(a_folder(tmp_path / "1", {"trainer": f"{STEP}\n"}, [left_out, ending("trainer_exited")]))
    assert ids(report) == ["nan_loss"]


def test_a_hang_is_the_cause_unless_training_went_on(tmp_path: Path) -> None:
    hang = {
        "seq": 1,
        "t": 1.0,
        "kind": "hang",
        "step": 3,
        "data": {"text": "No step.", "who": "The reward waits.", "seconds": 9},
    }
    went_on = {"seq": 2, "t": 2.0, "kind": "note", "step": 4, "data": {"text": "Step 4 came late: training goes on."}}
    first = diagnose(a_folder(tmp_path / "1", {"trainer": f"{STEP}\n"}, [hang, ending("hung")]))
    assert [(one.id, one.cause) for one in first.diagnoses] == [("hung", "The reward waits.")]
    assert first.diagnoses[0].facts == ("The run ended as hung.", "No step.")
    later = diagnose(a_folder(tmp_path / "2", {"trainer": f"{STEP}\n"}, [hang, went_on, ending("trainer_exited")]))
    assert ids(later) == []


def test_a_run_s_folder_means_its_newest_attempt(tmp_path: Path) -> None:
    a_folder(tmp_path / "9", {"trainer": OOM})
    a_folder(tmp_path / "10", {"trainer": NO_SPACE})
    assert ids(diagnose(tmp_path)) == ["disk_full"]


def test_a_folder_without_logs_says_so(tmp_path: Path) -> None:
    with pytest.raises(NothingToRead, match="has no logs"):
        diagnose(tmp_path)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-I",
        "-c",
        "import sys; sys.path.insert(0, '.'); from workers.diagnosis.__main__ import ",
    ]
    command[-1] += "main; sys.exit(main(sys.argv[1:]))"
    return subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)


def test_the_command_prints_the_cause_and_the_fix(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(f"fine\n{NO_SPACE}\n")
    told = run(str(tmp_path / "a.log"))
    assert told.returncode == 0
    assert "The disk is full (certain)" in told.stdout
    assert "What to do: Free space" in told.stdout
    assert f"a.log:2: {NO_SPACE}" in told.stdout
    as_json = json.loads(run(str(tmp_path / "a.log"), "--json").stdout)
    assert as_json["diagnoses"][0]["lines"] == [["a.log", 2, NO_SPACE]]


def test_the_command_says_what_it_can_t_read_or_does_not_know(tmp_path: Path) -> None:
    nowhere = run(str(tmp_path / "nowhere"))
    assert (nowhere.returncode, nowhere.stderr.startswith(f"{tmp_path}/nowhere: No such file")) == (2, True)
    (tmp_path / "a.log").write_text("ZorgError: 7\n")
    told = run(str(tmp_path / "a.log"))
    assert told.returncode == 1
    assert "The cause of this failure is unknown" in told.stdout
    assert "a.log:1: ZorgError: 7" in told.stdout
