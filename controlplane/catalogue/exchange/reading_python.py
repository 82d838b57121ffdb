"""Python scripts that configure training: GRPOConfig(…), LoraConfig(…), and dictionaries of hyperparameters.

Nothing is executed; only literals, and sums and products of constants, are read.
"""

import ast
import operator
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from controlplane.catalogue.exchange.commands import add_variable
from controlplane.catalogue.exchange.reading import UnreadableDocument
from workers.sandbox.requirements.syntax import is_too_deep, parsed

MAX_CHARACTERS = 64 * 1024
SIGNS = re.compile(
    r"\b(?:GRPOConfig|LoraConfig|GRPOTrainer|Fast\w*Model\.from_pretrained)\s*\("
    r"|^[ \t]*(?:training_args\.\w+\s*=|(?:hyperparameters|environment)\s*=\s*\{)",
    re.MULTILINE,
)
CALLS: dict[str, Mapping[str, str]] = {
    "GRPOConfig": {},
    "ModelConfig": {},
    "GRPOTrainer": {"model": "model"},
    "from_pretrained": {
        **{"model_name": "model_name_or_path", "max_seq_length": "vllm_max_model_length"},
        **{"fast_inference": "use_vllm", "max_lora_rank": "lora_r"},
    },
}
"""Calls whose arguments are settings -> their names for TRL's keys."""
UNSLOTH = ("FastLanguageModel", "FastModel", "FastVisionModel")
DICTIONARIES = {"hyperparameters", "environment"}
LORA_NAMES = (
    {"r": "lora_r", "bias": "lora_bias", "task_type": "lora_task_type", "inference_mode": "lora_task_type"}
    | {
        "use_gradient_checkpointing": "gradient_checkpointing",
        "random_state": "seed",
    }
    | {name: f"lora_{name}" for name in ("target_modules", "modules_to_save")}
)
"""Names of arguments in peft -> their names in TRL."""
INITS = {
    "wandb": {"project": "wandb_project", "name": "wandb_name", "entity": "wandb_entity"},
    "trackio": {"project": "trackio_project_name", "name": "trackio_run_name"},
}
"""Arguments of `wandb.init` and `trackio.init` -> the keys of configs."""
OBJECTS = {"args", "peft_config", "processing_class", "tokenizer"}
"""Arguments of the trainer that other calls in the script configure."""


def is_python(text: str) -> bool:
    return SIGNS.search(text) is not None


def options(text: str) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """Return the settings by TRL's names, and the skipped parts as (part, reason) pairs. Raises UnreadableDocument if
    the script is too long, nested too deeply, or not valid Python."""
    if len(text) > MAX_CHARACTERS or is_too_deep(text):
        raise UnreadableDocument("The script is too long or nested too deeply to be read.")
    tree = parsed(textwrap.dedent(text))
    if isinstance(tree, str):
        raise UnreadableDocument(f"The script is not valid Python: {tree}.")
    settings: dict[str, Any] = {}
    skipped: list[tuple[str, str]] = []
    constants = _constants(tree)
    for name, node in _settings(tree):
        try:
            value = _value(node, constants)
        except (ValueError, TypeError, ArithmeticError, RecursionError, MemoryError, SyntaxError):
            text_of_value = ast.unparse(node)[:80]
            skipped.append((name, f"The value in line {node.lineno}, {text_of_value}, is not a literal."))
            continue
        if name == "gradient_checkpointing" and isinstance(value, str):
            value = True  # Unsloth's own checkpointing
        if name in ("environment", "env") and isinstance(value, dict):
            for variable, content in value.items():
                add_variable(str(variable), str(content), settings, skipped)
        elif name.isupper():
            add_variable(name, str(value), settings, skipped)
        elif name == "num_gpus":
            skipped.append((name, "This may include vLLM's GPUs; choose a hardware profile instead."))
        else:
            settings[name] = list(value) if isinstance(value, tuple | set) else value
    return settings, skipped


