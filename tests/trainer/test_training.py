"""Real TRL on the CPU: a folder is trained, stopped with a save, resumed, on one rank and on two."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.listening import tcp_addresses
from tests.trainer import builders
from tests.trainer.conftest import Start, StartAnew, Train
from tests.trainer.preloaded import Process
from tests.waiting import LIMIT_S
from workers.contract.run import evaluation
from workers.contract.run.spec import LoraSpec
from workers.contract.wire.names import FileName
from workers.supervisor.inputs import checkpoints
from workers.supervisor.processes.folder import AttemptFolder
from workers.supervisor.processes.witnesses import activities
from workers.supervisor.reports.trainerlines import trainer_line

pytestmark = [pytest.mark.trainer, pytest.mark.processes]

FOREVER = 100_000


def until(condition: Callable[[], bool], process: Process | subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert process.poll() is None, process.communicate()[1][-2000:]
        assert time.monotonic() < deadline
        time.sleep(0.02)


def last_step(folder: Path) -> int:
    return max(builders.logs(folder), default=0)


def of_kind(folder: Path, kind: str) -> list[dict]:
    return [line for line in builders.lines(folder / FileName.METRICS) if line["kind"] == kind]


@pytest.mark.telling
def test_a_folder_is_trained_and_leaves_metrics_samples_and_the_last_checkpoint(
    tiny_model: Path, tmp_path: Path, train: Train
) -> None:
    grpo = {"num_iterations": 2, "eval_strategy": "steps", "eval_steps": 2}
    folder = builders.attempt_folder(tmp_path / "a", model=tiny_model, grpo=grpo, eval_rows=4)
    done = train(folder)
    assert done.returncode == 0, done.stderr[-2000:]

    logged = builders.logs(folder)
    assert sorted(logged) == [1, 2, 3, 4]
    assert {"reward", "rewards/accuracy/mean", "rewards/variety/mean", "kl", "num_tokens"} <= logged[1].keys()
    assert logged[1]["mean_ratio"] == 1.0
    assert logged[2]["mean_ratio"] != 1.0
    assert any("eval_reward" in line["data"] for line in of_kind(folder, "train"))
    saved = folder / "checkpoints/checkpoint-4"
    assert (saved / "model.safetensors").is_file()
    size = sum(path.stat().st_size for path in saved.rglob("*") if path.is_file())
    wrote = json.loads((saved / "versions.json").read_text())
    told = {"step": 4, "path": "checkpoints/checkpoint-4", "bytes": size, "kept": [4], "versions": wrote}
    assert [line["data"] for line in of_kind(folder, "checkpoint")] == [told]
    checkpoints.check(saved, builders.spec_of(folder).run)
    assert [line["data"] for line in of_kind(folder, "training")] == [{"max_steps": 4, "step": 0}]
    assert [line["data"] for line in of_kind(folder, "trained")] == [{"how": "completed"}]
    assert all(trainer_line(line) for line in (folder / FileName.METRICS).read_bytes().splitlines())
    samples_agree_with_metrics(folder, logged)
    the_parts_of_each_step_make_up_its_time(folder)
    (activity,) = activities(AttemptFolder(folder))
    assert (activity.rank, activity.doing) == (0, ())
    assert activity.steps_since > 0, "no evaluation or save was recorded"


def test_a_checkpoint_is_written_every_epoch_and_at_the_last_step_once(
    tiny_model: Path, tmp_path: Path, train: Train
) -> None:
    grpo = {"max_steps": 3, "save_strategy": "epoch"}
    folder = builders.attempt_folder(tmp_path / "a", model=tiny_model, grpo=grpo, dataset=builders.rows(4))
    assert train(folder).returncode == 0
    assert [line["data"]["step"] for line in of_kind(folder, "checkpoint")] == [2, 3]


def samples_agree_with_metrics(folder: Path, logged: dict[int, dict[str, float]]) -> None:
    groups = [line for line in builders.lines(folder / FileName.SAMPLES) if line["mode"] == "train"]
    assert {group["step"] for group in groups} == {1, 3}  # two iterations on each generation
    first = [one for group in groups if group["step"] == 1 for one in group["completions"]]
    assert len(first) == 8
    assert sum(one["reward"] for one in first) / 8 == pytest.approx(logged[1]["reward"])
    assert sum(one["tokens"] for one in first) / 8 == logged[1]["completions/mean_length"]
    assert sum(not one["ended"] for one in first) / 8 == logged[1]["completions/clipped_ratio"]
    rows = {row["row"]: row for row in builders.rows()}
    assert all(group["prompt"] == rows[group["row"]]["prompt"] for group in groups)


def the_parts_of_each_step_make_up_its_time(folder: Path) -> None:
    steps = {line["step"]: line["data"] for line in of_kind(folder, "train") if "loss" in line["data"]}
    of = {step: {n: v for n, v in values.items() if n.startswith("time/")} for step, values in steps.items()}
    each = {n: v for n, v in of[1].items() if n.startswith("time/rewards/")}
    assert each.keys() == {f"time/rewards/{reward.name}_s" for reward in builders.REWARDS}
    assert sum(each.values()) < of[1]["time/rewards_s"]
    of = {step: {n: v for n, v in parts.items() if n not in each} for step, parts in of.items()}
    generates = {"time/generation_s", "time/rewards_s", "time/logps_s", "time/update_s"}
    assert {step: set(parts) for step, parts in of.items()} == {
        1: generates,
        2: {"time/update_s"},  # two iterations on each generation
        3: generates,
        4: {"time/update_s"},
    }
    for step, parts in of.items():
        # The optimizer's own work comes on top of what TRL calls the step's time.
        assert 0.5 * steps[step]["step_time"] < sum(parts.values()) < steps[step]["step_time"] + 1
        assert min(parts.values()) > 0
    assert not any("time/" in name for line in of_kind(folder, "train") for name in line["data"] if "eval" in name)


def test_the_best_checkpoint_is_kept_beside_the_newest(tiny_model: Path, tmp_path: Path, train: Train) -> None:
    grpo = {"max_steps": 6, "save_steps": 1, "save_total_limit": 1}
    folder = builders.attempt_folder(tmp_path / "a", model=tiny_model, grpo=grpo, run={"keep_best": "reward"})
    assert train(folder).returncode == 0
    rewards = [values["reward"] for _, values in sorted(builders.logs(folder).items())]
    figures = {step: evaluation.checkpoint_figure("reward", rewards[:step]) or 0.0 for step in range(1, 7)}
    winner = max(figures, key=lambda step: (figures[step], -step))
    kept = of_kind(folder, "checkpoint")[-1]["data"]["kept"]
    assert kept == sorted({winner, 6}) if winner != 6 else kept == [5, 6]
    assert sorted(int(path.name[11:]) for path in folder.glob("checkpoints/checkpoint-*")) == kept
    state = json.loads((folder / "checkpoints/checkpoint-6/trainer_state.json").read_text())
    assert state["best_metric"] == pytest.approx(figures[winner])
    assert state["best_model_checkpoint"] == str(folder / f"checkpoints/checkpoint-{winner}")


@pytest.mark.parametrize("lora", [None, LoraSpec(r=4, target_modules=("q_proj", "v_proj"))])
def test_a_run_starts_with_the_weights_of_another_ones_checkpoint(
    tiny_model: Path, tmp_path: Path, train: Train, lora: LoraSpec | None
) -> None:
    first = tmp_path / "r0/1"
    builders.attempt_folder(first, model=tiny_model, grpo={"max_steps": 2, "learning_rate": 1e-2}, run={"lora": lora})
    assert train(first).returncode == 0
    start_from = "r0/1/checkpoints/checkpoint-2"
    checkpoints.check_weights(tmp_path / start_from, builders.spec_of(first).run)
    second, still = tmp_path / "r1/1", {"max_steps": 1, "learning_rate": 0.0, "beta": 0.02}
    builders.attempt_folder(second, model=tiny_model, grpo=still, run={"lora": lora, "start_from": start_from})
    assert train(second).returncode == 0
    name = "adapter_model.safetensors" if lora else "model.safetensors"
    weights = [path.read_bytes() for path in (tmp_path / start_from / name, second / "checkpoints/checkpoint-1" / name)]
    assert weights[0] == weights[1]
    assert builders.logs(second)[1]["kl"] > 0  # against the model, not the checkpoint


def test_a_run_resumed_between_two_generations_of_its_second_epoch_goes_on_bit_for_bit(
    tiny_model: Path, tmp_path: Path, train: Train
) -> None:
    asked = {
        "model": tiny_model,
        "dataset": builders.rows(8),  # six to train on: six steps an epoch
        "eval_rows": 2,
        "grpo": {"max_steps": 13, "save_steps": 1, "num_iterations": 2, "eval_strategy": "steps", "eval_steps": 3},
    }
    whole = builders.attempt_folder(tmp_path / "whole", **asked)
    assert train(whole).returncode == 0
    checkpoint = whole / "checkpoints/checkpoint-9"
    rest = builders.attempt_folder(tmp_path / "rest", resume_from=str(checkpoint), **asked)
    assert train(rest).returncode == 0
    expected = {step: values for step, values in builders.logs(whole).items() if step > 9}
    assert builders.logs(rest) == expected


def test_the_stop_file_ends_the_training_with_a_checkpoint_of_that_step(
    tiny_model: Path, tmp_path: Path, start: Start
) -> None:
    folder = builders.attempt_folder(tmp_path / "a", model=tiny_model, grpo={"max_steps": FOREVER})
    process = start("-m", "workers.trainer", folder)
    until(lambda: last_step(folder) >= 2, process)
    (folder / FileName.STOP).touch()
    assert process.wait(timeout=60) == 0
    step = last_step(folder)
    assert of_kind(folder, "checkpoint")[-1]["step"] == step
    end = of_kind(folder, "trained")[-1]
    assert (end["step"], end["data"]) == (step, {"how": "stopped"})
    state = json.loads((folder / f"checkpoints/checkpoint-{step}/trainer_state.json").read_bytes())
    assert state["global_step"] == step


@pytest.mark.telling
def test_a_run_stopped_with_a_save_and_resumed_goes_on_as_if_it_had_not_been_stopped(
    tiny_model: Path, tmp_path: Path, start: Start, train: Train
) -> None:
    def asked(max_steps: int) -> dict[str, object]:
        return {"model": tiny_model, "grpo": {"max_steps": max_steps, "num_iterations": 2}}

    stopped = builders.attempt_folder(tmp_path / "stopped", **asked(FOREVER))
    process = start("-m", "workers.trainer", stopped)
    until(lambda: last_step(stopped) >= 3, process)
    (stopped / FileName.STOP).touch()
    assert process.wait(timeout=60) == 0
    step = last_step(stopped)

    checkpoint = str(stopped / f"checkpoints/checkpoint-{step}")
    rest = builders.attempt_folder(tmp_path / "rest", resume_from=checkpoint, **asked(step + 3))
    assert train(rest).returncode == 0
    whole = builders.attempt_folder(tmp_path / "whole", **asked(step + 3))
    assert train(whole).returncode == 0
    assert sorted(builders.logs(rest)) == [step + 1, step + 2, step + 3]
    assert builders.logs(stopped) | builders.logs(rest) == builders.logs(whole)


def test_a_stop_that_comes_in_the_last_step_stops_nothing(tiny_model: Path, tmp_path: Path, train: Train) -> None:
    folder = builders.attempt_folder(tmp_path / "a", model=tiny_model, grpo={"max_steps": 1})
    (folder / FileName.STOP).touch()
    assert train(folder).returncode == 0
    assert of_kind(folder, "trained")[-1]["data"]["how"] == "completed"


def test_a_sigterm_saves_nothing(tiny_model: Path, tmp_path: Path, start: Start) -> None:
    folder = builders.attempt_folder(tmp_path / "a", model=tiny_model, grpo={"max_steps": FOREVER})
    process = start("-m", "workers.trainer", folder)
    until(lambda: last_step(folder) >= 1, process)
    process.terminate()
    assert process.wait(timeout=30) == -15
    assert not of_kind(folder, "checkpoint")
    assert not of_kind(folder, "trained")


def test_two_ranks_stop_in_the_middle_of_a_step_with_one_checkpoint_of_both(
    tiny_model: Path, tmp_path: Path, start_anew: StartAnew, train: Train
) -> None:
    asked = {
        "model": tiny_model,
        "hardware": {"processes": 2, "strategy": "ddp"},
        "grpo": {"per_device_train_batch_size": 4, "num_iterations": 2},
    }
    folder = builders.attempt_folder(tmp_path / "a", **{**asked, "grpo": {**asked["grpo"], "max_steps": FOREVER}})
    process = start_anew("-m", "workers.trainer", folder)
    until(lambda: last_step(folder) >= 2, process)
    assert tcp_addresses(process.pid) == {"127.0.0.1"}, "whoever reaches another address could join the ranks"
    (folder / FileName.STOP).touch()
    assert process.wait(timeout=90) == 0
    step = last_step(folder)
    checkpoint = folder / f"checkpoints/checkpoint-{step}"
    assert {"rng_state_0.pth", "rng_state_1.pth"} <= {path.name for path in checkpoint.iterdir()}
    groups = builders.lines(folder / FileName.SAMPLES)
    assert {len(group["completions"]) for group in groups} == {4}
    assert len({group["row"] for group in groups if group["step"] == 1}) == 2  # a group from each rank

    more = {**asked["grpo"], "max_steps": step + 2}
    rest = builders.attempt_folder(tmp_path / "b", **{**asked, "grpo": more}, resume_from=str(checkpoint))
    assert train(rest).returncode == 0
    assert sorted(builders.logs(rest)) == [step + 1, step + 2]
