"""Arguments with which a reference function can be called: a row's own, calls in its texts, and made-up ones.

Code is parsed, and never run here. Made-up values are small, positive and not empty, since what a function does beyond
its task's inputs is each author's choice.
"""

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workers.sandbox.requirements.syntax import is_too_deep, parsed

NAMES = ("fn_name", "func_name", "function_name", "entry_point", "method_name")
"""Columns that name the function."""
COLUMNS = ("args", "arguments", "inputs", "input_args", "test_inputs", "example_inputs", "examples")
"""Columns with the arguments of calls: a list with a list, an object by name or a single value for each call."""
MAX_CALL_CHARS = 500
MAX_CALLS = 20
_IN_EXAMPLE = ("args", "arguments", "input", "inputs")
_WHOLE = (3, 1, 10, 7, 2, 12, 5, 100, 8, 21)
_TEXTS = ("hello", "racecar", "a", "Hello World", "abcabc", "12321", "the quick brown fox", "Zebra", "aab", "x y z")
_VALUES: Mapping[str, Sequence[Any]] = {
    "int": _WHOLE,
    "float": (2.5, 1.0, 10.25, 0.5, 3.0, 7.75, 100.0, 4.2, 9.0, 6.5),
    "str": _TEXTS,
    "bool": (True, False),
    "list": ([3, 1, 2], [5], [1, 2, 3, 4], [2, 2, 7, 2], [10, 4, 6], [9, 8, 1, 5, 3], [1, 1], [6, 2, 8, 4]),
    "dict": ({"a": 1, "b": 2}, {"x": 10}, {"k": 3, "m": 1, "z": 7}, {"a": 5, "c": 5}),
    "None": (None,),
}
_ALIASES = {"Sequence": "list", "Iterable": "list", "List": "list", "Dict": "dict", "Mapping": "dict", "Any": "int"}
_KINDS = ("int", "str", "list")
"""Types tried for parameters without annotation and default, all of one type at a time."""


@dataclass(frozen=True)
class Function:
    """Function that a reference answer defines, perhaps as a method of its class Solution."""

    name: str
    parameters: tuple[ast.arg, ...]
    """Parameters that need a value."""
    defaults: tuple[ast.expr, ...]
    doc: str


def function_of(source: str, row: Mapping[str, Any]) -> Function | None:
    """Return the function that the row asks for: the one that a column names, or that the prompt mentions, or the last
    one. Return None if the source defines none, or doesn't parse."""
    tree = "" if is_too_deep(source) else parsed(source)
    if isinstance(tree, str):
        return None
    defined = {function.name: function for function in _functions(tree)}
    public = [name for name in defined if not name.startswith("_") and name != "main"]
    named = next((name for column in NAMES if (name := str(row.get(column) or "").rpartition(".")[2]) in defined), "")
    prompt = str(row.get("prompt") or "")
    mentioned = [name for name in public if re.search(rf"\b{re.escape(name)}\b\s*[(`]", prompt)]
    name = named or next(iter(mentioned[-1:] or public[-1:]), "")
    return defined.get(name)


def own_calls(function: Function, row: Mapping[str, Any]) -> list[Any]:
    """Return the arguments that the row's columns have, or that calls in its prompt and in the docstring have."""
    for column in COLUMNS:
        if calls := list(_in_column(function, row.get(column))):
            return calls[:MAX_CALLS]
    return list(_in_text(function.name, f"{row.get('prompt') or ''}\n{function.doc}"))[:MAX_CALLS]


def made_up_calls(function: Function) -> Iterator[list[list[Any]]]:
    """Yield lists of made-up arguments, of which the first list that the function accepts is to be used."""
    given = [_annotated(parameter.annotation) for parameter in function.parameters]
    if any(values is None for values in given):
        return
    for kind in _KINDS if [] in given else _KINDS[:1]:
        values = [known or _VALUES[kind] for known in given]
        count = max(map(len, values), default=1)
        yield [[pool[(number + 3 * place) % len(pool)] for place, pool in enumerate(values)] for number in range(count)]


def _functions(tree: ast.Module) -> Iterator[Function]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield _function(node, skip=0)
        elif isinstance(node, ast.ClassDef) and node.name == "Solution":
            yield from (_function(method, skip=1) for method in node.body if isinstance(method, ast.FunctionDef))


