"""The rows that a check is timed with: chats of random words, every fourth with code and tests; and a tokenizer."""

from __future__ import annotations

import io
import json
import os
import random
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, pre_tokenizers, trainers

from tests.controlplane.catalogue.datasets.tokenizers import a_tokenizer

WORDS = 5000
VOCABULARY = 8000
SAMPLE = 2000
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


def tokenizer(folder: Path) -> Path:
    """In a model's folder, with a chat template: a BPE trained on such prompts, as a model's own was on texts."""
    file = a_tokenizer(folder) / "tokenizer.json"
    made = Tokenizer.from_file(str(file))
    special = [token.content for token in made.get_added_tokens_decoder().values()]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    chance, words = random.Random(2), _words()
    made.train_from_iterator((_asked(chance, words, number) for number in range(SAMPLE)), trainer)
    made.save(str(file))
    return folder


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