def _settings(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield from _call(node)
        elif isinstance(node, ast.Assign):
            yield from _assignment(node.targets[0], node.value)


def _call(node: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name == "init" and isinstance(node.func, ast.Attribute):
        keys = INITS.get(getattr(node.func.value, "id", ""), {})
        yield from ((keys[argument.arg], argument.value) for argument in node.keywords if argument.arg in keys)
    owner = getattr(node.func.value, "id", "") if isinstance(node.func, ast.Attribute) else ""
    is_adapter = name == "LoraConfig" or (name == "get_peft_model" and owner in UNSLOTH)
    if name == "load_dataset" and node.args:
        yield "dataset_name", node.args[0]
        return
    if not is_adapter and (name not in CALLS or (name == "from_pretrained" and owner not in UNSLOTH)):
        return
    names = LORA_NAMES if is_adapter else CALLS[name]
    if is_adapter:
        yield "use_peft", ast.copy_location(ast.Constant(True), node)
    elif name == "from_pretrained" and node.args:
        yield "model_name_or_path", node.args[0]
    for keyword in node.keywords:
        if keyword.arg is None:
            yield "**", keyword.value
        elif keyword.arg == "reward_funcs" and isinstance(keyword.value, ast.List):
            functions: list[ast.expr] = [ast.Constant(ast.unparse(function)) for function in keyword.value.elts]
            yield "reward_funcs", ast.copy_location(ast.List(functions), keyword.value)
        elif keyword.arg not in OBJECTS and not (keyword.arg == "model" and isinstance(keyword.value, ast.Name)):
            yield names.get(keyword.arg, keyword.arg), keyword.value


def of_notebook(cells: list[Any]) -> tuple[str, list[str]]:
    """Return the Python of a notebook's cells, and their lines that are commands of the notebook."""
    sources = [cell.get("source", "") for cell in cells if isinstance(cell, dict) and cell.get("cell_type") == "code"]
    lines = [line for source in sources for line in _text(source).splitlines()]
    return (
        "\n".join(line for line in lines if line.lstrip()[:1] not in ("!", "%")),
        [line.strip() for line in lines if line.lstrip()[:1] in ("!", "%")],
    )


def _text(source: Any) -> str:
    return "".join(map(str, source)) + "\n" if isinstance(source, list) else str(source)


def _constants(tree: ast.Module) -> dict[str, Any]:
    """Return the names that are assigned exactly once, to a value that can be computed from literals."""
    targets = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    once = {name for name, count in Counter(target.id for target in targets).items() if count == 1}
    constants: dict[str, Any] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id in once:
            with suppress(ValueError, TypeError, ArithmeticError, RecursionError, MemoryError, SyntaxError):
                constants[node.targets[0].id] = _value(node.value, constants)
    return constants


OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    **{ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv},
    ast.FloorDiv: operator.floordiv,
}


def _value(node: ast.expr, constants: Mapping[str, Any]) -> Any:
    """Compute a literal, a constant's value, or numbers joined by + - * /. Raises ValueError for anything else."""
    if isinstance(node, ast.Name) and node.id in constants:
        return constants[node.id]
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        left, right = _value(node.left, constants), _value(node.right, constants)
        if not all(isinstance(side, int | float) and abs(side) < 1e15 for side in (left, right)):
            raise ValueError("not numbers")
        return OPERATORS[type(node.op)](left, right)
    return ast.literal_eval(node)


def _assignment(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, ast.Attribute) and getattr(target.value, "id", "") in ("training_args", "args", "config"):
        yield target.attr, value
    elif (
        isinstance(target, ast.Subscript)
        and ast.unparse(target.value) in ("os.environ", "environ")
        and isinstance(target.slice, ast.Constant)
        and str(target.slice.value).isupper()
    ):
        yield str(target.slice.value), value
    elif isinstance(target, ast.Name) and target.id in DICTIONARIES and isinstance(value, ast.Dict):
        if target.id == "environment":
            yield "environment", value
            return
        for key, inner in zip(value.keys, value.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield key.value, inner
