"""Parser that reads a tool's name, description and JSON schema from a Python function's source without executing it."""

import ast
import json
import keyword
import re
from collections.abc import Mapping
from typing import Any

from workers.environments.entry import ToolDescription
from workers.sandbox.requirements.syntax import MAX_BRACKET_DEPTH, NamedFunction, is_generator, is_too_deep, parsed

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
"""Pattern of tool names that every chat format supports."""
NAME_RULE = "Letters, digits and _, starting with a letter, at most 64."
_JSON_TYPES = {
    "str": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "list": "array",
    "dict": "object",
}
_ARGUMENT = re.compile(r"\s*\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")
_SECTION = re.compile(r"(Args|Arguments|Parameters|Returns|Return|Yields|Raises|Example|Examples|Note|Notes):\s*")


class NotATool(ValueError):
    """Refusal of a source that can't be a tool; the message is the second half of a sentence."""


def is_name(text: str) -> bool:
    return bool(NAME.fullmatch(text)) and not keyword.iskeyword(text)


def describe(source: str) -> ToolDescription:
    """Describe the source's only function whose name doesn't begin with _. Raises NotATool if it can't serve as a
    tool."""
    function = _function(source)
    _check(function)
    summary, notes = _docstring(ast.get_docstring(function) or "")
    if not summary:
        raise NotATool(f"{function.name} has no docstring: its first lines tell the model what the tool does")
    arguments = function.args
    parameters = [*arguments.args, *arguments.kwonlyargs]
    if unknown_names := [name for name in notes if name not in {argument.arg for argument in parameters}]:
        raise NotATool(f"the docstring describes {unknown_names[0]}, which isn't an argument of {function.name}")
    defaults = [None] * (len(arguments.args) - len(arguments.defaults)) + [*arguments.defaults, *arguments.kw_defaults]
    properties, required = {}, []
    for argument, default in zip(parameters, defaults, strict=True):
        properties[argument.arg] = _property(argument, notes.get(argument.arg, ""), default)
        if default is None:
            required.append(argument.arg)
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    return ToolDescription(function.name, summary, schema | ({"required": required} if required else {}))


def problem(source: str) -> str:
    """Explain why the source can't be a tool, as the second half of a sentence; return "" if it can."""
    try:
        describe(source)
    except NotATool as error:
        return str(error)
    return ""


def _function(source: str) -> ast.FunctionDef:
    if is_too_deep(source):
        raise NotATool(f"it has more than {MAX_BRACKET_DEPTH} brackets within each other")
    tree = parsed(source)
    if isinstance(tree, str):
        raise NotATool(tree)
    functions = [node for node in tree.body if isinstance(node, NamedFunction)]
    public = [function for function in functions if not function.name.startswith("_")]
    if not public:
        raise NotATool("it defines no function whose name begins without _")
    if len(public) > 1:
        names = ", ".join(function.name for function in public)
        raise NotATool(f"it defines {len(public)} functions ({names}): begin the names of all but one with _")
    if isinstance(public[0], ast.AsyncFunctionDef):
        raise NotATool(f"{public[0].name} must not be async")
    return public[0]


def _check(function: ast.FunctionDef) -> None:
    name, arguments = function.name, function.args
    if not is_name(name):
        raise NotATool(f"{name} can't be a tool's name: {NAME_RULE[:1].lower()}{NAME_RULE[1:-1]}")
    if function.decorator_list:
        raise NotATool(f"{name} must have no decorator")
    if is_generator(function):
        raise NotATool(f"{name} must return its result, not yield")
    if arguments.posonlyargs:
        raise NotATool(f"{name} gets its arguments by name: there must be no /")
    for star, variable in (("*", arguments.vararg), ("**", arguments.kwarg)):
        if variable is not None:
            raise NotATool(f"{name} must not take {star}{variable.arg}: the model has to know every argument")
    for argument in (*arguments.args, *arguments.kwonlyargs):
        if not is_name(argument.arg):
            raise NotATool(f"{argument.arg} can't be an argument's name: {NAME_RULE[:1].lower()}{NAME_RULE[1:-1]}")
        if argument.annotation is None:
            raise NotATool(f"the argument {argument.arg} of {name} has no type, such as {argument.arg}: str")


