"""Benchmarks by the real lm-eval, on a task of our own and on one whose data can't be fetched."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from controlplane.setup.bootstrap.environments import ON_DEMAND
from controlplane.setup.serving.processes import BASE_DIR as ROOT
from tests.trainer import builders
from tests.trainer.test_training import of_kind
from workers.contract.run.jobs import BENCHMARK
from workers.contract.stack import commands as stack
from workers.settings import HostSettings
from workers.supervisor import commands
from workers.trainer.configuration import spec as specs
from workers.trainer.jobs import benchmarking

pytestmark = [pytest.mark.trainer, pytest.mark.processes]

CHOICES = ["2", "3", "4"]
ROWS = [{"question": f"{n}+1=", "answer": str(n + 1)} for n in (1, 2, 3)]
TINY_SUMS = {
    "task": "tiny_sums",
    "output_type": "multiple_choice",
    "doc_to_choice": CHOICES,
    "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
}
TINY_WRITTEN = {
    "task": "tiny_written",
    "output_type": "generate_until",
    "generation_kwargs": {"until": ["+"], "max_gen_toks": 4, "do_sample": False},
    "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
}
Benchmark = Callable[..., "subprocess.CompletedProcess[str]"]
needs_lm_eval = pytest.mark.skipif(
    not ON_DEMAND["lm-eval"].is_built(), reason="python3 -m controlplane.setup.bootstrap.on_demand lm-eval"
)


@pytest.fixture
def folder(tmp_path: Path, tiny_model: Path) -> Path:
    shutil.copytree(tiny_model, tmp_path / "r0/1/checkpoints/checkpoint-2")
    tasks = tmp_path / "tasks"
    tasks.mkdir()
    (tasks / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    rows = {
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(tasks / "rows.jsonl")}},
        "test_split": "test",
        "doc_to_text": "{{question}}",
        "doc_to_target": "answer",
    }
    for task in (TINY_SUMS, TINY_WRITTEN):
        (tasks / f"{task['task']}.yaml").write_text(json.dumps({**rows, **task}))
    return tmp_path / "r1/1"


@pytest.fixture
def benchmark(trainer_python: Path, folder: Path, tiny_model: Path) -> Benchmark:
    """benchmark("tiny_sums", "arc_easy"): in the environment that a host gives it; no hub answers."""

    def run(*tasks: str, **settings: Any) -> subprocess.CompletedProcess[str]:
        job = {"kind": BENCHMARK, "start_from": "r0/1/checkpoints/checkpoint-2", "job": {"tasks": tasks, "limit": 2}}
        builders.attempt_folder(folder, model=tiny_model, run=job)
        runs_dir = folder.parents[1]
        host = HostSettings(
            runs_dir,
            "http://127.0.0.1:9",
            trainer_python=str(trainer_python),
            lm_eval_tasks=runs_dir / "tasks",
            **settings,
        )
        source = {
            **os.environ,
            "HF_ENDPOINT": "http://127.0.0.1:9",
            "HF_HUB_OFFLINE": "1",
            "HF_HOME": str(runs_dir / "hf"),
        }
        env = commands.trainer_environment(builders.spec_of(folder), host, source, {"GRPO_SECRET_JUDGE": "key"})
        assert "GRPO_SECRET_JUDGE" not in env
        argv = stack.trainer_argv(folder, commands.programs(host))
        return subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300)

    return run


@needs_lm_eval
def test_a_task_is_done_and_one_whose_data_can_t_be_fetched_says_so(benchmark: Benchmark, folder: Path) -> None:
    done = benchmark("arc_easy", "tiny_sums", "tiny_written")
    assert done.returncode == 0, done.stderr[-3000:]
    result = of_kind(folder, "result")[-1]["data"]
    told = [(each["task"], each["metric"], each["n"]) for each in result["facts"]["results"]]
    assert told == [("tiny_sums", "acc", 2), ("tiny_written", "exact_match", 2)]
    assert all(0 <= each["value"] <= 1 for each in result["facts"]["results"])
    [failed] = result["facts"]["failed"]
    assert failed["task"] == "arc_easy"
    assert "The data of arc_easy can't be fetched from the hub on this host" in result["text"]


def test_an_interpreter_that_is_not_there_is_named(benchmark: Benchmark) -> None:
    done = benchmark("tiny_sums", lm_eval_python="/nowhere/python")
    assert done.returncode == specs.EXIT_SPEC
    assert "GRPO_LM_EVAL_PYTHON is /nowhere/python, but there is no such program" in done.stderr


def test_a_task_is_named_by_a_name(benchmark: Benchmark) -> None:
    assert "is not the name of a benchmark" in benchmark("../x").stderr


def test_each_metric_is_a_result_with_its_error() -> None:
    values = {"alias": "gsm8k", "exact_match,strict-match": 0.5, "exact_match_stderr,strict-match": 0.1, "acc,none": 1}
    document = {"results": {"gsm8k": values}, "n-samples": {"gsm8k": {"original": 9, "effective": 4}}}
    assert benchmarking._results("gsm8k", document) == [
        {"task": "gsm8k", "metric": "exact_match (strict-match)", "value": 0.5, "stderr": 0.1, "n": 4},
        {"task": "gsm8k", "metric": "acc", "value": 1, "stderr": None, "n": 4},
    ]
