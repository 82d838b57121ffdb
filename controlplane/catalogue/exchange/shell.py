"""The part of a shell script that sets variables and arrays, expanded in its commands. Nothing is executed."""

import ast
import operator
import re
from collections.abc import Iterator

from controlplane.catalogue.exchange.reading import UnreadableDocument

MAX_EXPANDED = 256 * 1024
_ARRAY = re.compile(r"^[ \t]*(?:declare -a )?([A-Za-z_]\w*)(\+?)=\(((?:[^()]|\$\([^()]*\))*)\)[ \t]*$", re.MULTILINE)
_VARIABLE = re.compile(
    r"(?:export\s+|declare\s+(?:-\w+\s+)?)?([A-Za-z_]\w*)="
    r"(\"[^\"]*\"|'[^']*'|\$\(\([^\n]*\)\)|[^\s\"']*)\s*(?:#.*)?"
)
_VARIABLE_REFERENCE = re.compile(
    r"\$\{([A-Za-z_]\w*|\d+)(?:\[[@*]\])?(?::?-((?:[^{}]|\$\{[^{}]*\})*))?\}|\$([A-Za-z_]\w*)"
)
_ARITHMETIC = re.compile(r"\$\(\(((?:[^()\n]|\([^()\n]*\)){1,200})\)\)")
_OPERATIONS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Mod: operator.mod}
_PIECE = re.compile(
    r"""(?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|\$\([^()]*\)|\d?>&\d|&>|[^;&|'"\\]|\|(?!\||\s)|&(?![&\s]|$)|['"\\])+"""
)
"""Pattern of a command in a line of several, which are joined by ; && || or |."""
_QUOTED_ARRAY = re.compile(r"\"(\$\{\w+\[[@*]\]\})\"")
_SHELL = re.compile(r"(?:set [-+]|#!|cd |mkdir |ulimit |source |if |then|else|fi$|for |do$|done$|echo )")


class Script:
    """A shell script's commands, with its variables' values in place of their names."""

    def __init__(self, document: str) -> None:
        self.variables: dict[str, str] = {}
        self.used: set[str] = set()
        self._expanded = 0
        self._lines = _joined(_ARRAY.sub(self._array, document))

    def commands(self) -> Iterator[tuple[int, str]]:
        """Yield the commands with their line numbers. Raises UnreadableDocument for values that grow without end."""
        for number, line in _pieces(self._lines):
            if match := _VARIABLE.fullmatch(line.strip()):
                self.variables[match[1]] = self.expand(match[2].strip("\"'"))
            is_exported = line.lstrip().startswith("export ")  # also an environment variable of the command
            if is_exported and match:
                self.used.add(match[1])
            if is_exported or not (match or _SHELL.match(line.strip())):
                yield number, self.expand(line)

    @property
    def unused(self) -> list[str]:
        return [name for name in self.variables if name not in self.used]

    def expand(self, text: str) -> str:
        expanded = _VARIABLE_REFERENCE.sub(self._value, _QUOTED_ARRAY.sub(r"\1", text))
        expanded = _ARITHMETIC.sub(self._computed, expanded)
        self._expanded += len(expanded)
        if self._expanded > MAX_EXPANDED:
            raise UnreadableDocument("The script's variables are too long when they are expanded.")
        return expanded

    def _computed(self, match: re.Match[str]) -> str:
        """Return the result of whole-number arithmetic, or the text itself if it has anything else."""
        try:
            return str(self._number(ast.parse(match[1].strip(), mode="eval").body))
        except (SyntaxError, ValueError, ArithmeticError, RecursionError):
            return match[0].replace(" ", "")

    def _number(self, node: ast.expr) -> int:
        match node:
            case ast.Constant(value=int(number)):
                return number
            case ast.Name(id=name) if name in self.variables:
                self.used.add(name)
                return int(self.variables[name])
            case ast.BinOp(left=left, op=ast.Div(), right=right):
                return int(self._number(left) / self._number(right))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATIONS:
                result: int = _OPERATIONS[type(op)](self._number(left), self._number(right))
                if abs(result) < 10**15:
                    return result
        raise ValueError

    def _array(self, match: re.Match[str]) -> str:
        items = " ".join(line.partition(" #")[0].strip() for line in match[3].splitlines() if line.strip()[:1] != "#")
        before = self.variables.get(match[1], "") if match[2] else ""
        self.variables[match[1]] = f"{before} {items}".strip()
        return "\n" * match[0].count("\n")

    def _value(self, match: re.Match[str]) -> str:
        name, default = match[1] or match[3], match[2]
        self.used.add(name)
        value = self.variables.get(name, default)
        if value is None:
            return match[0]
        return _VARIABLE_REFERENCE.sub(
            lambda inner: self.variables.get(inner[1] or inner[3], inner[2] or inner[0]), value
        )


def _joined(document: str) -> list[tuple[int, str]]:
    """Return the lines that contain commands, each joined with the lines that continue it."""
    lines: list[tuple[int, str]] = []
    first_number, continued = 0, ""
    for number, line in enumerate(document.splitlines(), 1):
        first_number = first_number if continued else number
        if continued and line.lstrip().startswith("#"):
            # A comment ends the command, as in a shell, and must not hide the lines after it.
            lines.append((first_number, continued))
            continued = ""
            continue
        if line.rstrip().endswith("\\"):
            continued += line.rstrip()[:-1] + " "
            continue
        if (continued + line).strip() and not line.lstrip().startswith("#"):
            lines.append((first_number, continued + line))
        continued = ""
    return [*lines, (first_number, continued)] if continued.strip() else lines


def _pieces(lines: list[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Yield each command of lines with several, such as `cd x && python y | tee z`."""
    for number, line in lines:
        for piece in _PIECE.findall(line):
            if piece.strip():
                yield number, piece
