"""Check whether code in a text is valid Python, without executing it."""

import ast
import re
import warnings
from collections.abc import Iterator
from typing import NamedTuple

from workers.sandbox.requirements.syntax import is_too_deep

MAX_CHARACTERS = 50_000
"""Maximum length of code to check; the syntax tree of longer code would exceed the memory limit."""
HEAD_CHARACTERS = 4_000
"""Number of leading characters that are searched for the first line of code below comments."""
PYTHON_NAMES = frozenset(("python", "python3", "py", "py3"))
"""Names that mark a fenced block as Python."""

_FENCE = re.compile(r"^([ \t]*+)(`{3,}+|~{3,}+)[ \t]*+([^\s`]*+)[^\n`]*$")
_CLEARLY_PYTHON = re.compile(
    r"(?:async\s+)?def\s+\w+\s*\(|class\s+\w+\s*(?:\([^)]*\))?\s*:|from\s+[\w.]+\s+import\s|@[\w.]+(?:\(.*\))?\s*$"
)
_IMPORT = re.compile(r"import\s+[\w.]+(?:\s+as\s+\w+)?(?:\s*,\s*[\w.]+(?:\s+as\s+\w+)?)*\s*(?:#.*)?$")
_DEFINITION = re.compile(
    r"^[ \t]*+(?:(?:async\s+)?def\s+\w+\s*\(|class\s+\w+.*:[ \t\r]*$|from\s+[\w.]+\s+import\s)", re.M
)
_SESSION_PREFIXES = (">>>", "$", "%", "!")
"""Beginnings of blocks that show a session in a shell or a notebook."""


class CodeProblem(NamedTuple):
    """Syntax error at a line and column of the code, both from 1."""

    line: int
    column: int
    message: str


def problem(text: str) -> CodeProblem | None:
    """Return the syntax error of the code, or None if it parses, or if it is too long or too deeply nested to tell."""
    if len(text) > MAX_CHARACTERS or is_too_deep(text):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(text, "<code>", "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
    except SyntaxError as error:
        if error.lineno is None:
            return _problem_at(text, text.find("\0"), error.msg)
        return CodeProblem(max(1, error.lineno), max(1, error.offset or 1), error.msg or "invalid syntax")
    except (MemoryError, RecursionError):
        # Python also reports this for long chains of operators without nested brackets.
        return CodeProblem(1, 1, "too deeply nested for Python's parser")
    except UnicodeEncodeError as error:
        return _problem_at(text, error.start, "half a character (a lone surrogate)")
    except ValueError as error:
        return _problem_at(text, text.find("\0"), str(error))
    return None


def problems(text: str, *, is_code_expected: bool) -> Iterator[CodeProblem]:
    """Yield the syntax errors of a text that is or contains Python, with positions in the whole text.

    If the text has fenced blocks, those marked as Python are checked. Otherwise the whole text is, if it clearly begins
    with Python code, or if `is_code_expected` because the row has tests.
    """
    if "```" in text or "~~~" in text:
        code_blocks = list(blocks(text))
        for line, column, code in code_blocks:
            if error := problem(code):
                yield CodeProblem(error.line + line - 1, error.column + column - 1, error.message)
        if code_blocks or any(_FENCE.match(line) for line in text.splitlines()):
            return
    if (is_code_expected or looks_like_python(text)) and (error := problem(text)):
        yield error


def looks_like_python(text: str) -> bool:
    """Return whether the first line of code can only be Python, and not another language or prose."""
    for line in text[:HEAD_CHARACTERS].split("\n"):
        content = line.strip()
        if content and not content.startswith("#"):
            return bool(_CLEARLY_PYTHON.match(content)) or bool(_IMPORT.match(content) and _DEFINITION.search(text))
    return False


def blocks(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield (line, column, code) for each closed fenced block of Python, without the fence's indentation.

    Sessions with input and output (`>>>`) are skipped.
    """
    lines = text.split("\n")
    opening_line = -1
    fence, indent, name = "", "", ""
    for number, line in enumerate(lines):
        match = _FENCE.match(line.rstrip("\r"))
        if not match:
            continue
        if opening_line < 0:
            opening_line, indent, fence, name = number, match[1], match[2], match[3].lower()
        elif match[2].startswith(fence) and not match[3]:
            block_lines = [line.removeprefix(indent) for line in lines[opening_line + 1 : number]]
            code = "\n".join(block_lines)
            if name in PYTHON_NAMES and not code.lstrip().startswith(_SESSION_PREFIXES):
                yield opening_line + 2, len(indent) + 1, code
            opening_line = -1


def _problem_at(text: str, position: int, message: str) -> CodeProblem:
    position = max(0, position)
    return CodeProblem(text.count("\n", 0, position) + 1, position - text.rfind("\n", 0, position), message)
