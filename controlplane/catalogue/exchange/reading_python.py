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
from controlplane.catalogue.exchange.keys import put
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
    "BitsAndBytesConfig": {},
    "from_pretrained": {
        **{"model_name": "model_name_or_path", "max_seq_length": "vllm_max_model_length"},
        **{"fast_inference": "use_vllm", "pretrained_model_name_or_path": "model_name_or_path"},
    },
}
"""Calls whose arguments are settings -> their names for TRL's keys."""
UNSLOTH = ("FastLanguageModel", "FastModel", "FastVisionModel")
MODELS = (*UNSLOTH, "AutoModelForCausalLM")
SAMPLING = {"max_tokens": "max_completion_length"} | {
    name: name for name in ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
}
"""Arguments of SamplingParams that a run has arguments for -> their names in TRL."""
DATASETS = ("dataset_name", "data_files")
DATASET_NAMES = {
    **{"path": "dataset_name", "name": "dataset_config", "split": "dataset_train_split"},
    **{"data_files": "data_files", "streaming": "dataset_streaming"},
}
"""Arguments of load_dataset -> their names in TRL."""
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
OBJECTS = {"args", "peft_config", "processing_class", "tokenizer", "reward_funcs", "vllm_sampling_params"}
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
    for name, node in [*_sampling(tree), *_settings(tree)]:
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
            _set(settings, name, list(value) if isinstance(value, tuple | set) else value, skipped)
    return settings, [*skipped, *_arguments_of_factories(tree)]


def _set(settings: dict[str, Any], name: str, value: Any, skipped: list[tuple[str, str]]) -> None:
    """Set a value; a dataset is added to earlier ones, and any other earlier value is named as skipped."""
    if name in DATASETS and name in settings:
        earlier = settings[name]
        settings[name] = [*(earlier if isinstance(earlier, list) else [earlier]), value]
        return
    if settings.get(name, value) != value:
        skipped.append((name, f"The script sets it more than once; {str(settings[name])[:80]} is not used."))
    put(settings, name, value)


