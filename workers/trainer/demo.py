"""The demo's problems and recommended settings, as plain data; standard library only."""

import json
import random
from collections.abc import Iterator
from typing import Any

MAX_OPERAND = 10
"""Upper bound of operands: there are few enough facts for a small model to see them all in its warm-up."""

PHRASES = ("What is {a} {op} {b}?", "Compute {a} {op} {b}.", "{a} {op} {b} = ?")

CONFIG: dict[str, Any] = {
    "dataset": {"name": "Arithmetic", "prompt_column": "question", "answer_column": "answer", "eval_rows": 32},
    "rewards": [
        {"name": "accuracy", "function": "numeric_match", "weight": 1.0, "params": {"source": "answer tag"}},
        {"name": "thinks", "function": "think_tags", "weight": 0.25, "params": {}},
        {"name": "answers", "function": "answer_tag", "weight": 0.25, "params": {"at_end": True}},
    ],
    "hardware": {"rollout": "transformers", "trainer_gpus": 0, "processes": 1, "cpu_slots": 1, "threads": 1},
    "lora": None,
    "attn_implementation": None,
    "grpo": {
        "max_steps": 300,
        "learning_rate": 5e-5,
        "lr_scheduler_type": "constant_with_warmup",
        "warmup_steps": 10,
        "adam_beta2": 0.99,
        "max_grad_norm": 1.0,
        "per_device_train_batch_size": 64,
        "num_generations": 8,
        "num_iterations": 2,
        "max_completion_length": 20,
        "temperature": 1.0,
        "beta": 0.02,
        "epsilon": 0.05,
        "loss_type": "dapo",
        "scale_rewards": "group",
        "eval_strategy": "steps",
        "eval_steps": 25,
        "per_device_eval_batch_size": 64,
        "num_generations_eval": 2,
        "save_steps": 100,
        "save_total_limit": 2,
        "bf16": False,
        "gradient_checkpointing": False,
        "seed": 42,
    },
}
"""Settings with which the demo's model learns on two cores in a few minutes; keys as in the run spec."""


def problems(count: int, seed: int) -> list[dict[str, str]]:
    """Return `count` distinct arithmetic problems in random order, as rows of an uploadable dataset."""
    rows = [
        {"question": phrase.format(a=a, op=op, b=b), "answer": str(result(a, op, b))}
        for a, op, b in facts()
        for phrase in PHRASES
    ]
    random.Random(seed).shuffle(rows)  # noqa: S311  exercises, not secrets
    return rows[:count]


def problem_lines(count: int, seed: int) -> str:
    return "".join(json.dumps(problem) + "\n" for problem in problems(count, seed))


def result(a: int, op: str, b: int) -> int:
    return a + b if op == "+" else a - b


def facts() -> Iterator[tuple[int, str, int]]:
    """Yield all problems: sums, and non-negative differences."""
    for a in range(MAX_OPERAND + 1):
        for b in range(MAX_OPERAND + 1):
            yield a, "+", b
            if b <= a:
                yield a, "-", b
