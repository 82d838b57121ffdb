"""Real TRL with dynamic sampling and prompts by difficulty: what is trained on, what is told, who waits."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.running_vllm import RunningVllm
from tests.trainer import builders
from tests.trainer import test_episodes as episodes
from tests.trainer.conftest import Start, Train
from tests.trainer.preloaded import Preloaded
from tests.trainer.test_lora_swap import sampling
from workers.contract.run.episodes import TURNS_MEAN
from workers.contract.run.hardware import Rollout, ServerSpec, WeightSync
from workers.contract.run.prompts import DRAWN_WITHOUT, EXTRA_ROUNDS, REPLACED, WITHOUT_SPREAD, PromptsSpec
from workers.contract.run.spec import LoraSpec, RewardSpec
from workers.contract.wire.names import FileName

pytestmark = [pytest.mark.trainer, pytest.mark.processes]

OVERLAP = (RewardSpec("overlap", "token_f1"),)
BOTH = PromptsSpec(extra_rounds=8, by_difficulty=True)
TWO_RANKS = {"processes": 2, "strategy": "ddp"}


def dataset(dead: int) -> list[dict[str, Any]]:
    """40 problems; no completion of the first `dead` of every ten scores anything."""
    possible = "a e i o 0 1 2 3 4 5 6 7 8 9 < > = answer think"
    return [{**row, "answer": "qqqqqqqq" if row["row"] % 10 < dead else possible} for row in builders.rows(40)]


def attempt(folder: Path, model: Path, *, prompts: PromptsSpec = BOTH, dead: int = 7, **other: Any) -> Path:
    asked = {"rewards": OVERLAP, "dataset": dataset(dead), **other}
    run = {"prompts": prompts, **asked.pop("run", {})}
    return builders.attempt_folder(folder, model=model, run=run, **asked)


def groups(folder: Path, mode: str) -> list[dict[str, Any]]:
    return [group for group in builders.lines(folder / FileName.SAMPLES) if group["mode"] == mode]


def rewards(group: dict[str, Any]) -> set[float]:
    return {completion["reward"] for completion in group["completions"]}


def bare(logs: dict[int, dict[str, float]]) -> dict[int, dict[str, float]]:
    """What TRL logs."""
    return {step: {k: v for k, v in of.items() if not k.startswith("prompts/")} for step, of in logs.items()}


def test_groups_without_spread_are_replaced_and_what_was_left_out_is_told(
    tiny_model: Path, tmp_path: Path, train: Train
) -> None:
    folder = attempt(tmp_path / "a", tiny_model, grpo={"per_device_train_batch_size": 16, "max_steps": 5})
    done = train(folder)
    assert done.returncode == 0, done.stderr[-2000:]
    logged, trained, replaced = builders.logs(folder), groups(folder, "train"), groups(folder, REPLACED)
    assert Counter(group["step"] for group in trained) == dict.fromkeys(logged, 4)
    flat = [group["step"] for group in trained if len(rewards(group)) == 1]
    for step, of in logged.items():
        assert of[WITHOUT_SPREAD] == of["frac_reward_zero_std"] == flat.count(step) / 4
        assert len({group["row"] for group in trained if group["step"] == step}) == 4
    assert replaced
    assert len(flat) < len(trained) / 4
    assert max(of[DRAWN_WITHOUT] for of in logged.values()) > 0.5
    tokens = [one["tokens"] for group in trained if group["step"] == 5 for one in group["completions"]]
    assert logged[5]["completions/mean_length"] == pytest.approx(sum(tokens) / len(tokens))


def test_where_every_group_has_spread_nothing_changes(tiny_model: Path, tmp_path: Path, train: Train) -> None:
    asked = {"rewards": builders.REWARDS, "grpo": {"num_iterations": 2, "eval_strategy": "steps", "eval_steps": 2}}
    off = attempt(tmp_path / "off", tiny_model, prompts=PromptsSpec(), eval_rows=4, **asked)
    on = attempt(tmp_path / "on", tiny_model, prompts=PromptsSpec(extra_rounds=2), eval_rows=4, **asked)
    assert train(off).returncode == train(on).returncode == 0
    assert bare(builders.logs(on)) == builders.logs(off)
    assert [rewards(group) for group in groups(on, "eval")] == [rewards(group) for group in groups(off, "eval")]


def test_a_run_resumed_between_two_generations_draws_the_same_prompts(
    tiny_model: Path, tmp_path: Path, train: Train
) -> None:
    asked = {"grpo": {"max_steps": 9, "save_steps": 1, "num_iterations": 2}}
    whole = attempt(tmp_path / "whole", tiny_model, **asked)
    assert train(whole).returncode == 0
    for step in (4, 5):  # after the last use of a generation, and before it
        checkpoint = str(whole / f"checkpoints/checkpoint-{step}")
        rest = attempt(tmp_path / f"rest-{step}", tiny_model, resume_from=checkpoint, **asked)
        assert train(rest).returncode == 0
        assert builders.logs(rest) == {at: of for at, of in builders.logs(whole).items() if at > step}


@pytest.mark.parametrize("dead", [7, 10])
def test_two_ranks_go_on_though_one_or_both_have_no_group_with_spread(
    tiny_model: Path, tmp_path: Path, train: Train, dead: int
) -> None:
    # A group of four over two ranks that have three completions each
    grpo = {"per_device_train_batch_size": 3, "gradient_accumulation_steps": 4, "max_steps": 4}
    folder = attempt(tmp_path / "a", tiny_model, dead=dead, hardware=TWO_RANKS, grpo=grpo)
    done = train(folder)
    assert done.returncode == 0, done.stderr[-2000:]
    logged = builders.logs(folder)
    assert sorted(logged) == [1, 2, 3, 4]
    assert all(len(group["completions"]) == 4 for group in builders.lines(folder / FileName.SAMPLES))
    if dead == 10:
        assert {of[WITHOUT_SPREAD] for of in logged.values()} == {1.0}
        assert {of[EXTRA_ROUNDS] for of in logged.values()} == {6.0}, "no prompt is tried twice for one batch"
    else:
        assert sum(of[WITHOUT_SPREAD] for of in logged.values()) < 2


def test_the_spread_of_a_named_component_may_count(tiny_model: Path, tmp_path: Path, train: Train) -> None:
    components = (*OVERLAP, RewardSpec("variety", "unique_chars_normalised"))
    prompts = PromptsSpec(extra_rounds=8, spread_in="overlap")
    folder = attempt(tmp_path / "a", tiny_model, prompts=prompts, rewards=components)
    assert train(folder).returncode == 0
    logged = builders.logs(folder)
    assert {of["frac_reward_zero_std"] for of in logged.values()} == {0.0}, "the total always has spread"
    assert any(of[DRAWN_WITHOUT] > of[WITHOUT_SPREAD] for of in logged.values())


def test_fresh_prompts_come_from_the_same_server(
    tiny_model: Path, tmp_path: Path, train: Train, preloaded: Preloaded
) -> None:
    with sampling(preloaded, tiny_model) as server:
        server.ready()
        folder = attempt(tmp_path / "a", tiny_model, **served(server), grpo={"max_steps": 3})
        done = train(folder)
    assert done.returncode == 0, done.stderr[-2000:]
    logged = builders.logs(folder)
    assert any(of[DRAWN_WITHOUT] > of[WITHOUT_SPREAD] for of in logged.values())
    assert all(of["sampling/sampling_logp_difference/max"] < 1e-4 for of in logged.values())


def test_episodes_are_replaced_with_their_turns(calling_model: Path, tmp_path: Path, start: Start) -> None:
    rows = [{**row, "answer": possible["answer"]} for row, possible in zip(episodes.chats(), dataset(7), strict=True)]
    run, grpo = {"prompts": PromptsSpec(extra_rounds=6)}, {"temperature": 1.5}
    folder = episodes.attempt(tmp_path / "a", calling_model, run=run, dataset=rows, rewards=OVERLAP, grpo=grpo)
    episodes.played(start, folder)
    logged, trained, replaced = builders.logs(folder), groups(folder, "train"), groups(folder, REPLACED)
    assert any(of[DRAWN_WITHOUT] > of[WITHOUT_SPREAD] for of in logged.values())
    for group in (*trained, *replaced):
        assert all(one["turns"] for one in group["completions"])
    for step, of in logged.items():
        turns = [count(one) for group in trained if group["step"] == step for one in group["completions"]]
        assert of[TURNS_MEAN] == pytest.approx(sum(turns) / len(turns))


def count(completion: dict[str, Any]) -> int:
    return sum(turn["role"] == "assistant" for turn in completion["turns"])


def served(server: RunningVllm) -> dict[str, Any]:
    hardware = {"rollout": Rollout.SERVER, "server": ServerSpec(weight_sync=WeightSync.LORA, request_timeout_s=60)}
    return {"hardware": hardware, "placement": {"ports": [server.port]}, "run": {"lora": LoraSpec(r=8, alpha=16)}}
