"""Trainings with many kinds of rewards at once, each read by several tests: most of what one takes is TRL's start."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.trainer import builders
from tests.trainer.conftest import Start
from tests.trainer.preloaded import Preloaded
from tests.trainer.test_training import FOREVER, last_step, of_kind, until
from tests.workers.rewards.judge_server import JudgeServer
from workers.contract.run.spec import RewardSpec
from workers.contract.wire.names import FileName

KEY = "sk-very-secret-key-0123456789"
VARIETY = builders.REWARDS[-1]
TRLS_OWN = (
    RewardSpec("accuracy", "trl_accuracy"),
    RewardSpec("reasoned", "trl_reasoning_accuracy"),
    RewardSpec("cosine", "trl_cosine_scaled", params={"max_len": 12}),
    RewardSpec("thinks", "trl_think_format"),
    RewardSpec("repeats", "trl_repetition_penalty", params={"ngram_size": 1}),
    RewardSpec("long", "trl_soft_overlong", params={"max_completion_len": 8, "soft_punish_cache": 4}),
)
MISDEEDS = {
    "raises": ("raise KeyError('gone')", "error", "KeyError"),
    "short": ("return [1.0] * (len(completions) - 1)", "wrong_length", "It returned 7 scores for 8 completions."),
    "nan": ("return [float('nan')] * len(completions)", "not_a_number", "'nan', which is not a finite number"),
    "inf": ("return [float('inf')] * len(completions)", "not_a_number", "'inf', which is not a finite number"),
    "string": ("return ['1.0'] * len(completions)", "not_a_number", "'1.0', which is not a finite number"),
    "text": ("return 'a text'", "wrong_length", "It returned str 'a text'"),
    "hangs": ("while True: pass", "timeout", "0.5 s"),
}
MAKE_MODELS = """
import json, sys
import torch
from transformers import AutoTokenizer, Qwen2Config, Qwen2ForSequenceClassification
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
for folder, weight in json.loads(sys.argv[2]).items():
    torch.manual_seed(1)
    config = Qwen2Config(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2,
        intermediate_size=32, max_position_embeddings=512, num_labels=1)
    model = Qwen2ForSequenceClassification(config)
    if weight:
        torch.nn.init.constant_(model.score.weight, float(weight))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
"""
NO_SANDBOX = """
import sys
from workers.sandbox import selftest
from workers.sandbox.outcomes import Backend
selftest._cached = selftest.BackendReport(None, {Backend.BUBBLEWRAP: 'bwrap is not installed.'})
from workers.trainer.__main__ import main
sys.exit(main(sys.argv[1:]))
"""
"""A start of the trainer on a host where no sandbox holds."""


def python(source: str, name: str = "mine", **params: Any) -> RewardSpec:
    return RewardSpec(name, "python", 1.0, {"source": source, "seconds": 5.0, **params})


def asking(name: str = "judge", **params: Any) -> RewardSpec:
    return RewardSpec(name, "judge", params={"endpoint": "JUDGE", "model": "a-model", "timeout_s": 5.0, **params})


def liking(model: Path, name: str = "likes", weight: float = 0.5) -> RewardSpec:
    return RewardSpec(name, "reward_model", weight, {"model": str(model)})


@dataclass(frozen=True)
class RewardModels:
    fine: Path
    infinite: Path
    """Its score is infinity whatever it reads."""


@dataclass(frozen=True)
class Ended:
    """A training that has come to its end."""

    folder: Path
    code: int
    out: str
    err: str
    children: tuple[int, ...] = ()
    """The trainer's, while it trained."""
    asked: tuple[dict[str, str], ...] = ()
    """Headers of what a judge was asked."""

    @property
    def last_words(self) -> str:
        return self.err.splitlines()[-1]

    @property
    def completions(self) -> list[dict[str, Any]]:
        return [one for group in builders.lines(self.folder / FileName.SAMPLES) for one in group["completions"]]

    def failed_share(self, name: str) -> list[float]:
        """By step."""
        logged = [line["data"] for line in of_kind(self.folder, "train")]
        return [values[f"rewards/{name}/failed"] for values in logged if "loss" in values]

    def failures(self, name: str | None = None) -> list[dict[str, Any]]:
        return [
            line["data"] for line in of_kind(self.folder, "reward_failed") if name in (None, line["data"]["reward"])
        ]


