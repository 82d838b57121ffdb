"""What generating one step ahead gives in steps per second, and what it does to the rewards.

Both by the real trainer on the CPU. Rewards: a LoRA of the demo's model learns sums, with a stand-in for vLLM that
really samples from the adapter; each seed trains with and without. Speed: the stand-in answers with canned completions
after as long as the trainer needs for the rest of a step, as measured first: in turns, a step takes the sum of both.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import tempfile
from pathlib import Path
from typing import Any

from controlplane.setup.serving.processes import BASE_DIR as ROOT
from tests.fakes.running_vllm import RunningVllm
from tests.trainer import builders
from tests.trainer.preloaded import Preloaded
from workers.contract.run.hardware import Rollout, ServerSpec, WeightSync
from workers.contract.run.overlapping import AHEAD_SECONDS, STALENESS, TRUNCATED
from workers.contract.run.spec import LoraSpec, RewardSpec
from workers.trainer import demo

ATTEMPT = "r1-1"
LORA = ("--enable-lora", "--max-lora-rank", "16", "--max-loras", "3", "--logprobs-mode", "processed_logprobs")
ENVIRONMENT = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1", "FAKE_VLLM_LIFETIME": "3600", "OMP_NUM_THREADS": "1"}
REWARDS = (RewardSpec("accuracy", "numeric_match", 1.0, {"source": "answer tag"}),)
GRPO: dict[str, Any] = {
    "learning_rate": 3e-4,
    "lr_scheduler_type": "constant",
    "per_device_train_batch_size": 32,
    "num_generations": 8,
    "max_completion_length": 20,
    "beta": 0.0,
    "save_strategy": "no",
}
PROBLEMS = 200
LATE = 1 / 3
"""The last steps of a training, of which the rewards are compared."""
MEASURED, WARM_UP = 12, 3
"""Steps of a run for speed, and those left out of it."""


def main(argv: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(prog="bench ahead", description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=60, help="of each training whose rewards are compared")
    parser.add_argument("--pairs", type=int, default=2, help="of runs for the speed, in turns")
    parser.add_argument("--model", type=Path, help="the demo's model, if there is one already")
    options = parser.parse_args(argv or [])
    python = Path(os.environ.get("GRPO_TRAINER_PYTHON") or ROOT / ".venv-train" / "bin" / "python")
    preloaded = Preloaded(python)
    try:
        with tempfile.TemporaryDirectory(prefix="gt-") as folder:
            bench = Bench(preloaded, Path(folder), options.model)
            return {**bench.speed(options.pairs), **bench.rewards(options.seeds, options.steps)}
    finally:
        preloaded.close()


class Bench:
    def __init__(self, preloaded: Preloaded, work: Path, model: Path | None) -> None:
        self._preloaded = preloaded
        self._work = work
        self._runs = 0
        self._model = model or work / "model"
        if model is None:
            preloaded.run("-m", "workers.trainer.tiny", self._model)

    # --- rewards ----------------------------------------------------------------------------------------------

    def rewards(self, seeds: int, steps: int) -> dict[str, Any]:
        """The mean reward of each training's last steps. The difference is within noise where its interval of 95 %
        (Student's t, of the pairs by seed) holds 0."""
        turns, ahead = [], []
        told: list[dict[str, float]] = []
        with self._sampling() as server:
            server.ready()
            for seed in range(1, seeds + 1):
                grpo = {**GRPO, "seed": seed, "max_steps": steps}
                turns.append(_late([of["reward"] for of in self._train(server, ahead=False, grpo=grpo)]))
                logs = self._train(server, ahead=True, grpo=grpo)
                ahead.append(_late([of["reward"] for of in logs]))
                told += logs
        gains = [one - other for one, other in zip(ahead, turns, strict=True)]
        half = _t95(len(gains)) * statistics.stdev(gains) / math.sqrt(len(gains)) if len(gains) > 1 else math.inf
        mean = statistics.fmean(gains)
        return {
            "rewards_in_turns": [round(one, 3) for one in turns],
            "rewards_ahead": [round(one, 3) for one in ahead],
            "reward_difference": round(mean, 3),
            "reward_difference_interval": [round(mean - half, 3), round(mean + half, 3)],
            "rewards_within_noise": mean - half <= 0 <= mean + half,
            "staleness": round(statistics.fmean(of[STALENESS] for of in told), 3),
            "share_truncated": round(statistics.fmean(of[TRUNCATED] for of in told), 4),
        }

    def _sampling(self) -> RunningVllm:
        env = {**ENVIRONMENT, "FAKE_VLLM_ENGINE": "torch"}
        return RunningVllm(*LORA, preloaded=self._preloaded, model=str(self._model), name=ATTEMPT, **env)

    # --- speed ------------------------------------------------------------------------------------------------

    def speed(self, pairs: int) -> dict[str, Any]:
        grpo = {**GRPO, "max_steps": MEASURED, "max_completion_length": 96}
        with RunningVllm(*LORA, name=ATTEMPT, **ENVIRONMENT) as server:
            logs = self._train(server.ready(), ahead=False, grpo=grpo)
        rest = statistics.median(of["step_time"] - of["time/generation_s"] for of in logs[WARM_UP:])
        in_turns, ahead, hidden = [], [], []
        with RunningVllm(*LORA, name=ATTEMPT, **ENVIRONMENT, FAKE_VLLM=f"generates_in:{rest:.3f}") as server:
            server.ready()
            for _ in range(pairs):
                in_turns += self._times(server, ahead=False, grpo=grpo)
                logs = self._train(server, ahead=True, grpo=grpo)
                ahead += [of["step_time"] for of in logs[WARM_UP:]]
                hidden += [of[AHEAD_SECONDS] for of in logs[WARM_UP:] if AHEAD_SECONDS in of]
        steps = statistics.median(in_turns), statistics.median(ahead)
        return {
            "steps_per_s_in_turns": round(1 / steps[0], 3),
            "steps_per_s_ahead": round(1 / steps[1], 3),
            "steps_ratio": round(steps[0] / steps[1], 3),
            "generation_s": round(statistics.median(hidden), 3),
            "rest_of_the_step_s": round(rest, 3),
        }

    def _times(self, server: RunningVllm, *, ahead: bool, grpo: dict[str, Any]) -> list[float]:
        return [of["step_time"] for of in self._train(server, ahead=ahead, grpo=grpo)[WARM_UP:]]

    # --- a training -------------------------------------------------------------------------------------------

    def _train(self, server: RunningVllm, *, ahead: bool, grpo: dict[str, Any]) -> list[dict[str, float]]:
        """What is logged of each step."""
        self._runs += 1
        folder = builders.attempt_folder(
            self._work / str(self._runs),
            model=self._model,
            grpo=grpo,
            dataset=[
                {"row": number, "prompt": one["question"], "answer": one["answer"]}
                for number, one in enumerate(demo.problems(PROBLEMS, seed=0))
            ],
            rewards=REWARDS,
            hardware={
                "rollout": Rollout.SERVER,
                "server": ServerSpec(weight_sync=WeightSync.LORA, request_timeout_s=600),
            },
            placement={"ports": [server.port]},
            run={"lora": LoraSpec(r=16, alpha=32, target_modules=("all-linear",)), "ahead": ahead},
        )
        done = self._preloaded.start("-m", "workers.trainer", folder, env={"OMP_NUM_THREADS": "1"})
        _, stderr = done.communicate()
        if done.returncode:
            raise RuntimeError(f"the training failed:\n{stderr[-3000:]}")
        lines = builders.lines(folder / "metrics.jsonl")
        return [line["data"] for line in lines if "loss" in line["data"]]


def _late(values: list[float]) -> float:
    return statistics.fmean(values[-max(1, round(len(values) * LATE)) :])


def _t95(pairs: int) -> float:
    """Student's t for a two-sided interval of 95 % of so many pairs."""
    table = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)
    return table[min(pairs - 2, len(table) - 1)]


if __name__ == "__main__":
    print(json.dumps(main()))
