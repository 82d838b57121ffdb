"""Row numbers as people paste them, or as a run's difficulty map exports them."""

import json
import re
from typing import Any

from controlplane.platform.confined.tasks import ConfinedTask

MAX_ROWS = 200_000
"""Maximum number of row numbers in a pasted list."""
_NUMBER = re.compile(r"\d{1,18}")


def parse(text: str) -> tuple[int, ...]:
    """Parse row numbers from {"rows": [numbers]} or a list as JSON, from one object with a "row" per line, or from
    numbers with any separators. Raises ValueError with a message for people."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        numbers = _numbers_in_lines(text)
    else:
        rows = document.get("rows") if isinstance(document, dict) else document
        if isinstance(document, dict) and rows is None and "row" in document:
            rows = [document["row"]]
        numbers = [_number(row) for row in rows] if isinstance(rows, list) else [_number(rows)]
    if not numbers:
        raise ValueError("There are no row numbers in it.")
    if len(numbers) > MAX_ROWS:
        raise ValueError(f"You can list at most {MAX_ROWS:,} row numbers. Use a filter for more.")
    return tuple(sorted(set(numbers)))


read = ConfinedTask(parse, "Reading these row numbers", (ValueError,))


def _numbers_in_lines(text: str) -> list[int]:
    if text.lstrip().startswith("{"):
        try:
            return [_number(json.loads(line).get("row")) for line in text.splitlines() if line.strip()]
        except (ValueError, AttributeError, RecursionError) as error:
            raise ValueError("This is neither a list of numbers nor the export of a difficulty map.") from error
    return [_number(number) for number in re.split(r"[\s,;|]+", text.strip()) if number]


def _number(value: Any) -> int:
    if isinstance(value, bool) or not _NUMBER.fullmatch(str(value)):
        raise ValueError(f"“{str(value)[:40]}” is not a row number.")
    return int(value)
