"""What dynamic sampling and prompts by difficulty give a training of which 70 % of the prompts teach nothing.

The demo's model learns sums by GRPO with the real trainer on the CPU. Seven of ten training prompts have an answer that
nothing can give, so that their groups have no spread. Each seed trains twice, with and without, until a share of the
held-out sums is solved, whose answers are right. What counts is up to there; ratios are of each seed, with over
without. Then a training with both is resumed between two generations, and has to go on bit for bit.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import statistics
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controlplane.setup.serving.processes import BASE_DIR as ROOT
from tests.trainer import builders
from workers.contract.run.prompts import WITHOUT_SPREAD, PromptsSpec
from workers.contract.run.spec import RewardSpec
from workers.contract.wire.names import FileName
from workers.trainer import demo

DEAD = 0.7
TRAINED_ON, HELD_OUT = 50, 30
IMPOSSIBLE = "-1000000"
BOTH = PromptsSpec(extra_rounds=10, by_difficulty=True)
REWARDS = (RewardSpec("accuracy", "numeric_match", 1.0, {"source": "answer tag"}),)
# So slow that a prompt is met several times before it is learned: faster, the live ones are used up before the target.
GRPO: dict[str, Any] = {
    "learning_rate": 3e-5,
    "lr_scheduler_type": "constant",
    "per_device_train_batch_size": 32,
    "num_generations": 8,
    "max_completion_length": 20,
    "beta": 0.0,
    "eval_strategy": "steps",
    "eval_steps": 5,
    "per_device_eval_batch_size": 240,
    "num_generations_eval": 8,
    "save_strategy": "no",
}
TARGETS = (0.5, 0.55, 0.6)
"""Shares of the held-out sums solved, of which TARGET is the one that counts. The model begins with 0.3."""
TARGET = 0.6
WINDOW = 3
"""Evaluations whose mean has to reach it."""
POLL_S = 1.0


@dataclass(frozen=True)
class Training:
    folder: Path

    def lines(self, name: str = FileName.METRICS) -> list[dict[str, Any]]:
        return builders.lines(self.folder / name)

    def values(self, name: str) -> list[tuple[int, float]]:
        """(step, value)"""
        return [(line["step"], line["data"][name]) for line in self.lines() if name in line.get("data", {})]

    def mean(self, name: str, until: int) -> float:
        return statistics.fmean(value for step, value in self.values(name) if step <= until)

    def tokens(self, until: int) -> int:
        """Generated for training, whether trained on or not."""
        groups = [one for one in self.lines(FileName.SAMPLES) if one["mode"] != "eval" and one["step"] <= until]
        return sum(completion["tokens"] for group in groups for completion in group["completions"])

    def reached(self, target: float) -> int | None:
        """The step of the middle one of the first evaluations whose mean reaches the target."""
        told = self.values("eval_reward")
        for end in range(WINDOW, len(told) + 1):
            window = told[end - WINDOW : end]
            if statistics.fmean(solved for _, solved in window) >= target:
                return window[WINDOW // 2][0]
        return None


@dataclass(frozen=True)
class Pair:
    """The trainings of one seed."""

    without: Training
    chosen: Training
    most: int
    """Steps that each had."""

    def figures(self, target: float) -> dict[str, Any]:
        """Up to the target, or of all steps where it wasn't reached."""
        reached = self.without.reached(target), self.chosen.reached(target)
        without, chosen = (step or self.most for step in reached)
        tokens = self.without.tokens(without), self.chosen.tokens(chosen)
        return {
            "reached": [step is not None for step in reached],
            "steps": [without, chosen],
            "tokens": list(tokens),
            "steps_ratio": round(chosen / without, 3),
            "tokens_ratio": round(tokens[1] / tokens[0], 3),
            "dead_groups_percent": round(100 * self.chosen.mean(WITHOUT_SPREAD, chosen), 2),
            "dead_groups_percent_without": round(100 * self.without.mean("frac_reward_zero_std", without), 2),
        }


