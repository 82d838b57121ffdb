"""Whether a text is Python that parses. Nothing of it is run."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from typing import NamedTuple

from workers.sandbox.syntax import deeper

LONGEST = 50_000
"""Characters; the tree of a longer text would take more memory than the rows themselves may."""
HEAD = 4_000
"""Characters in which the first line of code is looked for, below comments."""
PYTHON = frozenset(("python", "python3", "py", "py3"))
"""What a fenced block calls itself."""

_FENCE = re.compile(r"^([ \t]*)(`{3,}|~{3,})[ \t]*([^\s`]*)[^\n`]*$")
_SURE = re.compile(
    r"(?:async\s+)?def\s+\w+\s*\(|class\s+\w+\s*(?:\([^)]*\))?\s*:|from\s+[\w.]+\s+import\s|@[\w.]+(?:\(.*\))?\s*$"
)
_IMPORT = re.compile(r"import\s+[\w.]+(?:\s+as\s+\w+)?(?:\s*,\s*[\w.]+(?:\s+as\s+\w+)?)*\s*(?:#.*)?$")
_DEFINITION = re.compile(r"^\s*(?:(?:async\s+)?def\s+\w+\s*\(|class\s+\w+.*:\s*$|from\s+[\w.]+\s+import\s)", re.M)
_SESSION = (">>>", "$", "%", "!")
"""How the first line of a block begins that shows a session of a prompt or a notebook."""


class CodeProblem(NamedTuple):
    line: int
    """Inside the code, from 1."""
    column: int
    """From 1."""
    message: str


def problem(text: str) -> CodeProblem | None:
    """Why the code doesn't parse; None: it does, or it is too long or too deeply nested to be judged."""
    if len(text) > LONGEST or deeper(text):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(text, "<code>", "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
    except SyntaxError as error:
        if error.lineno is None:
            return CodeProblem(*_place(text, max(0, text.find("\0"))), error.msg)
        return CodeProblem(max(1, error.lineno), max(1, error.offset or 1), error.msg or "invalid syntax")
    except (MemoryError, RecursionError):
        # What Python says of a long chain of operators, too, which is no list of brackets.
        return CodeProblem(1, 1, "too deeply nested for Python's own parser")
    except UnicodeEncodeError as error:
        return CodeProblem(*_place(text, error.start), "half a character (a lone surrogate)")
    except ValueError as error:
        return CodeProblem(*_place(text, max(0, text.find("\0"))), str(error))
    return None


def problems(text: str, *, expected: bool) -> Iterator[CodeProblem]:
    """Of a text that is or has Python in it: places inside the whole text.

    Fenced blocks that call themselves Python count, else the text as a whole if it begins as only Python does, or if
    code is `expected` because the row comes with tests.
    """
    if "```" in text or "~~~" in text:
        fenced = list(blocks(text))
        for line, column, code in fenced:
            if found := problem(code):
                yield CodeProblem(found.line + line - 1, found.column + column - 1, found.message)
        if fenced or _fences(text):
            return
    if (expected or looks_like_python(text)) and (found := problem(text)):
        yield found


def looks_like_python(text: str) -> bool:
    """Whether its first line of code is one that other languages and prose don't have."""
    for line in text[:HEAD].split("\n"):
        said = line.strip()
        if said and not said.startswith("#"):
            return bool(_SURE.match(said)) or bool(_IMPORT.match(said) and _DEFINITION.search(text))
    return False


def blocks(text: str) -> Iterator[tuple[int, int, str]]:
    """(line, column, code) of each closed fenced block of Python, without the fence's indentation.

    Sessions (`>>>`) are passed over: they show what was typed, and its output.
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


def _fences(text: str) -> bool:
    return any(_FENCE.match(line) for line in text.splitlines())


def _place(text: str, at: int) -> tuple[int, int]:
    """Line and column, from 1, of a character."""
    return text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
