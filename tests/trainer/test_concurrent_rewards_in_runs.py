"""Real trainings whose rewards begin beside generation: the same as without, and recorded as an overlap."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks import beside as bench
from tests.fakes.running_vllm import RunningVllm
from tests.trainer import builders
from tests.trainer import test_episodes as episodes
from tests.trainer.conftest import Start
from workers.contract.reports.waterfall import REWARD, Span, overlap, read
from workers.contract.run.hardware import Rollout, ServerSpec, Strategy, WeightSync
from workers.contract.run.overlapping import AHEAD_SECONDS
from workers.contract.run.spec import LoraSpec, RewardSpec
from workers.contract.wire.names import EventKind, FileName

pytestmark = [pytest.mark.trainer, pytest.mark.processes]

JUDGE = RewardSpec("judge", "judge", params={"endpoint": "JUDGE", "model": "m", "rubric": "{completion}"})
CODE = RewardSpec("code", "python_syntax", params={"needs_block": False})
PACE = "one_by_one:0.3"


def trained(
    start: Start, folder: Path, model: Path, *, on: bool, processes: int = 1, ahead: bool = False
) -> dict[str, Any]:
    allowed = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1", "FAKE_VLLM_LIFETIME": "280", "FAKE_VLLM": PACE}
    with bench.Judge(0.2) as judge, RunningVllm(*bench.LORA, name="r1-1", **allowed) as server:
        hardware = {"rollout": Rollout.SERVER, "server": ServerSpec(weight_sync=WeightSync.LORA)}
        if processes > 1:
            hardware |= {"processes": processes, "strategy": Strategy.DDP}
        builders.attempt_folder(
            folder,
            model=model,
            grpo={"per_device_train_batch_size": 16 // processes, "max_steps": 2, "save_strategy": "no", "beta": 0.0},
            hardware=hardware,
            placement={"ports": [server.ready().port]},
            rewards=(JUDGE, CODE, builders.REWARDS[-1]),
            run={"lora": LoraSpec(r=8, alpha=16), "rewards_beside": on, "ahead": ahead},
        )
        trainer = start("-m", "workers.trainer", folder, GRPO_SECRET_JUDGE=judge.endpoint)
        _, stderr = trainer.communicate()
        judge.shutdown()
    assert trainer.returncode == 0, stderr
    samples = [{**line, "t": 0} for line in builders.lines(folder / FileName.SAMPLES)]
    logs = {step: values | {AHEAD_SECONDS: 0.0} for step, values in builders.logs(folder).items()}
    return {"logs": logs, "samples": samples}


def judged_beside(folder: Path) -> float:
    """Seconds of the training in which the judge worked while the server generated."""
    lines = [line for line in builders.lines(folder / FileName.METRICS) if line["kind"] == EventKind.SPANS]
    steps: list[list[Span]] = [read(line["data"]) for line in lines]
    assert steps, json.dumps(lines)
    return sum(
        overlap([one for one in spans if one.lane == f"{REWARD}judge"], [one for one in spans if one.lane == "vllm"])
        for spans in steps
    )


def test_a_training_is_the_same_with_rewards_beside_generation(start: Start, tiny_model: Path, tmp_path: Path) -> None:
    without, with_ = (trained(start, tmp_path / name, tiny_model, on=name == "on") for name in ("off", "on"))
    assert with_["samples"] == without["samples"]
    assert with_["logs"] == without["logs"]
    assert {reward for line in with_["samples"] for one in line["completions"] for reward in one["rewards"]} == {
        *("judge", "code", "variety")
    }
    assert judged_beside(tmp_path / "off") == 0
    assert judged_beside(tmp_path / "on") > 0


def test_a_training_one_step_ahead_is_the_same_with_rewards_beside_generation(
    start: Start, tiny_model: Path, tmp_path: Path
) -> None:
    without, with_ = (
        trained(start, tmp_path / name, tiny_model, on=name == "on", ahead=True) for name in ("off", "on")
    )
    assert with_["samples"] == without["samples"]
    assert with_["logs"] == without["logs"]


def test_two_ranks_are_given_the_scores_of_the_first(start: Start, tiny_model: Path, tmp_path: Path) -> None:
    without, with_ = (
        trained(start, tmp_path / name, tiny_model, on=name == "on", processes=2) for name in ("off", "on")
    )
    assert with_["samples"] == without["samples"]
    assert with_["logs"] == without["logs"]
    assert judged_beside(tmp_path / "on") > 0


EPISODES_END = """
import json
from types import SimpleNamespace as Any_
from workers.trainer.episodes.episode import Episode, ModelTurn
from workers.trainer.episodes.rollout import Rollouts
from workers.trainer.scoring.groups import GroupFeed

begun = []
rollouts = object.__new__(Rollouts)
said = [ModelTurn(0, 1, {"content": "a"})]
rollouts.episodes = [Episode({"row": row}, 0, ids=[row], turns=said) for row in (5, 5, 6, 6, 7)]
model = Any_(training=True)
ranks = Any_(process_index=1, num_processes=2, is_main_process=False)
trainer = Any_(num_generations=2, model=model, accelerator=ranks)
beside = Any_(begin=lambda made, rows: begun.append([row["row"] for row in rows]))
groups = GroupFeed(trainer, beside, Any_(by_id={row: {"row": row} for row in (5, 6, 7)}), episodes=rollouts)
groups.note([5, 5, 6, 6, 7])
for ended in ([0], [2], [1, 3], [4], []):
    for place in ended:
        rollouts.episodes[place].end = "eos"
    rollouts.after_turn()
    begun.append(None)
model.training = False
groups.note([5, 5, 6, 6, 7])
rollouts.after_turn()
print(json.dumps(begun))
"""
"""The second of two ranks: its first completion is the last of a group that the first rank began with."""


def test_a_group_of_episodes_begins_when_its_last_one_has_ended(start: Start) -> None:
    process = start("-c", EPISODES_END)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    # Rank 1's five completions: 5 | 5 6 | 6 7 of groups of two, of which the first is another rank's, too.
    assert json.loads(out.splitlines()[-1]) == [None, None, [5, 6], None, [6, 7], None, None]


def test_episodes_are_scored_the_same_beside_their_generation(
    start: Start, calling_model: Path, tmp_path: Path
) -> None:
    grpo = {"max_steps": 1, "temperature": 1.2, "max_completion_length": 90}
    for name in ("off", "on"):
        run = {"rewards_beside": name == "on"}
        folder = episodes.attempt(tmp_path / name, calling_model, grpo=grpo, rewards=(CODE, *episodes.REWARDS), run=run)
        episodes.played(start, folder)
    logs = [builders.logs(tmp_path / name)[1] for name in ("on", "off")]
    timed = {name for name in logs[0] if name.endswith("_s") or "/seconds/" in name}
    assert {**logs[0], **dict.fromkeys(timed)} == {**logs[1], **dict.fromkeys(timed)}
    kept = [[{**line, "t": 0} for line in builders.lines(tmp_path / name / FileName.SAMPLES)] for name in ("on", "off")]
    told = [json.loads(json.dumps(one), object_hook=lambda made: {**made, "seconds": 0}) for one in kept]
    assert told[0] == told[1]