def make_models(preloaded: Preloaded, tiny_model: Path, folder: Path) -> RewardModels:
    made = RewardModels(folder / "fine", folder / "infinite")
    told = json.dumps({str(made.fine): None, str(made.infinite): "inf"})
    preloaded.run("-c", MAKE_MODELS, tiny_model, told)
    return made


def trained(start: Start, folder: Path, *arguments: str) -> Ended:
    """To its end. `arguments`: of the interpreter, in place of the trainer's module."""
    process = start(*(arguments or ("-m", "workers.trainer")), folder)
    out, err = process.communicate(timeout=240)
    return Ended(folder, process.returncode, out, err)


def stopped_at_work(start: Start, folder: Path, steps: int = 2) -> Ended:
    """For a folder of a training without an end: stopped after some steps."""
    process = start("-m", "workers.trainer", folder)
    until(lambda: last_step(folder) >= steps, process)
    children = tuple(children_of(process.pid))
    (folder / FileName.STOP).touch()
    out, err = process.communicate(timeout=120)
    return Ended(folder, process.returncode, out, err, children)


def children_of(pid: int) -> list[int]:
    return [int(child) for task in Path(f"/proc/{pid}/task").glob("*/children") for child in task.read_text().split()]


def with_code(start: Start, tiny_model: Path, folder: Path) -> Ended:
    """Rewards that run code, and behave."""
    source = (
        "def reward(completions, answer, tokens, **columns):\n    return [len(set(t)) / 100 for t in completions]\n"
    )
    specs = (python(source), RewardSpec("runs", "python_executes", 0.1, {"needs_block": False, "wrong_score": -0.5}))
    made = builders.attempt_folder(folder, model=tiny_model, rewards=specs, grpo={"max_steps": FOREVER})
    return stopped_at_work(start, made)


def without_code(start: Start, tiny_model: Path, folder: Path, model: Path) -> Ended:
    """A judge, one reward model twice, TRL's own: all but rewards that run code."""
    specs = (VARIETY, asking(batch_s=20.0), liking(model), liking(model, "again", 0.1), *TRLS_OWN)
    with JudgeServer() as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRPO_SECRET_JUDGE", json.dumps({"address": server.address, "key": KEY}))
        made = builders.attempt_folder(folder, model=tiny_model, rewards=specs, grpo={"max_steps": FOREVER})
        ended = stopped_at_work(start, made)
        asked = tuple(headers for headers, _ in server.asked)
    return Ended(made, ended.code, ended.out, ended.err, ended.children, asked)


def misbehaving(start: Start, tiny_model: Path, folder: Path, model: Path) -> Ended:
    """Functions of all misdeeds, a reward model that says infinity, a judge that has gone; and one that is fine."""
    with JudgeServer() as server:
        address = server.address
    bad = [
        python(f"def reward(completions, **columns):\n    {body}\n", name, seconds=0.5)
        for name, (body, _, _) in MISDEEDS.items()
    ]
    specs = (asking(timeout_s=1.0, batch_s=1.0), *bad, liking(model), VARIETY)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRPO_SECRET_JUDGE", json.dumps({"address": address, "key": KEY}))
        made = builders.attempt_folder(folder, model=tiny_model, rewards=specs, grpo={"max_steps": 50})
        return trained(start, made)


def whatever_fails(start: Start, tiny_model: Path, folder: Path) -> Ended:
    """One that fails on every row of a run that allows it, one that doesn't, and TRL's own, each normalised by itself;
    on a host without a sandbox, where an admin allows code."""
    specs = (
        python("def reward(completions, **columns):\n    raise ValueError('no')\n", "raises"),
        python("def reward(completions, **columns):\n    return [1.0] * len(completions)\n"),
        *TRLS_OWN,
        VARIETY,
    )
    made = builders.attempt_folder(
        folder,
        model=tiny_model,
        rewards=specs,
        grpo={"max_steps": 6, "multi_objective_aggregation": "normalize_then_sum"},
        placement={"unsandboxed": True},
        run={"failed_share": 1.0},
    )
    return trained(start, made, "-c", NO_SANDBOX)
