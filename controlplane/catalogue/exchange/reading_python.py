"""Python scripts that configure training: GRPOConfig(…), LoraConfig(…), and dictionaries of hyperparameters.

Nothing is executed; only literal values are read.
"""

import ast
import re
import textwrap
from collections.abc import Iterator
from typing import Any

from controlplane.catalogue.exchange.commands import add_variable
from controlplane.catalogue.exchange.reading import UnreadableDocument
from workers.sandbox.requirements.syntax import is_too_deep, parsed

MAX_CHARACTERS = 64 * 1024
SIGNS = re.compile(
    r"\b(?:GRPOConfig|LoraConfig|GRPOTrainer)\s*\("
    r"|^[ \t]*(?:training_args\.\w+\s*=|(?:hyperparameters|environment)\s*=\s*\{)",
    re.MULTILINE,
)
CALLS = {"GRPOConfig", "LoraConfig", "ModelConfig", "GRPOTrainer"}
DICTIONARIES = {"hyperparameters", "environment"}
LORA_NAMES = {"r": "lora_r", "bias": "lora_bias", "task_type": "lora_task_type", "inference_mode": "lora_task_type"} | {
    name: f"lora_{name}" for name in ("target_modules", "modules_to_save")
}
"""Names of arguments in peft -> their names in TRL."""
INITS = {
    "wandb": {"project": "wandb_project", "name": "wandb_name", "entity": "wandb_entity"},
    "trackio": {"project": "trackio_project_name", "name": "trackio_run_name"},
}
"""Arguments of `wandb.init` and `trackio.init` -> the keys of configs."""
OBJECTS = {"args", "peft_config", "processing_class", "tokenizer"}
"""Arguments of the trainer that are configured elsewhere in the script."""


def is_python(text: str) -> bool:
    return SIGNS.search(text) is not None


def options(text: str) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """Return the settings by TRL's names, and the other parts with the reason why each is skipped. Raises
    UnreadableDocument."""
    if len(text) > MAX_CHARACTERS or is_too_deep(text):
        raise UnreadableDocument("The script is too long or nested too deeply to be read.")
    tree = parsed(textwrap.dedent(text))
    if isinstance(tree, str):
        raise UnreadableDocument(f"The script is not valid Python: {tree}.")
    settings: dict[str, Any] = {}
    skipped: list[tuple[str, str]] = []
    for name, node in _settings(tree):
        try:
            value = ast.literal_eval(node)
        except (ValueError, TypeError, RecursionError, MemoryError, SyntaxError):
            skipped.append((name, f"The value in line {node.lineno} is not a literal."))
            continue
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
    if name not in CALLS:
        return
    if name == "LoraConfig":
        yield "use_peft", ast.copy_location(ast.Constant(True), node)
    for keyword in node.keywords:
        if keyword.arg is not None and keyword.arg not in OBJECTS:
            renamed = LORA_NAMES.get(keyword.arg, keyword.arg) if name == "LoraConfig" else keyword.arg
            yield renamed, keyword.value


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
