"""Output of the commands: tables and single items for terminals, JSON or YAML for programs."""

import json
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import yaml


def as_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def table(rows: Iterable[Sequence[Any]], headings: Sequence[str]) -> None:
    """Print a table with columns as wide as needed, truncated at the terminal's width."""
    lines = [[clean(cell) for cell in row] for row in rows]
    widths = [max(len(line[i]) for line in [[*headings], *lines]) for i in range(len(headings))]
    width = shutil.get_terminal_size((120, 24)).columns if sys.stdout.isatty() else 10_000
    for line in [[name.upper() for name in headings], *lines]:
        print("  ".join(cell.ljust(widths[i]) for i, cell in enumerate(line)).rstrip()[:width])


def facts(values: dict[str, Any]) -> None:
    lines = {name: clean(value) for name, value in values.items() if value not in ("", None, [], {})}
    width = max(map(len, lines), default=0)
    for name, line in lines.items():
        print(f"{name.replace('_', ' ').ljust(width)}  {line}")


def as_yaml(value: Any) -> None:
    print(yaml.safe_dump(value, sort_keys=False, allow_unicode=True), end="")


def clean(value: Any) -> str:
    """Return a value as one line without control characters, so that names from other people can't move the cursor."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        value = ", ".join(map(str, value))
    line = "" if value is None else str(value)
    return "".join(char if char.isprintable() else " " for char in line)


def without_controls(text: str) -> str:
    """Return text from a log or a model with only plain spaces, and no control characters but line feeds and tabs."""

    def replacement(char: str) -> str:
        if char.isprintable() or char in "\n\t":
            return char
        return "" if char == "\r" else " " if char.isspace() else "�"

    return "".join(map(replacement, text))
