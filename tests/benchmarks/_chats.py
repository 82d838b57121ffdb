"""The rows that a check is timed with: chats of random words, every fourth with code and tests."""

from __future__ import annotations

import io
import json
import os
import random
from pathlib import Path
from typing import Any

WORDS = 5000
CODE = """\
def {name}(values, limit={number}):
    \"\"\"{words}\"\"\"
    found = []
    for place, value in enumerate(values):
        if value % {number} == 0 and place < limit:
            found.append(value * {number} + place)
    return sorted(set(found), reverse=True)
"""
TEST = "assert {name}([{number}, {other}], 3) == [{number}]"


def write(path: Path, size: int) -> int:
    """Rows until the file has `size` bytes; how many."""
    chance = random.Random(1)
    words = _words()
    written = rows = 0
    with path.open("wb", buffering=io.DEFAULT_BUFFER_SIZE * 64) as file:
        while written < size:
            written += file.write(json.dumps(_chat(chance, words, rows)).encode() + b"\n")
            rows += 1
        file.flush()
        os.fsync(file.fileno())
    return rows


def _words() -> list[str]:
    chance = random.Random(1)
    return ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(2, 9))) for _ in range(WORDS)]


def _chat(chance: random.Random, words: list[str], number: int) -> dict[str, Any]:
    answer, tests = " ".join(chance.choices(words, k=chance.randint(5, 40))), list[str]()
    if number % 4 == 0:
        name, one = f"{chance.choice(words)}_{number}", chance.randint(2, 99)
        answer = CODE.format(name=name, number=one, words=answer)
        tests = [TEST.format(name=name, number=one, other=other) for other in range(3)]
    return {
        "prompt": [
            {"role": "system", "content": "You are a careful assistant.\nThink before you answer."},
            {"role": "user", "content": _asked(chance, words, number)},
        ],
        "answer": answer,
        "test_cases": tests,
        "difficulty": chance.choice(("easy", "medium", "hard")),
        "tags": ["reading", "writing"],
    }


def _asked(chance: random.Random, words: list[str], number: int) -> str:
    return f"{number}: {' '.join(chance.choices(words, k=chance.randint(40, 120)))}"
