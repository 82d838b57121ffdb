"""The check of a text for valid Python, without executing it."""

import ast
import re
import warnings
from collections.abc import Iterator
from typing import NamedTuple

from workers.sandbox.requirements.syntax import is_too_deep

LONGEST = 50_000
"""Characters; the tree of a longer text would need more memory than the rows may."""
HEAD = 4_000
"""Characters in which the first line of code is searched, below comments."""
PYTHON = frozenset(("python", "python3", "py", "py3"))
"""Language names of fenced blocks."""

_FENCE = re.compile(r"^([ \t]*)(`{3,}|~{3,})[ \t]*([^\s`]*)[^\n`]*$")
_SURE = re.compile(
    r"(?:async\s+)?def\s+\w+\s*\(|class\s+\w+\s*(?:\([^)]*\))?\s*:|from\s+[\w.]+\s+import\s|@[\w.]+(?:\(.*\))?\s*$"
)
_IMPORT = re.compile(r"import\s+[\w.]+(?:\s+as\s+\w+)?(?:\s*,\s*[\w.]+(?:\s+as\s+\w+)?)*\s*(?:#.*)?$")
_DEFINITION = re.compile(r"^\s*(?:(?:async\s+)?def\s+\w+\s*\(|class\s+\w+.*:\s*$|from\s+[\w.]+\s+import\s)", re.M)
_SESSION = (">>>", "$", "%", "!")
"""Prefixes of a block's first line that mark a prompt or notebook session."""


class CodeProblem(NamedTuple):
    """A syntax error at a line and column inside the code, both from 1."""

    line: int
    column: int
    message: str


def problem(text: str) -> CodeProblem | None:
    """Find the syntax error of the code; None if it parses, or is too long or deeply nested to tell."""
    if len(text) > LONGEST or is_too_deep(text):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(text, "<code>", "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
    except SyntaxError as error:
        if error.lineno is None:
            return _at(text, text.find("\0"), error.msg)
        return CodeProblem(max(1, error.lineno), max(1, error.offset or 1), error.msg or "invalid syntax")
    except (MemoryError, RecursionError):
        # Python also reports this for long chains of operators without nested brackets.
        return CodeProblem(1, 1, "too deeply nested for Python's own parser")
    except UnicodeEncodeError as error:
        return _at(text, error.start, "half a character (a lone surrogate)")
    except ValueError as error:
        return _at(text, text.find("\0"), str(error))
    return None


def problems(text: str, *, expected: bool) -> Iterator[CodeProblem]:
    """Find the problems of a text that is or contains Python, with positions in the whole text.

    Checks fenced blocks marked as Python, otherwise the whole text if it begins as only Python does, or if code is
    `expected` because the row has tests.
    """
    if "```" in text or "~~~" in text:
        fenced = list(blocks(text))
        for line, column, code in fenced:
            if broken := problem(code):
                yield CodeProblem(broken.line + line - 1, broken.column + column - 1, broken.message)
        if fenced or any(_FENCE.match(line) for line in text.splitlines()):
            return
    if (expected or looks_like_python(text)) and (broken := problem(text)):
        yield broken


def looks_like_python(text: str) -> bool:
    """Recognise Python by its first line of code, which is unlike other languages and prose."""
    for line in text[:HEAD].split("\n"):
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            return bool(_SURE.match(stripped)) or bool(_IMPORT.match(stripped) and _DEFINITION.search(text))
    return False


def blocks(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield (line, column, code) of each closed fenced block of Python, without the fence's indentation.

    Sessions (`>>>`) are skipped: they show input and output.
    """
    lines = text.split("\n")
    opened = -1
    fence, indent, name = "", "", ""
    for number, line in enumerate(lines):
        match = _FENCE.match(line.rstrip("\r"))
        if not match:
            continue
        if opened < 0:
            opened, indent, fence, name = number, match[1], match[2], match[3].lower()
        elif match[2].startswith(fence) and not match[3]:
            inside = [line.removeprefix(indent) for line in lines[opened + 1 : number]]
            code = "\n".join(inside)
            if name in PYTHON and not code.lstrip().startswith(_SESSION):
                yield opened + 2, len(indent) + 1, code
            opened = -1


def _at(text: str, position: int, message: str) -> CodeProblem:
    position = max(0, position)
    return CodeProblem(text.count("\n", 0, position) + 1, position - text.rfind("\n", 0, position), message)