def _sampling(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Yield the arguments of the SamplingParams that GRPOConfig gets, not of those for trying a model."""
    given, assigned = _values_of(tree, "vllm_sampling_params")
    for value in [*given, *assigned]:
        for word in value.keywords if isinstance(value, ast.Call) else ():
            yield SAMPLING.get(word.arg or "**", f"vllm_sampling_params.{word.arg}"), word.value


def _values_of(tree: ast.Module, argument: str) -> tuple[list[ast.expr], list[ast.expr]]:
    """Return the values that calls give to an argument, and what a script assigns to the variables among them."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    given = [word.value for call in calls for word in call.keywords if word.arg == argument]
    names = {value.id for value in given if isinstance(value, ast.Name)}
    assignments = [node for node in ast.walk(tree) if isinstance(node, ast.Assign)]
    return given, [node.value for node in assignments if names & set(_names(node.targets))]


def _names(targets: list[ast.expr]) -> list[str]:
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _arguments_of_factories(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the arguments with which a script makes its reward functions, such as those of get_cosine(max_len=9)."""
    for function in _reward_functions(tree):
        for word in function.keywords if isinstance(function, ast.Call) else ():
            key = f"{reward_name(function)}.{word.arg}"
            yield key, f"Set {ast.unparse(word.value)[:80]} as a parameter of the reward's component."
        for argument in function.args if isinstance(function, ast.Call) else ():
            text = ast.unparse(argument)[:80]
            if text != reward_name(function):
                yield reward_name(function), f"Set {text} as a parameter of the reward's component."


def _reward_functions(tree: ast.Module) -> list[ast.expr]:
    """Return the reward functions of the trainer, also of a list that has a name."""
    given, assigned = _values_of(tree, "reward_funcs")
    listed = [value for value in [*given, *assigned] if isinstance(value, ast.List | ast.Tuple)]
    return [function for value in listed for function in value.elts] or [
        value for value in given if not isinstance(value, ast.List | ast.Tuple)
    ]


def reward_name(function: ast.expr) -> str:
    """Return the name of a reward function, of the one that makes it, or of the one that `partial` completes."""
    if isinstance(function, ast.Constant):
        return str(function.value)
    if not isinstance(function, ast.Call):
        return ast.unparse(function)
    name = ast.unparse(function.func)
    return ast.unparse(function.args[0]) if name.endswith("partial") and function.args else name


def _settings(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    if functions := [ast.Constant(reward_name(function)) for function in _reward_functions(tree)]:
        yield "reward_funcs", ast.fix_missing_locations(ast.List([*functions]))
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Call | ast.Assign)]
    for node in sorted(nodes, key=lambda node: (node.lineno, node.col_offset)):  # a later value replaces an earlier
        if isinstance(node, ast.Call):
            yield from _call(node)
        else:
            yield from _assignment(node.targets[0], node.value)


def _call(node: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name == "init" and isinstance(node.func, ast.Attribute):
        keys = INITS.get(getattr(node.func.value, "id", ""), {})
        yield from ((keys[argument.arg], argument.value) for argument in node.keywords if argument.arg in keys)
    owner = getattr(node.func.value, "id", "") if isinstance(node.func, ast.Attribute) else ""
    is_adapter = name == "LoraConfig" or (name == "get_peft_model" and owner in UNSLOTH)
    if name == "load_dataset":
        named_arguments = {word.arg: word.value for word in node.keywords}
        given = dict(zip(("path", "name"), node.args, strict=False)) | named_arguments
        yield from ((DATASET_NAMES.get(str(key), f"dataset_{key}"), value) for key, value in given.items())
        return
    if not is_adapter and (name not in CALLS or (name == "from_pretrained" and owner not in MODELS)):
        return
    names = LORA_NAMES if is_adapter else CALLS[name]
    if is_adapter:
        yield "use_peft", ast.copy_location(ast.Constant(True), node)
    elif name == "from_pretrained" and node.args:
        yield "model_name_or_path", node.args[0]
    for keyword in node.keywords:
        if keyword.arg is None:
            yield "**", keyword.value
        elif keyword.arg not in OBJECTS and not (keyword.arg == "model" and isinstance(keyword.value, ast.Name)):
            yield names.get(keyword.arg, keyword.arg), keyword.value


PYTHON_MAGIC = ("%%capture", "%%time", "%%timeit", "%%prun")
"""Commands of a notebook whose cell is still Python."""


def cells_of(cells: list[Any]) -> list[str]:
    return [
        _text(cell.get("source", "")) for cell in cells if isinstance(cell, dict) and cell.get("cell_type") == "code"
    ]


def without_commands(cells: list[str]) -> tuple[str, list[str]]:
    """Return the Python of a notebook's cells, or of a script made from one, and the lines that are commands of the
    notebook. `pass` stands in the place of each, which may be the only line of a branch."""
    code: list[str] = []
    commands: list[str] = []
    for cell in cells:
        if is_too_deep(cell) or not isinstance(parsed(textwrap.dedent(cell)), str):
            code.append(cell)
            continue
        first = cell.lstrip().split(maxsplit=1)[:1]
        is_python = not first or not first[0].startswith("%%") or first[0] in PYTHON_MAGIC
        continues = False
        for line in cell.splitlines():
            if line.strip() and (continues or not is_python or _is_command(line)):
                commands.append(line.strip())
                code.append("" if continues else f"{line[: len(line) - len(line.lstrip())]}pass")
                continues = line.rstrip().endswith("\\")
            else:
                code.append(line)
                continues = False
    return "\n".join(code), commands


def _is_command(line: str) -> bool:
    """Return whether a line is a command such as `!pip install x`, `%cd x` or `files = !ls`."""
    name, equals, value = line.strip().partition("=")
    start = value.strip() if equals and name.strip().isidentifier() else name
    return start[:1] in ("!", "%") and start[:2] != "!="


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