def main(argv: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(prog="bench signal", description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=300, help="most steps of a training")
    parser.add_argument("--model", type=Path, help="the demo's model, if there is one already")
    options = parser.parse_args(argv or [])
    python = os.environ.get("GRPO_TRAINER_PYTHON") or str(ROOT / ".venv-train" / "bin" / "python")
    with tempfile.TemporaryDirectory(prefix="gt-") as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        work = Path(folder)
        model = options.model or _model(python, work / "model")
        seeds = range(1, options.seeds + 1)
        started = [
            [
                pool.submit(_train, python, work / f"{seed}-{name}", model, prompts, seed=seed, max_steps=options.steps)
                for name, prompts in (("without", PromptsSpec()), ("chosen", BOTH))
            ]
            for seed in seeds
        ]
        pairs = [Pair(*(training.result() for training in pair), most=options.steps) for pair in started]
        return {**summary(pairs), "resume_bit_exact": _resumes(python, work, model)}


def summary(pairs: list[Pair]) -> dict[str, Any]:
    """Of all seeds: dead groups as means, ratios as medians with their ranges. A ratio counts a training that didn't
    reach the target with all its steps: `all_reached` says whether there was one."""
    seeds = [pair.figures(TARGET) for pair in pairs]
    return {
        **_of_seeds(seeds),
        **{
            name: round(statistics.fmean(one[name] for one in seeds), 2)
            for name in ("dead_groups_percent", "dead_groups_percent_without")
        },
        "by_target": {target: _of_seeds([pair.figures(target) for pair in pairs]) for target in TARGETS},
        "seeds": seeds,
    }


def _of_seeds(seeds: list[dict[str, Any]]) -> dict[str, Any]:
    steps, tokens = ([one[name] for one in seeds] for name in ("steps_ratio", "tokens_ratio"))
    return {
        "steps_ratio_to_target": round(statistics.median(steps), 3),
        "steps_ratio_range": [min(steps), max(steps)],
        "tokens_ratio": round(statistics.median(tokens), 3),
        "tokens_ratio_range": [min(tokens), max(tokens)],
        "all_reached": all(all(one["reached"]) for one in seeds),
    }


def _resumes(python: str, work: Path, model: Path) -> bool:
    grpo = {"max_steps": 6, "num_iterations": 2, "eval_strategy": "no", "save_strategy": "steps", "save_steps": 1}
    whole = _train(python, work / "whole", model, BOTH, seed=1, **grpo)
    checkpoint = str(work / "whole" / "checkpoints" / "checkpoint-3")
    rest = _train(python, work / "rest", model, BOTH, seed=1, resume_from=checkpoint, **grpo)
    values = [_plain(training) for training in (whole, rest)]
    return bool(values[1]) and values[1] == [line for line in values[0] if line[0] > 3]


def _plain(training: Training) -> list[tuple[int, dict[str, float]]]:
    steps = [line for line in training.lines() if "loss" in line.get("data", {})]
    timed = ("time/", "step_time", "memory/")
    return [
        (line["step"], {name: value for name, value in line["data"].items() if not name.startswith(timed)})
        for line in steps
    ]


def _train(
    python: str,
    folder: Path,
    model: Path,
    prompts: PromptsSpec,
    *,
    seed: int,
    resume_from: str | None = None,
    **grpo: Any,
) -> Training:
    builders.attempt_folder(
        folder,
        model=model,
        grpo={**GRPO, "seed": seed, **grpo},
        dataset=rows(),
        rewards=REWARDS,
        eval_rows=HELD_OUT if grpo.get("eval_strategy") != "no" else 0,
        validation=HELD_OUT,
        run={"prompts": prompts},
        resume_from=resume_from,
    )
    command = [python, "-m", "workers.trainer", str(folder)]
    training, log = Training(folder), folder / "log"
    with log.open("wb") as said:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(command, cwd=ROOT, stdout=said, stderr=said, env=environment)
        while process.poll() is None and not training.reached(max(TARGETS)):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(POLL_S)
        process.kill()
    if process.wait() and not training.reached(max(TARGETS)):
        raise RuntimeError(f"the training failed:\n{log.read_text(errors='replace')[-3000:]}")
    return training


def rows() -> list[dict[str, Any]]:
    """Sums to train on, each asked in one way, seven of ten with an answer that no completion has; then those that can
    be solved, asked in the other ways, to evaluate."""
    sums = list(demo.facts())
    random.Random(0).shuffle(sums)
    ways = len(demo.PHRASES)
    trained_on = [
        _row(fact, number % ways, dead=number % 10 < 10 * DEAD) for number, fact in enumerate(sums[:TRAINED_ON])
    ]
    held_out = [
        _row(fact, (number + other) % ways)
        for number, fact in enumerate(sums[:TRAINED_ON])
        if number % 10 >= 10 * DEAD
        for other in range(1, ways)
    ]
    return [{"row": number, **row} for number, row in enumerate([*trained_on, *held_out])]


def _row(fact: tuple[int, str, int], way: int, *, dead: bool = False) -> dict[str, Any]:
    a, op, b = fact
    return {
        "prompt": demo.PHRASES[way].format(a=a, op=op, b=b),
        "answer": IMPOSSIBLE if dead else str(demo.result(a, op, b)),
    }


def _model(python: str, folder: Path) -> Path:
    subprocess.run([python, "-m", "workers.trainer.tiny", str(folder)], check=True, cwd=ROOT, capture_output=True)
    return folder


if __name__ == "__main__":
    print(json.dumps(main()))