def _property(argument: ast.arg, note: str, default: ast.expr | None) -> dict[str, Any]:
    assert argument.annotation is not None  # noqa: S101  # checked before
    schema = _type(argument.annotation, argument.arg)
    if note:
        schema["description"] = note
    if default is not None:
        try:
            value = ast.literal_eval(default)
            json.dumps(value, allow_nan=False)
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            return schema  # the default is known only at run time
        schema["default"] = value
    return schema


def _type(node: ast.expr, name: str) -> dict[str, Any]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        try:
            return _type(ast.parse(node.value, mode="eval").body, name)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise NotATool(f"the type of {name} can't be read") from None
    if isinstance(node, ast.Name) and node.id in _JSON_TYPES:
        return {"type": _JSON_TYPES[node.id]}
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return _union_schema([node.left, node.right], name)
    if isinstance(node, ast.Subscript):
        return _parametrised(_last_name(node.value), node.slice, name)
    raise NotATool(
        f"the type of {name}, {ast.unparse(node)[:60]}, isn't one that a model can send: use str, int, float, bool, "
        "list[…], dict[str, …], Literal[…] or … | None"
    )


def _parametrised(generic: str, type_arguments: ast.expr, name: str) -> dict[str, Any]:
    parts = type_arguments.elts if isinstance(type_arguments, ast.Tuple) else [type_arguments]
    if generic in ("list", "List") and len(parts) == 1:
        return {"type": "array", "items": _type(parts[0], name)}
    if generic in ("dict", "Dict") and len(parts) == 2:
        if _type(parts[0], name) != {"type": "string"}:
            raise NotATool(f"the keys of {name} must be str")
        return {"type": "object", "additionalProperties": _type(parts[1], name)}
    if generic == "Optional" and len(parts) == 1:
        return _union_schema([parts[0], ast.Constant(None)], name)
    if generic == "Union":
        return _union_schema(parts, name)
    if generic == "Literal":
        return _literal(parts, name)
    raise NotATool(f"the type of {name}, {generic}[…], isn't one that a model can send")


def _literal(parts: list[ast.expr], name: str) -> dict[str, Any]:
    values = [part.value for part in parts if isinstance(part, ast.Constant)]
    for kind, word in ((str, "string"), (int, "integer")):
        if values and len(values) == len(parts) and all(type(value) is kind for value in values):
            return {"type": word, "enum": values}
    raise NotATool(f"the choices of {name} must be strings or whole numbers: Literal['a', 'b']")


def _union_schema(parts: list[ast.expr], name: str) -> dict[str, Any]:
    alternatives: list[ast.expr] = []
    while parts:
        part = parts.pop(0)
        if isinstance(part, ast.BinOp) and isinstance(part.op, ast.BitOr):
            parts[:0] = [part.left, part.right]
        else:
            alternatives.append(part)
    none_parts = [part for part in alternatives if isinstance(part, ast.Constant) and part.value is None]
    types = [_type(part, name) for part in alternatives if part not in none_parts] + [
        {"type": "null"} for _ in none_parts[:1]
    ]
    if all(set(schema) == {"type"} for schema in types):
        return {"type": [schema["type"] for schema in types]}
    return {"anyOf": types}


def _docstring(text: str) -> tuple[str, Mapping[str, str]]:
    summary: list[str] = []
    notes: dict[str, str] = {}
    section, argument, indent = "", "", 0
    for line in text.splitlines():
        if not line[:1].isspace() and (heading := _SECTION.fullmatch(line)):
            section, argument = heading[1], ""
        elif not section:
            summary.append(line)
        elif section in ("Args", "Arguments", "Parameters") and line.strip():
            depth = len(line) - len(line.lstrip())
            if (entry := _ARGUMENT.fullmatch(line)) and (not argument or depth <= indent):
                argument, indent = entry[1], depth
                notes[argument] = entry[2].strip()
            elif argument:
                notes[argument] = f"{notes[argument]} {line.strip()}".strip()
    return "\n".join(summary).strip(), notes


def _last_name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else "?"
