"""Reward functions whose text stands in an imported script, each with the imports, constants and functions it needs."""

import ast
import textwrap
from collections.abc import Iterable, Iterator

from workers.sandbox.requirements.syntax import parsed

MAX_FUNCTIONS = 20


def cut_out(script: str, names: Iterable[str]) -> dict[str, str]:
    """Return the source of those of the functions that a script defines, by name; nothing of it is executed."""
    script = textwrap.dedent(script)
    tree = parsed(script)
    if isinstance(tree, str):
        return {}
    defined = {name: node for node in tree.body for name in _defines(node)}
    functions = [name for name in dict.fromkeys(names) if isinstance(defined.get(name), ast.FunctionDef)]
    return {name: _source(script, tree, defined, name) for name in functions[:MAX_FUNCTIONS]}


def _source(script: str, tree: ast.Module, defined: dict[str, ast.stmt], name: str) -> str:
    needed, open_names = set[str](), [name]
    while open_names:
        current = open_names.pop()
        if current in defined and current not in needed:
            needed.add(current)
            open_names += [node.id for node in ast.walk(defined[current]) if isinstance(node, ast.Name)]
    parts = [node for node in tree.body if needed & set(_defines(node))]
    lines = script.splitlines()
    texts = ["\n".join(lines[_first_line(node) - 1 : node.end_lineno]) for node in parts]
    at = next(place for place, node in enumerate(parts) if node is defined[name])
    texts[at] = texts[at].replace(f"def {name}(", "def reward(", 1)
    return "\n\n".join(texts) + "\n"


def _first_line(node: ast.stmt) -> int:
    decorators = node.decorator_list if isinstance(node, ast.FunctionDef | ast.ClassDef) else []
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def _defines(node: ast.stmt) -> Iterator[str]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield node.name
        case ast.Assign(targets=targets):
            yield from (target.id for target in targets if isinstance(target, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            yield from ((alias.asname or alias.name).partition(".")[0] for alias in names)
