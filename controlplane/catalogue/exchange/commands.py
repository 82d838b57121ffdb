"""Command lines of launchers, TRL and vLLM, read into one mapping of their options and environment variables."""

import re
import shlex
from typing import Any

import yaml

from controlplane.catalogue.exchange import reporting
from controlplane.catalogue.exchange.keys import put
from controlplane.catalogue.exchange.reading import UnreadableDocument
from controlplane.catalogue.exchange.shell import Script
from controlplane.platform import safe_yaml
from workers.contract.stack.commands import environment_problem

MAX_ARGUMENTS = 5000
MAX_CHARACTERS = 64 * 1024
PROGRAM = re.compile(
    r"(?:[A-Za-z_]\w*=\S*\s+|export\s+\S|\$\s+)*(?:accelerate|trl|torchrun|deepspeed|axolotl|vllm|uv|swift|megatron|ray|rl|llamafactory-cli|python[\d.]*|\S*/python[\d.]*)\s"
)
VARIABLE = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
PROGRAMS = ("env", "slurm", "openai")
"""Sections of options of an Atropos environment; `env` alone means environment variables."""
NUMBER = re.compile(r"-?[.\d]")
DEVICES = {"CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"}

ALIASES = {
    "model_name": "model_name_or_path",
    "model": "model_name_or_path",
    "batch_size": "per_device_train_batch_size",
    "grad_accum_steps": "gradient_accumulation_steps",
    "training_steps": "max_steps",
    "kl_coef": "beta",
    "clip_eps": "epsilon",
    "group_size": "num_generations",
    "optimizer": "optim",
    "gpu_memory_utilization": "vllm_gpu_memory_utilization",
    "vllm_gpu_utilization": "vllm_gpu_memory_utilization",
    "tensor_parallel_size": "vllm_tensor_parallel_size",
    "max_model_len": "vllm_max_model_length",
    "nproc_per_node": "num_processes",
    "num_gpus": "num_processes",
    "use_deepspeed": "deepspeed",
}
"""Option names of vLLM and of other trainers -> TRL's names."""


def is_command(document: str) -> bool:
    lines = [line.strip() for line in document.splitlines() if line.strip() and not line.strip().startswith("#")]
    first_words = [piece.strip() for line in lines[:500] for piece in line.split("&&")]
    return any(PROGRAM.match(f"{words} ") or words.startswith("export ") for words in first_words) or (
        bool(lines) and lines[0].startswith("--")
    )


def options(document: str) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """Return the settings by name, and the skipped parts as (part, reason) pairs. Raises UnreadableDocument if the
    command line is too long or can't be parsed."""
    if len(document) > MAX_CHARACTERS:
        raise UnreadableDocument(f"The command line is longer than {MAX_CHARACTERS // 1024} KB, the limit.")
    settings: dict[str, Any] = {}
    skipped: list[tuple[str, str]] = []
    script = Script(document)
    for line_number, line in script.commands():
        if not is_command(line):
            skipped.append((f"line {line_number}: {line.strip()}"[:80], NOT_A_COMMAND))
            continue
        try:
            arguments = shlex.split(line.replace('"$@"', "").replace("$@", ""), comments=True)
        except ValueError as error:
            raise UnreadableDocument(f"Line {line_number}: {str(error).lower()}.") from error
        if len(arguments) > MAX_ARGUMENTS:
            raise UnreadableDocument(f"Line {line_number} has more than {MAX_ARGUMENTS} arguments.")
        _command(arguments, settings, skipped)
    skipped += [(name, "No command that is read uses this variable.") for name in script.unused]
    return settings, skipped


