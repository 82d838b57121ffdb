"""What dynamic sampling and prompts by difficulty give a training of which 70 % of the prompts teach nothing.

The demo's model learns sums by GRPO with the real trainer on the CPU. Seven of ten training prompts have an answer that
nothing can give, so that their groups have no spread. Each seed trains twice, with and without, and evaluates held-out
sums whose answers are right: the target is a share of these solved. Then a training with both is resumed between two
generations, and has to go on bit for bit.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.stack import ROOT
from tests.trainer import builders
from workers.contract import RewardSpec
from workers.contract.prompts import EXTRA_TOKENS, WITHOUT_SPREAD, PromptsSpec
from workers.trainer import demo

DEAD = 0.7
TRAINED_ON, HELD_OUT = 60, 64
IMPOSSIBLE = "-1000000"
BOTH = PromptsSpec(extra_rounds=10, by_difficulty=True, least_weight=0.02)
REWARDS = (RewardSpec("accuracy", "numeric_match", 1.0, {"source": "answer tag"}),)
GRPO: dict[str, Any] = {
    "learning_rate": 1e-4,
    "lr_scheduler_type": "constant",
    "per_device_train_batch_size": 32,
    "num_generations": 8,
    "max_completion_length": 20,
    "beta": 0.0,
    "eval_strategy": "steps",
    "eval_steps": 4,
    "per_device_eval_batch_size": 192,
    "num_generations_eval": 3,
    "save_strategy": "no",
}
TARGET = 0.6
"""The share of held-out sums solved; the model begins with 0.4 to 0.5."""
WINDOW = 3
"""Evaluations whose mean has to reach it."""


@dataclass(frozen=True)
class Training:
    lines: list[dict[str, Any]]

    def values(self, name: str) -> list[float]:
        return [line["data"][name] for line in self.lines if name in line.get("data", {})]

    @property
    def evaluations(self) -> list[tuple[int, float, float]]:
        """(step, share solved, tokens until then)"""
        found, tokens = [], 0.0
        for line in self.lines:
            tokens = line.get("data", {}).get("num_tokens", tokens)
            if "eval_reward" in line.get("data", {}):
                found.append((line["step"], line["data"]["eval_reward"], tokens))
        return found

    def reached(self) -> tuple[int, float] | None:
        """(step, tokens) at which the target was reached."""
        told = self.evaluations
        for end in range(WINDOW, len(told) + 1):
            if statistics.fmean(solved for _, solved, _ in told[end - WINDOW : end]) >= TARGET:
                return told[end - 1][0], told[end - 1][2]
        return None


def main(argv: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(prog="bench signal", description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=100, help="most steps of a training")
    parser.add_argument("--model", type=Path, help="the demo's model, if there is one already")
    options = parser.parse_args(argv or [])
    python = os.environ.get("GRPO_TRAINER_PYTHON") or str(ROOT / ".venv-train" / "bin" / "python")
    with tempfile.TemporaryDirectory(prefix="gt-") as folder:
        work = Path(folder)
        model = options.model or _model(python, work / "model")
        pairs = [
            (
                _train(python, work / f"{seed}-off", model, PromptsSpec(), seed=seed, max_steps=options.steps),
                _train(python, work / f"{seed}-on", model, BOTH, seed=seed, max_steps=options.steps),
            )
            for seed in range(1, options.seeds + 1)
        ]
        return {**_figures(pairs), "resume_bit_exact": _resumes(python, work, model)}


def _figures(pairs: list[tuple[Training, Training]]) -> dict[str, Any]:
    reached = [(off.reached(), on.reached()) for off, on in pairs]
    ends = [(off.evaluations[-1][0], off.evaluations[-1][2]) for off, _ in pairs]
    both = [(off or end, on) for (off, on), end in zip(reached, ends, strict=True) if on]  # a bound, if it never did
    left = [value for _, on in pairs for value in on.values(WITHOUT_SPREAD)]
    flat = [value for off, _ in pairs for value in off.values("frac_reward_zero_std")]
    return {
        "seeds": len(pairs),
        "reached": [f"{bool(off)}/{bool(on)}" for off, on in reached],
        "dead_groups_percent": round(100 * statistics.fmean(left), 2),
        "dead_groups_percent_without": round(100 * statistics.fmean(flat), 2),
        "steps_to_target": [[off and off[0], on and on[0]] for off, on in reached],
        "steps_ratio_to_target": _ratio([(off[0], on[0]) for off, on in both]),
        "tokens_ratio": _ratio([(off[1], on[1]) for off, on in both]),
        "extra_tokens": round(statistics.fmean(sum(on.values(EXTRA_TOKENS)) for _, on in pairs)),
        "solved_at_the_end": [
            [round(statistics.fmean(one.values("eval_reward")[-WINDOW:]), 3) for one in pair] for pair in pairs
        ],
    }


def _ratio(pairs: list[tuple[float, float]]) -> float | None:
    """With over without, of all seeds together."""
    return round(sum(on for _, on in pairs) / sum(off for off, _ in pairs), 3) if pairs else None


def _resumes(python: str, work: Path, model: Path) -> bool:
    grpo = {"max_steps": 6, "num_iterations": 2, "eval_strategy": "no", "save_strategy": "steps", "save_steps": 1}
    whole = _train(python, work / "whole", model, BOTH, seed=1, **grpo)
    checkpoint = str(work / "whole" / "checkpoints" / "checkpoint-3")
    rest = _train(python, work / "rest", model, BOTH, seed=1, resume_from=checkpoint, **grpo)
    values = [_plain(training) for training in (whole, rest)]
    return bool(values[1]) and values[1] == [line for line in values[0] if line[0] > 3]


def _plain(training: Training) -> list[tuple[int, dict[str, float]]]:
    steps = [line for line in training.lines if "loss" in line.get("data", {})]
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
        dataset=_dataset(),
        rewards=REWARDS,
        eval_rows=HELD_OUT if grpo.get("eval_strategy") != "no" else 0,
        validation=HELD_OUT,
        run={"prompts": prompts},
        resume_from=resume_from,
    )
    command = [python, "-m", "workers.trainer", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if done.returncode:
        raise RuntimeError(f"the training failed:\n{done.stderr[-3000:]}")
    return Training(builders.lines(folder / "metrics.jsonl"))


def _dataset() -> list[dict[str, Any]]:
    """Rows to train on, seven of ten with an answer that no completion has; then those held out."""
    problems = demo.problems(TRAINED_ON + HELD_OUT, seed=0)
    return [
        {
            "row": number,
            "prompt": one["question"],
            "answer": IMPOSSIBLE if number < TRAINED_ON and number % 10 < 10 * DEAD else one["answer"],
        }
        for number, one in enumerate(problems)
    ]


def _model(python: str, folder: Path) -> Path:
    subprocess.run([python, "-m", "workers.trainer.tiny", str(folder)], check=True, cwd=ROOT, capture_output=True)
    return folder


if __name__ == "__main__":
    print(json.dumps(main()))
