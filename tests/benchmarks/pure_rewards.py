"""How long the library's pure rewards take on one group: what they add to a training step.

    python -m tests.benchmarks.pure_rewards

64 completions of 2,000 characters go through every reward that is a function on text, with its default parameters
(a schema and several tools where there are such parameters), by the same `score` that the trainer calls.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from workers.rewards.library import LIBRARY
from workers.rewards.reward import Completion, Cost, Reward
from workers.rewards.scoring import score

COMPLETIONS = 64
LENGTH = 2_000
ROUNDS = 9
_SENTENCES = """
First we count the apples and then add the pears so that the total is known because each box holds exactly three of them
while the others were sold in town before noon which leaves only half for tomorrow if nobody comes back again
"""
WORDS = _SENTENCES.split()
_SEARCH = {"name": "search", "parameters": {"type": "object", "properties": {"query": {"type": "string"}}}}
PARAMS: dict[str, dict[str, Any]] = {
    "json_valid": {"schema": json.dumps({"required": ["total"], "properties": {"total": {"minimum": 0}}})},
    "tool_call_valid": {"tools": json.dumps([_SEARCH, {"name": "add", "parameters": {}}])},
}  # fmt: skip
ANSWERS = {"multiple_choice": "B", "token_f1": "three boxes of apples"}


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """As a benchmark of its own: `manage.py bench pure_rewards`, without options."""
    return measure()


def completions() -> list[Completion]:
    """Thoughts of random words and numbers, then a call and an answer in tags; every second one has no tags at all, so
    that rewards on the answer read all of it. No two alike."""
    made = []
    for number in range(COMPLETIONS):
        dice = random.Random(number)
        call = json.dumps({"name": "search", "arguments": {"query": dice.choice(WORDS)}})
        end = f'</think>\n<tool_call>{call}</tool_call>\n```json\n{{"total": {number}}}\n```\n<answer>{number}</answer>'
        text, end = ("<think>", end) if number % 2 else ("", f"so that the answer is {number}.")
        while len(text) + len(end) < LENGTH:
            text += dice.choice(WORDS) + (f" {dice.randint(1, 99)} + {number} =" if dice.random() < 0.1 else "") + " "
        text = text[: LENGTH - len(end)] + end
        result = {"role": "tool", "content": text}  # what a search returned is as long as what a model writes
        made.append(Completion(text, ({"role": "assistant", "content": text}, result), tokens=500 + number))
    return made


def measure() -> dict[str, Any]:
    """{"pure_group_ms": of the whole group through all of them, "pure_group_cpu_ms": the same in processor time, which
    a busy machine lengthens less, "pure_rewards": how many, "by_reward_ms": of each}. Medians of ROUNDS; what a reward
    imports and compiles at its first use isn't counted."""
    given = completions()
    pure = [reward for reward in LIBRARY.values() if reward.cost is Cost.PURE]

    def once(reward: Reward) -> None:
        rows = [{"answer": ANSWERS.get(reward.key, "#### 18")}] * COMPLETIONS
        told = score(reward, given, rows, PARAMS.get(reward.key, {}))
        if told.failures:
            raise SystemExit(f"{reward.key}: {told.failures[0].message}")

    def all_of_them() -> None:
        for reward in pure:
            once(reward)

    all_of_them()
    whole = _median_ms(all_of_them)
    return {
        "pure_group_ms": round(whole.wall, 2),
        "pure_group_cpu_ms": round(whole.cpu, 2),
        "pure_rewards": len(pure),
        "by_reward_ms": {reward.key: round(_median_ms(lambda: once(reward)).wall, 3) for reward in pure},  # noqa: B023
    }


class Taken(NamedTuple):
    wall: float
    cpu: float


def _median_ms(action: Callable[[], None]) -> Taken:
    walls, cpus = [], []
    for _ in range(ROUNDS):
        wall, cpu = time.perf_counter(), time.thread_time()
        action()
        walls.append(1000 * (time.perf_counter() - wall))
        cpus.append(1000 * (time.thread_time() - cpu))
    return Taken(statistics.median(walls), statistics.median(cpus))


if __name__ == "__main__":
    json.dump(measure(), sys.stdout, indent=1)
    print()
