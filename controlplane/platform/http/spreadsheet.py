"""Values for CSV files that people open in a spreadsheet."""

from __future__ import annotations

from typing import Any


def safe(value: Any) -> Any:
    """Text that a spreadsheet would run as a formula begins with an apostrophe."""
    text = isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r"))
    return f"'{value}" if text else value
