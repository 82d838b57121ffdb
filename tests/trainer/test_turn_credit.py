"""Trainings with rewards that score each turn, on one rank and on two."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.trainer import builders
from tests.trainer.conftest import Start
from tests.trainer.reward_runs import KEY, Ended, trained
from tests.workers.rewards.judge_server import JudgeServer
from workers.contract.run.episodes import EpisodeLimits, EpisodeSpec, PartSpec, turn_reward
from workers.contract.run.spec import RewardSpec
from workers.contract.wire.names import FileName
from workers.rewards.advantages import advantages

pytestmark = [pytest.mark.trainer, pytest.mark.processes]

EACH = RewardSpec("variety", "unique_chars_normalised", 0.5, per_turn=True)
RANKED = RewardSpec(
    "ranked",
    "judge_ranking",
    0.1,
    {"endpoint": "JUDGE", "model": "a-model", "criterion": "Be judged: [says=Ranking: 1 > 2 > 3 > 4]"},
)
"""By a server that prefers what it is shown first."""
VARIED = RewardSpec("whole", "unique_chars_normalised")
CHATS = [{**row, "prompt": [{"role": "user", "content": row["prompt"]}]} for row in builders.rows(16)]
PLAYED = EpisodeSpec(
    "Echo", 1, (PartSpec("echo", "echo", {"rounds": 2}),), EpisodeLimits(turns=3), turn_advantage_coef=0.7
)

WITH_GAMES = """
import sys
from tests.trainer import playing
from workers.trainer.configuration import ranks
from workers.environments.library import LIBRARY
LIBRARY.update({entry.key: entry for entry in playing.ENTRIES})
own, module = ranks.torchrun_arguments, {"workers.trainer": "tests.trainer.playing"}
ranks.torchrun_arguments = lambda *told: [module.get(part, part) for part in own(*told)]
sys.exit(playing.train(sys.argv[1:]))
"""
"""A start of the trainer whose ranks know the games of tests too."""


def played(start: Start, folder: Path, model: Path, **asked: Any) -> Ended:
    """Two steps of two turns each, in a game that answers whatever the model writes."""
    asked = {"dataset": CHATS, "rewards": (VARIED, EACH), "run": {"episodes": PLAYED}, **asked}
    asked["grpo"] = {"max_steps": 2, "max_completion_length": 40, "num_iterations": 2, **asked.get("grpo", {})}
    made = builders.attempt_folder(folder, model=model, **asked)
    ended = trained(start, made, "-c", WITH_GAMES)
    assert ended.code == 0, ended.err[-3000:]
    return ended


def written(group: dict[str, Any], number: int, name: str) -> list[Any]:
    """What stands in the messages of the model's turn `number`; None where an episode has fewer turns."""
    own = [[one for one in each["turns"] if one["role"] == "assistant"] for each in group["completions"]]
    return [turns[number][name] if number < len(turns) else None for turns in own]


def check_group(group: dict[str, Any], coef: float) -> int:
    """The messages' advantages are the outcome's and their turn's. How many turns there were."""
    outcomes = [each["advantage"] for each in group["completions"]]
    count = max(len(each["turns"]) for each in group["completions"])
    for number in range(count):
        rewards = written(group, number, "reward")
        turns = advantages([rewards], [1.0], len(rewards)).advantages
        for told, outcome, turn in zip(written(group, number, "advantage"), outcomes, turns, strict=True):
            assert told is None or told == pytest.approx(outcome + coef * turn, abs=1e-5)
    return sum(reward is not None for number in range(count) for reward in written(group, number, "reward"))


@pytest.mark.parametrize("processes", [1, 2])
def test_each_turn_is_scored_and_credited_by_itself(
    processes: int, tiny_model: Path, tmp_path: Path, start: Start
) -> None:
    """A rank's batch of 2 holds half a group: turns are compared over ranks."""
    asked = {"hardware": {"processes": 2, "strategy": "ddp"}, "grpo": {"per_device_train_batch_size": 2}}
    ended = played(start, tmp_path / "a", tiny_model, **(asked if processes == 2 else {}))
    groups = builders.lines(ended.folder / FileName.SAMPLES)
    assert sum(check_group(group, PLAYED.turn_advantage_coef) for group in groups) > 4
    [first, _] = builders.logs(ended.folder).values()
    assert first["rewards/variety/mean"] == pytest.approx(0.5, abs=0.5)
    assert first["reward"] == pytest.approx(first["rewards/whole/mean"])
    assert turn_reward(1) in first


def test_a_judge_ranks_whole_groups_of_two_ranks(
    tiny_model: Path, tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    with JudgeServer() as server:
        monkeypatch.setenv("GRPO_SECRET_JUDGE", json.dumps({"address": server.address, "key": KEY}))
        asked = {"hardware": {"processes": 2, "strategy": "ddp"}, "rewards": (VARIED, RANKED)}
        grpo = {"max_steps": 1, "per_device_train_batch_size": 2}
        made = builders.attempt_folder(tmp_path / "a", model=tiny_model, grpo=grpo, **asked)
        ended = trained(start, made)
        assert (ended.code, len(server.asked)) == (0, 1), ended.err[-2000:]
    scores = sorted(each["rewards"]["ranked"] for each in ended.completions)
    assert scores == pytest.approx([0, 1 / 3, 2 / 3, 1])


def test_where_only_turns_are_scored_the_outcome_adds_nothing(tiny_model: Path, tmp_path: Path, start: Start) -> None:
    """Without an environment: each completion is one turn."""
    made = builders.attempt_folder(tmp_path / "a", model=tiny_model, rewards=(EACH,), grpo={"max_steps": 2})
    assert trained(start, made).code == 0
    logs = builders.logs(made)
    assert (
        logs[1][turn_reward(1)]
        == pytest.approx(logs[1]["reward"])
        == pytest.approx(0.5 * logs[1]["rewards/variety/mean"])
    )
    assert logs[1]["grad_norm"] > 0
