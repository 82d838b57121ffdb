"""Logs of any size and content, and what a run's folder adds to them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from workers.diagnosis import matching
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
    monkeypatch.setattr(matching, "MAX_SHAPES", 3)
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
    assert [(one.id, one.confidence) for one in report.diagnoses] == [("unexplained", Confidence.POSSIBLE)]
    assert [(line.file, line.number, line.text) for line in report.first_errors] == [
        ("trainer.log", 2, "ZorgError: 7 zorgs"),
        ("vllm.log", 2, "RuntimeError: no zorg"),
    ]


def test_an_unknown_error_is_told_with_the_layer_that_raised_it(tmp_path: Path) -> None:
    frames = (
        '  File "/a/train.py", line 3, in <module>\n  File "/venv/lib/python3.12/site-packages/{}/x.py", line 9, in f\n'
    )
    [unknown] = of(tmp_path, frames.format("trl") + "ZorgError: 7\n").diagnoses
    assert unknown.values == {"error": "ZorgError: 7", "layer": "TRL"}
    [own] = of(tmp_path, '  File "/a/train.py", line 3, in <module>\nZorgError: 7\n').diagnoses
    assert own.values["layer"] == "the script train.py"


def test_a_traceback_in_a_record_of_json_is_read_like_any_other(tmp_path: Path) -> None:
    text = f"Traceback (most recent call last):\n  File 'a.py', line 1, in f\n{NO_SPACE}"
    record = json.dumps({"time": "2026-11-20", "level": "error", "message": "failed", "exc_info": text})
    [first, *_] = of(tmp_path, f'{{"level":"info","msg":"fine"}}\n{record}\n').diagnoses
    assert (first.id, first.confidence, first.lines[0].text) == ("disk_full", Confidence.CERTAIN, NO_SPACE)
    assert ids(of(tmp_path, json.dumps({"error": "CUDA out of memory", "loss": 0.1}) + "\n")) == []


TRACE = f"Traceback (most recent call last):\n  File 'a.py', line 1, in f\n{NO_SPACE}"


@pytest.mark.parametrize(
    "record",
    [
        {"asctime": "2026-11-20", "levelname": "ERROR", "message": "save failed", "exc_text": TRACE},
        {"text": f"save failed\n{TRACE}\n", "record": {"level": {"name": "ERROR", "no": 40}, "message": "save failed"}},
        {"log": json.dumps({"level": "error", "msg": "save failed", "error": NO_SPACE}) + "\n", "stream": "stderr"},
        {"severity": "ERROR", "jsonPayload": {"message": NO_SPACE}},
        {"level": 50, "time": 1, "msg": "save failed", "err": {"type": "OSError", "message": NO_SPACE[9:]}},
        {"event": "save failed", "level": "error", "exception": [{"exc_type": "OSError", "exc_value": NO_SPACE[9:]}]},
        {"MESSAGE": NO_SPACE, "PRIORITY": "3", "_PID": "9"},
    ],
    ids=["Ray", "loguru", "a record in Docker's", "Google Cloud", "pino", "structlog", "journal"],
)
def test_each_program_s_records_of_json_are_unwrapped(record: dict[str, Any], tmp_path: Path) -> None:
    [first, *_] = (report := of(tmp_path, json.dumps(record) + "\n")).diagnoses
    assert (first.id, [line.text for line in report.first_errors]) == ("disk_full", [NO_SPACE])


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
    (tmp_path / "a.log").write_text(f"ZorgError: 7\n{NO_SPACE}\n")
    assert "a.log:1: ZorgError: 7" in run(str(tmp_path / "a.log")).stdout
    (tmp_path / "a.log").write_text(f"fine\n{NO_SPACE}\n")
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


FIGURES = "{{'loss': 0.{n}, 'reward': 0.5}}\n"


def test_a_closing_bar_after_figures_is_no_progress(tmp_path: Path) -> None:
    bar = " 12%|█▏        | 12/100 [00:10<01:00]\n"
    report = of(tmp_path, f"{bar}{FIGURES.format(n=1)}{OOM}\n{bar}")
    assert [(one.id, one.confidence) for one in report.diagnoses] == [("gpu_memory", Confidence.LIKELY)]


def test_figures_that_are_printed_late_are_no_progress_if_there_are_bars(tmp_path: Path) -> None:
    bars = "".join(f" 12%|█▏        | {n}/100 [00:10<01:00]\n" for n in (3, 4, 5))
    late = "".join(FIGURES.format(n=n) for n in (3, 4, 5))
    report = of(tmp_path, f"{bars}{NO_SPACE}\n{late}")
    assert report.diagnoses[0].confidence is Confidence.CERTAIN
    assert ids(of(tmp_path, f"{NO_SPACE}\n{late}")) == [], "without bars, figures are progress"


def test_what_a_healthy_run_survived_is_no_cause_unless_it_failed(tmp_path: Path) -> None:
    text = f"{NO_SPACE}\n{FIGURES.format(n=1)}{FIGURES.format(n=2)}"
    assert ids(of(tmp_path, text)) == []
    (tmp_path / "trainer.log").unlink()
    report = diagnose(a_folder(tmp_path / "1", {"trainer": text}, [exited("trainer", 1), ending("trainer_exited")]))
    assert [(one.id, one.confidence) for one in report.diagnoses] == [("disk_full", Confidence.POSSIBLE)]


def test_a_server_that_goes_on_serving_survives_its_own_errors_but_not_the_trainer_s(tmp_path: Path) -> None:
    served = 'vllm-1  | (APIServer pid=1) INFO: "POST /v1/completions HTTP/1.1" 200 OK\n'
    refused = "vllm-1  | (APIServer pid=1) ERROR ValueError: This model's maximum context length is 4096 tokens.\n"
    assert ids(of(tmp_path, refused + served + served, "compose.txt")) == []
    assert ids(of(tmp_path, f"trainer-1  | {OOM}\n{served}{served}", "compose.txt")) == ["gpu_memory"]


def test_an_error_after_the_end_of_training_is_the_script_s(tmp_path: Path) -> None:
    error = "OSError: We couldn't connect to 'https://huggingface.co' to load this file\n"
    end = "{'train_runtime': 60.1, 'train_loss': 0.02}\n"
    assert ids(of(tmp_path, error)) == ["model_offline"]
    assert ids(of(tmp_path, FIGURES.format(n=1) + end + error)) == ["after_training"]
    assert ids(of(tmp_path, FIGURES.format(n=1) + end + NO_SPACE)) == ["disk_full"]


def test_an_error_that_no_entry_explains_makes_a_later_cause_less_than_certain(tmp_path: Path) -> None:
    later = of(tmp_path, "ZorgError: 7 zorgs\nTypeError: then this\nRuntimeError: Too many open files\n")
    assert [(one.id, one.confidence) for one in later.diagnoses] == [("open_files", Confidence.LIKELY)]
    chained = "\nDuring handling of the above exception, another exception occurred:\n\n"
    report = of(tmp_path, f"KeyError: 'zorg'\n{chained}RuntimeError: Too many open files\n")
    assert report.diagnoses[0].confidence is Confidence.CERTAIN


def test_the_first_error_and_the_first_since_the_last_progress_are_told(tmp_path: Path) -> None:
    report = of(tmp_path, f"ZorgError: 1 zorg\n{FIGURES.format(n=1)}ValueError: a second\nValueError: a third\n")
    assert [line.text for line in report.first_errors] == ["ZorgError: 1 zorg", "ValueError: a second"]


def test_an_exception_says_more_than_a_line_that_is_only_logged_as_an_error(tmp_path: Path) -> None:
    at = "(EngineCore_DP0 pid=9) ERROR 11-23 10:11:12 [core.py:9]"
    lines = (
        "EngineCore failed to start.",
        "Traceback (most recent call last):",
        '  File "a.py", line 1',
        "ZorgError: 7",
    )
    report = of(tmp_path, "".join(f"{at} {line}\n" for line in lines), "vllm.log")
    assert [line.text for line in report.first_errors] == ["ZorgError: 7"]


def test_a_traceback_that_python_ignores_is_no_error(tmp_path: Path) -> None:
    report = of(
        tmp_path, f"Exception ignored in: <function f at 0x7f>\nTraceback (most recent call last):\n{NO_SPACE}\n"
    )
    assert (ids(report), report.first_errors) == ([], ())


def test_what_python_ignores_as_the_program_exits_is_no_error(tmp_path: Path) -> None:
    report = of(tmp_path, f"Error in atexit._run_exitfuncs:\nTraceback (most recent call last):\n{NO_SPACE}\n")
    assert (ids(report), report.first_errors) == ([], ())


def test_an_error_after_which_something_is_tried_again_is_only_possible_unless_it_comes_again(tmp_path: Path) -> None:
    busy = "huggingface_hub.errors.HfHubHTTPError: 429 Client Error: Too Many Requests for url: https://huggingface.co"
    retried = of(tmp_path, f"{busy}\nRetrying in 2s [Retry 1/5].\n").diagnoses[0]
    raised = of(tmp_path, f"{busy}\nRetrying in 2s [Retry 1/5].\n{busy}\n").diagnoses[0]
    assert (retried.id, retried.confidence) == ("hub_busy", Confidence.POSSIBLE)
    assert (raised.id, raised.confidence) == ("hub_busy", Confidence.CERTAIN)


@pytest.mark.parametrize(
    "raw",
    [
        '{"log":"ValueError: 7 zorgs\\n","stream":"stderr","time":"2026-11-23T10:11:12.1Z"}',
        "[pod/trainer-0/main] ValueError: 7 zorgs",
        "Nov 23 10:11:12 node7 python[4711]: ValueError: 7 zorgs",
        "(WorkerDict pid=9, ip=10.0.0.2) [repeated 7x across cluster] ValueError: 7 zorgs",
        "(head, rank=0, pid=4711) ValueError: 7 zorgs",
        "[1,3]<stderr>:ValueError: 7 zorgs",
        "2026-11-23 10:11:12.123 | ERROR    | grpo.train:main:12 - ValueError: 7 zorgs",
        "2026-11-23 10:11:12,123\tERROR worker.py:409 -- ValueError: 7 zorgs",
        "[ERROR|trainer.py:12] 2026-11-23 10:11:12,123 >> ValueError: 7 zorgs",
        "ERROR:grpo.train:ValueError: 7 zorgs",
        "worker-0: ValueError: 7 zorgs",
        " 12%|█▏        | 3/25 [00:10<01:00]ValueError: 7 zorgs",
        "Train:  12%|█▏        | 3/25 [00:10<01:00]\rValueError: 7 zorgs\r 12%|█▏        | 3/25 [00:10<01:00]",
        "│ ValueError: 7 zorgs      │",
    ],
)
def test_what_surrounds_an_error_is_left_out(raw: str, tmp_path: Path) -> None:
    assert [line.text for line in of(tmp_path, f"{raw}\r\n").first_errors] == ["ValueError: 7 zorgs"]


def metrics(step: int, value: str = "0.1") -> str:
    return f"{{'loss': '0.{step}', 'grad_norm': '{value}', 'reward': '0.5'}}\n"


def test_a_value_that_was_not_finite_once_hides_no_later_cause(tmp_path: Path) -> None:
    recovered = metrics(1) + metrics(2, "nan") + "".join(map(metrics, range(3, 9)))
    assert ids(of(tmp_path, recovered + OOM))[0] == "gpu_memory"
    interrupted = of(tmp_path, recovered + "Traceback (most recent call last):\nKeyboardInterrupt")
    assert ids(interrupted)[0] == "interrupted"
    finished = of(tmp_path, recovered + "{'train_runtime': '10.2', 'train_loss': '0.2'}\n")
    assert [one.id for one in finished.diagnoses if one.confidence is Confidence.CERTAIN] == []
    lasting = "".join(metrics(step, "nan") for step in range(3, 9))
    assert ids(of(tmp_path, metrics(1) + lasting + OOM))[0] == "nan_loss"


def test_ray_s_list_of_possible_reasons_is_no_evidence_of_one(tmp_path: Path) -> None:
    died = (
        "*** SIGSEGV received at time=1 on cpu 3 ***\nFatal Python error: Segmentation fault\n"
        "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task. There are some"
        " potential root causes. (1) The process is killed by SIGKILL by OOM killer due to high memory usage.\n"
    )
    assert ids(of(tmp_path, died))[0] == "crashed"
    assert (
        ids(of(tmp_path, "kernel: Memory cgroup: oom-kill:constraint=CONSTRAINT_MEMCG,task=python3"))[0]
        == "host_memory"
    )


def test_a_validation_error_is_explained_by_its_next_line(tmp_path: Path) -> None:
    text = (
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig\n"
        "  Value error, Total number of attention heads (14) must be divisible by tensor parallel size (4). [type=x]\n"
    )
    [first, *_] = of(tmp_path, text).diagnoses
    assert (first.id, first.confidence) == ("tensor_parallel_heads", Confidence.CERTAIN)


def test_a_refused_connection_is_told_by_the_port_that_it_names(tmp_path: Path) -> None:
    """A port of the attempt's own servers is vLLM's; any other is a service that a reward or tool uses."""
    refused = (
        'Traceback (most recent call last):\n  File "/job/judge_reward.py", line 9, in judge\n'
        '  File "/site/vllm_client.py", line 3, in post\n'
        "requests.exceptions.ConnectionError: HTTPConnectionPool(host='10.0.0.9', port={port}): Max retries exceeded "
        "with url: /score (Caused by NewConnectionError('[Errno 111] Connection refused'))\n"
    )
    placements = ({"ports": [8000]}, {"ports": [], "warm": {"ports": [8000]}}, {"ports": ["x"]}, [])
    for number, placement in enumerate(placements):
        firsts = []
        for port in (8000, 8893):
            folder = a_folder(tmp_path / f"{number}-{port}", {"trainer": refused.format(port=port)})
            (folder / "spec.json").write_text(json.dumps({"placement": placement}))
            firsts.append(diagnose(folder).diagnoses[0])
        own = "server_gone" if number < 2 else "service_unreachable"
        assert [first.id for first in firsts] == [own, "service_unreachable"], placement
        assert "to 10.0.0.9:8893" in firsts[1].cause
