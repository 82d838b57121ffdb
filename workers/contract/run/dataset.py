"""The canonical dataset file, a Parquet file written by the control plane and read by the trainer.

Its columns are COLUMNS. `prompt` is a list of messages, `metadata` a JSON object, `split` TRAIN or VALIDATION, and
`row_id` ascends. The schema's metadata has {"format": FORMAT, "chat": bool} as JSON under KEY; with chat false, a
prompt is plain text, the content of its only message.
"""

import json
from collections.abc import Mapping
from typing import Any

FORMAT = 1
KEY = b"grpo"
COLUMNS = ("row_id", "prompt", "answer", "test_cases", "metadata", "split")
TRAIN, VALIDATION = "train", "validation"


def schema_metadata(*, chat: bool) -> dict[bytes, bytes]:
    return {KEY: json.dumps({"format": FORMAT, "chat": chat}, sort_keys=True).encode()}


def chat_in(metadata: Mapping[bytes, bytes] | None) -> bool:
    """Return whether prompts use a chat template, according to the schema's metadata. Raises ValueError if the file
    isn't a dataset."""
    head = json.loads((metadata or {}).get(KEY, b"{}"))
    if not isinstance(head, dict) or "format" not in head:
        raise ValueError("its schema doesn't name our format")
    if head["format"] != FORMAT:
        raise ValueError(f"it has version {head['format']} of the format, but this program reads {FORMAT}")
    return bool(head["chat"])


def row_for_rewards(row: Mapping[str, Any], metadata: Mapping[str, Any], *, chat: bool) -> dict[str, Any]:
    """Convert a row to the columns that rewards get: its metadata, "row", "prompt" (messages or a string), "answer" and
    "test_cases"."""
    prompt = row["prompt"] if chat else row["prompt"][0]["content"]
    columns = {"row": row["row_id"], "prompt": prompt, "answer": row["answer"], "test_cases": row["test_cases"]}
    return {**metadata, **columns}