def _command(arguments: list[str], settings: dict[str, Any], skipped: list[tuple[str, str]]) -> None:
    while arguments and (arguments[0] in ("export", "$", "env") or VARIABLE.fullmatch(arguments[0])):
        name, equals, value = arguments.pop(0).partition("=")
        if equals:
            add_variable(name, value, settings, skipped)
    program: list[str] = []
    while arguments:
        argument = arguments.pop(0)
        if argument == "--":
            continue
        if redirect := REDIRECT.fullmatch(argument):
            target = [] if redirect[1] else arguments[:1]
            del arguments[: len(target)]
            skipped.append((" ".join([argument, *target])[:80], "The control plane keeps the output of a run."))
            continue
        if match := OVERRIDE.fullmatch(argument):
            put(settings, match[1], _scalar(match[2]))
            continue
        if not argument.startswith("-") or argument == "-" or NUMBER.match(argument):
            program.append(argument)
            continue
        name, equals, value = argument.lstrip("-").partition("=")
        values = [value] if equals else _values(arguments)
        # A launcher's flags precede the script, so that the values after a flag may include the script.
        if (script := next((at for at, value in enumerate(values) if SCRIPT.fullmatch(value)), None)) is not None:
            arguments[:0], values = values[script:], values[:script]
            if not equals and SCRIPT.fullmatch(arguments[0]):
                program.append(arguments.pop(0))
        if name == "m":
            program += values[:1]
            arguments[:0] = values[1:]
            continue
        _option(name.replace("-", "_"), values, settings)
    _program(program, settings, skipped)


def _values(arguments: list[str]) -> list[str]:
    values: list[str] = []
    while arguments and (not arguments[0].startswith("-") or NUMBER.match(arguments[0])):
        if OVERRIDE.fullmatch(arguments[0]) or REDIRECT.fullmatch(arguments[0]):
            break
        values.append(arguments.pop(0))
    return values


def _option(name: str, values: list[str], settings: dict[str, Any]) -> None:
    section, dot, rest = name.partition(".")
    name = f"{section}_{rest}" if dot and section in PROGRAMS else name
    if not values:
        is_off = name.startswith("no_")
        put(settings, name.removeprefix("no_") if is_off else name, not is_off)
    else:
        scalars = [_scalar(value) for value in values]
        put(settings, name, scalars[0] if len(scalars) == 1 else scalars)


def _scalar(argument: str) -> Any:
    """Parse an argument as a YAML scalar; return it unchanged if it isn't one."""
    try:
        value = safe_yaml.load(argument.encode())
    except (safe_yaml.YamlRefused, yaml.YAMLError, UnicodeEncodeError):
        return argument
    return argument if value is None or isinstance(value, dict) else value


def add_variable(name: str, value: str, settings: dict[str, Any], skipped: list[tuple[str, str]]) -> None:
    """Add an environment variable to the settings, or to `skipped` with the reason."""
    if name in DEVICES:
        skipped.append((name, "A run gets its GPUs when it starts; a hardware profile can pin them."))
    elif name == "NPROC_PER_NODE":
        settings["nproc_per_node"] = value
    elif name in reporting.VARIABLES:
        settings[name] = value
    elif problem := environment_problem(name, value):
        skipped.append((name, problem))
    else:
        settings.setdefault("env", {})[name] = value


OVERRIDE = re.compile(r"[+~]{0,2}([A-Za-z_]\w*(?:\.\w+)*)=(.*)", re.DOTALL)
REDIRECT = re.compile(r"(?:\d?>{1,2}|&>|<)(\S*)|\d>&\d")
SCRIPT = re.compile(r"\S+\.py")
NOT_A_COMMAND = "Not a command that starts training or a server."
UNREAD_WORD = "This word of the command isn't read."
NOT_RUN = "The control plane's own trainer runs, not this program."
LAUNCHERS = re.compile(
    r"accelerate|launch|trl|grpo|vllm|serve|vllm-serve|torchrun|deepspeed|axolotl|train|uv|run|swift|rlhf|megatron|ray"
    r"|job|submit|rl|llamafactory-cli|\S*python[\d.]*|\$"
)


def _program(arguments: list[str], settings: dict[str, Any], skipped: list[tuple[str, str]]) -> None:
    model = ""
    if any("vllm" in argument for argument in arguments):
        settings.update(use_vllm=True, vllm_mode="server")
        if "serve" in arguments[:-1]:
            model = arguments[arguments.index("serve") + 1]
            settings.setdefault("model", model)
    if "deepspeed" in arguments[:3]:
        settings.setdefault("deepspeed", True)
    files = [argument for argument in arguments if argument.endswith((".yaml", ".yml", ".json"))]
    known = {*files, model, *(argument for argument in arguments if LAUNCHERS.fullmatch(argument))}
    words = [argument for argument in arguments if argument not in known]
    skipped += [(word[:80], NOT_RUN if SCRIPT.fullmatch(word) or "." in word else UNREAD_WORD) for word in words]
    skipped += [(file, "A file on your machine can't be read from here; import its content, too.") for file in files]