def _function(node: ast.FunctionDef, *, skip: int) -> Function:
    places = [*node.args.posonlyargs, *node.args.args][skip:]
    required = places[: len(places) - len(node.args.defaults)] if node.args.defaults else places
    return Function(node.name, tuple(required), tuple(node.args.defaults), ast.get_docstring(node) or "")


def _annotated(annotation: ast.expr | None) -> Sequence[Any] | None:
    """Return values of an annotation's type: [] without one, or None if the type has no plain values."""
    if annotation is None:
        return []
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        inner = parsed(annotation.value)
        expression = inner.body[0] if isinstance(inner, ast.Module) and inner.body else None
        return _annotated(expression.value) if isinstance(expression, ast.Expr) else None
    if isinstance(annotation, ast.BinOp):
        return _annotated(annotation.left)
    if isinstance(annotation, ast.Subscript):
        return _inside(_type_name(annotation.value), annotation.slice)
    name = _type_name(annotation)
    return _VALUES.get(_ALIASES.get(name, name))


def _inside(name: str, inner: ast.expr) -> Sequence[Any] | None:
    """Return values of a type with parameters, such as list[str]."""
    parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
    values = [_annotated(part) for part in parts if not (isinstance(part, ast.Constant) and part.value is ...)]
    if not values or not all(values):
        return None
    kind = _ALIASES.get(name, name)
    if kind in ("Optional", "Union"):
        return values[0]
    if kind == "list" and values[0] is not None:
        lengths = (3, 1, 4, 2, 5, 3, 4, 2)
        return [[values[0][(n + at) % len(values[0])] for at in range(size)] for n, size in enumerate(lengths)]
    if kind == "dict" and len(values) == 2:
        return [
            dict(zip(values[0] or (), (values[1] or ())[n:], strict=False)) for n in range(min(3, len(values[1] or ())))
        ]
    if kind in ("tuple", "Tuple"):
        pools = [pool or [0] for pool in values]
        return [[pool[n % len(pool)] for pool in pools] for n in range(max(map(len, pools)))]
    return None


def _type_name(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _in_column(function: Function, value: Any) -> Iterator[Any]:
    value = _literal(value) if isinstance(value, str) else value
    count, names = len(function.parameters), [parameter.arg for parameter in function.parameters]
    for item in value if isinstance(value, list | tuple) else ():
        item = _literal(item) if isinstance(item, str) and item[:1] in "[{(" else item
        if isinstance(item, Mapping):
            inner = next((item[key] for key in _IN_EXAMPLE if key in item and key not in names), item)
            item = _literal(inner) if isinstance(inner, str) and inner[:1] in "[{(" else inner
        if isinstance(item, Mapping) and {*names} <= {*item}:
            yield {name: item[name] for name in names}
        elif isinstance(item, list | tuple) and len(item) == count and (count != 1 or not _is_flat(value)):
            yield list(item)
        elif count == 1 and item is not None:
            yield [item]


def _is_flat(calls: Sequence[Any]) -> bool:
    """Return whether the lists of a column are themselves values of a single parameter, since their lengths differ."""
    return len({len(call) for call in calls if isinstance(call, list | tuple)}) > 1


def _in_text(name: str, text: str) -> Iterator[list[Any] | dict[str, Any]]:
    """Yield the arguments of calls such as `add(1, 2)` in a text, each once."""
    seen = set[str]()
    for match in re.finditer(rf"(?<!def )\b{re.escape(name)}\(", text):
        for end in [at.end() for at in re.finditer(r"\)", text[match.start() : match.start() + MAX_CALL_CHARS])][:8]:
            source = text[match.start() : match.start() + end]
            tree = "" if is_too_deep(source) else parsed(source)
            statement = tree.body[0] if isinstance(tree, ast.Module) and len(tree.body) == 1 else None
            call = statement.value if isinstance(statement, ast.Expr) else None
            if not isinstance(call, ast.Call):
                continue
            try:
                places = [ast.literal_eval(argument) for argument in call.args]
                by_name = {str(part.arg): ast.literal_eval(part.value) for part in call.keywords}
            except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                break
            if source not in seen and bool(places) != bool(by_name):
                seen.add(source)
                yield places or by_name
            break


def _literal(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    if is_too_deep(text):
        return None
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
