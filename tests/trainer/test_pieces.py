"""The trainer's standard-library parts: metrics lines, rewards, the split, samples, the demo's data."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tests.trainer import builders
from workers.contract import FileName, RewardSpec, from_dict
from workers.rewards.library import LIBRARY
from workers.rewards.reward import Params, Reward
from workers.trainer import choices, data, demo, environment, rewards, spec
from workers.trainer.metrics import LineFile
from workers.trainer.samples import Sample, SampleFile


def test_values_that_json_has_no_word_for_are_left_out_and_named(tmp_path: Path) -> None:
    file = LineFile(tmp_path / "m.jsonl")
    file.log(3, {"loss": 0.5, "kl": math.nan, "grad": math.inf, "reward": None, "text": "x", "tokens": 7})
    [line] = builders.lines(tmp_path / "m.jsonl")
    assert line["values"] == {"loss": 0.5, "tokens": 7}
    assert line["dropped"] == ["kl", "grad"]


def test_a_full_disk_loses_lines_and_says_so_once(capsys: pytest.CaptureFixture[str]) -> None:
    file = LineFile(Path("/dev/full"))
    file.log(1, {"loss": 1.0})
    file.log(2, {"loss": 1.0})
    assert file.lost == 2
    assert capsys.readouterr().err.count("No space left") == 1


def test_a_line_after_a_torn_one_can_be_read(tmp_path: Path) -> None:
    file = LineFile(tmp_path / "m.jsonl")
    (tmp_path / "m.jsonl").write_text('{"half')
    file._torn = True
    file.event("stage", stage="x")
    assert json.loads((tmp_path / "m.jsonl").read_text().splitlines()[1])["stage"] == "x"


def test_other_ranks_write_nothing(tmp_path: Path) -> None:
    LineFile(tmp_path / "m.jsonl", writes=False).event("stage", stage="x")
    assert not (tmp_path / "m.jsonl").exists()


def rows_of(tmp_path: Path, **asked: Any) -> data.Rows:
    folder = builders.attempt_folder(tmp_path / "a", model="org/name", **asked)
    return data.read(folder, from_dict_of(folder))


def from_dict_of(folder: Path) -> Any:
    from workers.contract import AttemptSpec

    return from_dict(AttemptSpec, json.loads((folder / FileName.SPEC).read_text()))


def test_a_row_that_a_reward_raises_on_scores_none_and_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fragile(completion: str, row: Any, params: Any) -> float:
        return 1 / len(completion)

    monkeypatch.setitem(LIBRARY, "fragile", Reward("fragile", "", "", fragile, Params, (0.0, 1.0)))
    [function] = rewards.functions([RewardSpec("mine", "fragile")], rows_of(tmp_path))
    told: dict[str, float] = {}
    for _ in range(2):
        assert function(completions=["ab", ""], row=[0, 1], log_metric=told.__setitem__) == [0.5, None]
    assert told == {"rewards/mine/failed": 0.5}
    assert capsys.readouterr().err.count("ZeroDivisionError") == 1


def test_a_reward_sees_the_whole_row_and_the_text_of_a_conversation(tmp_path: Path) -> None:
    [function] = rewards.functions([builders.REWARDS[0]], rows_of(tmp_path))
    answer = builders.rows()[5]["answer"]
    said = [{"role": "assistant", "content": f"<answer>{answer}</answer>"}]
    assert function(completions=[said], row=[5], log_metric=lambda *_: None) == [1.0]
    assert function.__name__ == "accuracy"


def test_the_held_out_rows_are_drawn_by_the_seed_and_not_trained_on() -> None:
    first, second = data.split(list(range(50)), 10, seed=1), data.split(list(range(50)), 10, seed=2)
    assert first == data.split(list(range(50)), 10, seed=1) != second
    assert sorted(first[0] + first[1]) == list(range(50))
    assert len(first[1]) == 10


def test_a_sample_without_any_reward_has_none(tmp_path: Path) -> None:
    rows = rows_of(tmp_path)
    file = SampleFile(tmp_path / "s.jsonl", rows=rows, names=["a", "b"], weights=[1.0, 0.5], writes=True)
    scored, unscored = Sample(3, "x", 2, True, [1.0, 0.5], 0.7), Sample(3, "\ud800", 9, False, [math.nan] * 2, 0.0)
    file.write([scored, unscored], group=2, step=4, mode="train")
    [line] = builders.lines(tmp_path / "s.jsonl")
    assert [one["reward"] for one in line["completions"]] == [1.25, None]
    assert line["completions"][1]["rewards"] == {"a": None, "b": None}


def test_a_hub_id_is_looked_up_only_when_no_earlier_run_has_left_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    assert environment.needs_hub("org/name")
    kept = tmp_path / "models--org--name" / "snapshots" / "abc"
    kept.mkdir(parents=True)
    (kept / "config.json").write_text("{}")
    assert not environment.needs_hub("org/name")
    assert not environment.needs_hub("/models/x")
    assert spec.is_local("./x")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"loss_type": "ppo"}, "loss_type must be one of grpo"),
        ({"temperature": 0}, "temperature must be above 0"),
        ({"top_p": 1.5}, "top_p must be at most 1"),
        ({"num_iterations": 0}, "num_iterations must be at least 1"),
        ({"scale_rewards": True, "beta": 0.1}, None),
    ],
)
def test_what_trl_would_stumble_over_later_is_found_at_once(settings: dict[str, Any], words: str | None) -> None:
    assert (choices.problem(settings) or "")[: len(words or "")] == (words or "")


def test_the_demo_has_a_few_hundred_different_problems_with_right_answers() -> None:
    problems = demo.problems(400, seed=3)
    assert len({problem["question"] for problem in problems}) == 400
    assert problems == demo.problems(400, seed=3) != demo.problems(400, seed=4)
    sums = [p for p in problems if p["question"].startswith("What is ")]
    assert sums
    assert all(str(eval(p["question"].removeprefix("What is ").rstrip("?"))) == p["answer"] for p in sums)


def test_the_demos_rewards_are_in_the_library() -> None:
    for reward in demo.CONFIG["rewards"]:
        assert LIBRARY[reward["function"]].check(reward["params"]) == []
