"""The regular expressions of the product with what each is used for, and how their time grows with hostile texts."""

from __future__ import annotations

import ast
import re
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

USES = {"match", "fullmatch", "search", "sub", "subn", "split", "findall", "finditer"}
WHOLE = {"match", "fullmatch"}
Pattern = re.Pattern[str] | re.Pattern[bytes]
UNITS = [
    *" \n\t.0aA([{<\"'\\-=_*#`:,;/$&%|>!?@~+^",
    *("a ", "a.", "0.", "a=", "\t ", "a,", " \n", "\r\n", "aA", "a\n", "a(", " a(", "- ", "a-", "0,", "a: ", "é", "<a"),
]
"""Texts that are repeated: each alone and with an end that no pattern expects."""
ENDS = ("", "!", "\n\0")
QUICK_S = 0.02
"""A time below this is noise."""
LENGTHS = (500, 2_000, 8_000, 32_000)
"""Characters of the texts that are tried, the shortest first: an exponential pattern ends at the first."""
HARMLESS_S = QUICK_S / 20
"""A time that stays below QUICK_S for a text of four times the length even if it grows with the square."""


def patterns(root: Path) -> Iterator[tuple[str, Pattern, set[str]]]:
    """Yield (place, pattern, uses) for each pattern that is written as a constant."""
    for package in ("controlplane", "runs", "workers"):
        for path in sorted((root / package).rglob("*.py")):
            if "migrations" not in path.parts:
                yield from _of_module(path, str(path.relative_to(root)))


def _of_module(path: Path, name: str) -> Iterator[tuple[str, Pattern, set[str]]]:
    source = path.read_text()
    if "re." not in source:
        return
    tree = ast.parse(source)
    names: dict[int, str] = {}
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(targets[0], ast.Name):
            names[id(node.value)] = targets[0].id
    for node in ast.walk(tree):
        if (pattern := _pattern(node, USES)) is not None:
            yield f"{name}:{node.lineno}", pattern, {node.func.attr}
        elif (pattern := _pattern(node, {"compile"})) is not None:
            used = set(re.findall(rf"\b{names[id(node)]}\.(\w+)", source)) & USES if id(node) in names else set()
            # Used elsewhere, or out of a table: any use is possible.
            yield f"{name}:{node.lineno}", pattern, used or USES


def _pattern(node: ast.AST, functions: set[str]) -> Pattern | None:
    """Compile the constant pattern of re.FUNCTION(pattern, …, flags); None for any other node."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in functions):
        return None
    if not (isinstance(node.func.value, ast.Name) and node.func.value.id == "re" and node.args):
        return None
    if not (isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str | bytes)):
        return None
    written = [ast.unparse(value) for value in (*node.args[1:], *(keyword.value for keyword in node.keywords))]
    flags = re.NOFLAG
    for text in written:
        for flag in re.findall(r"\bre\.([A-Z]+)\b", text):
            flags |= getattr(re, flag)
    return re.compile(node.args[0].value, flags)


def growth(pattern: Pattern, uses: set[str]) -> tuple[float, str]:
    """Compare a text's time with that of a quarter of it: 4 if linear, 16 if quadratic. Return the largest ratio of
    all texts and its text's unit; 0 if no text of LENGTHS takes long."""
    return max(((_growth(pattern, uses, unit, end), unit + end) for unit in UNITS for end in ENDS), default=(0.0, ""))


def _growth(pattern: Pattern, uses: set[str], unit: str, end: str) -> float:
    texts = [unit * (length // len(unit)) + end for length in LENGTHS]
    for quarter, text in pairwise(["", *texts]):
        long = _seconds(pattern, uses, text)
        if long >= QUICK_S:
            return long / max(min(_seconds(pattern, uses, quarter) for _ in range(3)), 1e-6)
        if text is texts[-2] and long < HARMLESS_S:
            break
    return 0.0


def _seconds(pattern: Any, uses: set[str], text: Any) -> float:
    text = text.encode() if isinstance(pattern.pattern, bytes) else text
    began = time.process_time()
    if uses & WHOLE:
        pattern.match(text)
        pattern.fullmatch(text)
    if uses - WHOLE:
        for _ in pattern.finditer(text):
            pass
    return time.process_time() - began
