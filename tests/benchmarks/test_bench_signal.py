"""`bench signal`: how it reckons. The trainings themselves are tested with the trainer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks.signal_ import DEAD, HELD_OUT, IMPOSSIBLE, TRAINED_ON, Pair, Training, rows, summary
from workers.contract.run.prompts import REPLACED, WITHOUT_SPREAD
from workers.contract.wire.names import FileName


def training(folder: Path, solved: Sequence[float], *, dead: float, modes: Sequence[str] = ("train",)) -> Training:
    """An evaluation every five steps; each step has a group of ten tokens in each mode."""
    folder.mkdir()
    steps = range(1, 5 * len(solved) + 1)
    metrics = [{"step": step, "data": {WITHOUT_SPREAD: dead, "frac_reward_zero_std": dead}} for step in steps]
    metrics += [{"step": 5 * at, "data": {"eval_reward": one}} for at, one in enumerate(solved, 1)]
    groups = [{"step": step, "mode": mode, "completions": [{"tokens": 10}]} for step in steps for mode in modes]
    for name, lines in ((FileName.METRICS, metrics), (FileName.SAMPLES, groups)):
        (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return Training(folder)


def test_what_counts_is_up_to_the_middle_of_the_evaluations_that_reach_the_target(tmp_path: Path) -> None:
    without = training(tmp_path / "a", [0.3, 0.3, 0.6, 0.4, 0.6, 0.7], dead=0.7)
    chosen = training(tmp_path / "b", [0.5, 0.6, 0.6], dead=0.01, modes=("train", REPLACED, "eval"))
    figures = Pair(without, chosen, most=30).figures(0.55)
    assert (figures["steps"], figures["tokens"]) == ([25, 10], [250, 200])
    assert (figures["steps_ratio"], figures["tokens_ratio"]) == (0.4, 0.8)
    assert (figures["dead_groups_percent"], figures["dead_groups_percent_without"]) == (1.0, 70.0)


def test_a_training_that_never_reaches_the_target_counts_all_its_steps_and_is_told(tmp_path: Path) -> None:
    without = training(tmp_path / "a", [0.3, 0.4, 0.4, 0.4], dead=0.7)
    chosen = training(tmp_path / "b", [0.6, 0.6, 0.6, 0.6], dead=0.0)
    figures = summary([Pair(without, chosen, most=20), Pair(chosen, chosen, most=20)])
    assert (figures["steps_ratio_to_target"], figures["steps_ratio_range"]) == (0.75, [0.5, 1.0])
    assert [one["reached"] for one in figures["seeds"]] == [[False, True], [True, True]]
    assert (figures["all_reached"], figures["dead_groups_percent_without"]) == (False, 35.0)


def test_seven_of_ten_training_prompts_are_dead_and_no_held_out_one() -> None:
    dead = [row["answer"] == IMPOSSIBLE for row in rows()]
    assert sum(dead[:TRAINED_ON]) == DEAD * TRAINED_ON
    assert dead[TRAINED_ON:] == [False] * HELD_OUT
