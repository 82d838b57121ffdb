"""Is the completion's code Python? Syntax only: nothing is compiled to byte code, nothing runs."""

from __future__ import annotations

import ast
import threading
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workers.rewards.extract import last_code_block
from workers.rewards.reward import Params, param

LONGEST_SOURCE = 50_000
DEEPEST_NESTING = 60
LONGEST_LINE_TOKENS = 2_000
"""Operators, dots and brackets of one logical line: each can be one level of the tree that the parser recurses into."""

# warnings.catch_warnings swaps a process-wide list; the web process previews from several threads.
_WARNINGS = threading.Lock()


@dataclass(frozen=True)
class PythonSyntaxParams(Params):
    needs_block: bool = param(True, "Only a fenced ``` block counts; otherwise a text without one is read whole.")
    wrong_score: float = param(0.0, "Score of code that doesn't parse, or of none.", min=-1.0, max=1.0)


def python_syntax(completion: str, row: Mapping[str, Any], params: PythonSyntaxParams) -> float:
    code = last_code_block(completion)
    if code is None and not params.needs_block:
        code = completion
    return 1.0 if code is not None and parses(code) else params.wrong_score


def parses(code: str) -> bool:
    """Whether `code` is at least one statement of Python. Text built to exhaust the parser is not."""
    if len(code) > LONGEST_SOURCE or not _is_tame(code):
        return False
    try:
        with _WARNINGS, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes and the like are the model's, not ours to print
            return bool(ast.parse(code).body)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        # ValueError: NUL bytes and lone surrogates. MemoryError: the parser's own word for too deep.
        return False


def _is_tame(code: str) -> bool:
    depth = deepest = 0
    for char in code:
        if char in "([{":
            depth += 1
            deepest = max(deepest, depth)
        elif char in ")]}":
            depth -= 1
    if deepest > DEEPEST_NESTING:
        return False
    return all(sum(line.count(sign) for sign in "+-*/%@.~<>=([{:") <= LONGEST_LINE_TOKENS for line in code.split("\n"))
