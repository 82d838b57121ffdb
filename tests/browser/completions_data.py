"""A run with completions as ugly as they come: long, in other scripts, with markup, thinking, tools, and many."""

from __future__ import annotations

import random
from typing import Any

from runs.engine.models import Attempt, Run
from runs.intake.host_api import uploads
from tests.runs import builders

UGLY = (
    "<script>alert('x')</script> & <b>bold</b> \"quotes\" \\n \u202eright to left\u202c",
    "a" * 3000,
    "答案是四十二。" * 60,
    "\n\n\n   \t\n",
    "",
    "```python\nfor i in range(10):\n    print(i)\n```\n" * 20,
)
WORDS = [
    "the",
    "sum",
    "of",
    "two",
    "and",
    "three",
    "is",
    "five",
    "so",
    "we",
    "add",
    "them",
    "one",
    "by",
    "then",
    "check",
]


def a_run(name: str, components: int) -> Attempt:
    """Eight GPUs are more than the host has, so nothing is started."""
    run = builders.a_run(name, hardware={"rollout": "colocate", "trainer_gpus": 8})
    functions = ["numeric_match", "think_tags", "unique_chars"]
    rewards = [
        {"name": f"component_{i}_with_a_rather_long_name_that_says_it_all", "function": "length"}
        for i in range(3, components)
    ]
    first = [{"name": n, "function": f} for n, f in zip(("accuracy", "format", "variety"), functions, strict=True)]
    Run.objects.filter(pk=run.pk).update(spec={**run.spec, "rewards": (first + rewards)[:components]})
    return builders.an_attempt(run=Run.objects.get(pk=run.pk))


def fill(attempt: Attempt, *, steps: int = 60, groups: int = 4, rows: int = 60, size: int = 8, first: int = 1) -> None:
    draw = random.Random(first)
    names = [part["name"] for part in attempt.run.spec["rewards"]]
    for step in range(first, first + steps):
        lines = [group(draw, step, (step * groups + i) % rows, names, size) for i in range(groups)]
        attempt.refresh_from_db()
        uploads.samples(attempt, attempt.samples_ack + 1, lines)


def group(draw: random.Random, step: int, row: int, names: list[str], size: int) -> dict[str, Any]:
    ease = row % 5 / 4 if row % 5 in (0, 4) else min(0.95, step / 80 + row % 5 / 10)
    prompt = f"Row {row}: a farmer has {row} apples & <i>gives</i> {row % 7} away. How many are left? " + "Think. " * (
        row % 9
    )
    line: dict[str, Any] = {
        "step": step,
        "row": row,
        "prompt": prompt,
        "answer": str(row - row % 7),
        "mode": "eval" if row % 17 == 3 else "train",
        "completions": [completion(draw, ease, names, i) for i in range(size)],
    }
    if row % 2:
        line["turns"] = [{"role": "system", "content": "You are careful."}, {"role": "user", "content": prompt}]
    return line


def completion(draw: random.Random, ease: float, names: list[str], index: int) -> dict[str, Any]:
    right = draw.random() < ease
    text = f"<think>{' '.join(draw.choices(WORDS, k=60))}</think>\nThe answer is {'right' if right else 'wrong'}."
    if draw.random() < 0.15:
        text = draw.choice(UGLY)
    scores = {name: round(draw.random(), 3) for name in names} | {
        "accuracy": float(right),
        "variety": draw.randint(5, 40),
    }
    told: dict[str, Any] = {
        "text": text,
        "tokens": len(text) // 4,
        "ended": True,
        "end": draw.choice(["eos", "eos", "eos", "length", "stop"]),
        "rewards": {name: scores[name] for name in names},
        "reward": float(right) + 0.1 * draw.random(),
        "advantage": draw.uniform(-1.5, 1.5),
    }
    if index == 3:
        call = {"type": "function", "function": {"name": "calculator", "arguments": {"expression": "12 - 5"}}}
        told["turns"] = [
            {"role": "assistant", "content": "I had better compute it.", "tool_calls": [call]},
            {"role": "tool", "name": "calculator", "content": "7"},
            {"role": "assistant", "content": text or "So it is 7."},
        ]
    return told
