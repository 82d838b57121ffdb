"""The canonical dataset file: rows in memory, the held-out split, and what TRL gets to see of them."""

from __future__ import annotations

import hashlib
import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers.contract import AttemptSpec, FileName
from workers.trainer.spec import SpecError

Row = dict[str, Any]


@dataclass(frozen=True)
class Rows:
    """A run's rows. `by_id` is what rewards look up: whatever columns a row has, however unlike its neighbours'."""

    by_id: dict[int, Row]
    train: list[int]
    evaluation: list[int]


def read(folder: Path, spec: AttemptSpec) -> Rows:
    path = folder / FileName.DATASET
    try:
        content = path.read_bytes()
    except OSError as error:
        raise SpecError(f"The dataset can't be read: {error.strerror or error} ({path}).") from error
    expected = spec.run.data.sha256
    if expected and hashlib.sha256(content).hexdigest() != expected:
        raise SpecError(f"{FileName.DATASET} is not the file that the run was launched with: its checksum differs.")
    by_id = dict(_parsed(number, line) for number, line in enumerate(content.splitlines(), 1) if line.strip())
    if len({isinstance(row["prompt"], str) for row in by_id.values()}) > 1:
        raise SpecError("Some prompts of the dataset are texts and some are messages; TRL wants all of one kind.")
    train, evaluation = split(list(by_id), spec.run.data.eval_rows, int(spec.run.grpo.get("seed", 42)))
    if spec.run.data.eval_rows and not train:
        raise SpecError(f"{spec.run.data.eval_rows} rows held out for evaluation leave none of {len(by_id)} to train.")
    return Rows(by_id=by_id, train=train, evaluation=evaluation)


def split(ids: list[int], eval_rows: int, seed: int) -> tuple[list[int], list[int]]:
    """(to train on, held out): drawn with the run's seed, each in the file's order."""
    held_out = set(random.Random(seed).sample(ids, min(eval_rows, len(ids))))  # noqa: S311  a draw, not a secret
    return [i for i in ids if i not in held_out], [i for i in ids if i in held_out]


def to_dataset(rows: Rows, ids: list[int]) -> Any:
    """A datasets.Dataset of prompt and row id only.

    The other columns stay out: Arrow refuses a column whose rows differ in type, and TRL gives some names
    (image, environment) a meaning of its own. Rewards get whole rows by their id.
    """
    from datasets import Dataset  # here, because `read` runs before anything slow is imported

    return Dataset.from_dict({"prompt": [rows.by_id[i]["prompt"] for i in ids], "row": ids})


def prompt_text(prompt: Any) -> str:
    """A prompt as people read it."""
    if isinstance(prompt, str):
        return prompt
    if len(prompt) == 1:
        return _content(prompt[0])
    return "\n".join(f"{message.get('role')}: {_content(message)}" for message in prompt)


def completion_text(completion: Any) -> str:
    """What the model wrote: TRL hands a text for a text prompt and messages for messages."""
    return completion if isinstance(completion, str) else _content(completion[-1])


def _content(message: dict[str, Any]) -> str:
    content = message.get("content")
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)


def _parsed(number: int, line: bytes) -> tuple[int, Row]:
    try:
        row = json.loads(line)
        if not isinstance(row["row"], int) or not isinstance(row["prompt"], str | list) or not row["prompt"]:
            raise TypeError("row must be a number, and prompt a text or a list of messages")
    except (ValueError, KeyError, TypeError) as error:
        raise SpecError(f"Line {number} of {FileName.DATASET} is no canonical row: {error}.") from error
    return row["row"], row
