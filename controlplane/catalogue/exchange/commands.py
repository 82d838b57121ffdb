"""Command lines of launchers, TRL and vLLM, read into one mapping of options with the variables set before them."""

import re
import shlex
from collections.abc import Iterator
from typing import Any

import yaml

from controlplane.catalogue.exchange import reporting
from controlplane.catalogue.exchange.reading import UnreadableDocument
from controlplane.platform import safe_yaml
from workers.contract.stack.commands import environment_problem

MAX_ARGUMENTS = 5000
MAX_CHARACTERS = 64 * 1024
PROGRAM = re.compile(
    r"(?:[A-Za-z_]\w*=\S*\s+|export\s+\S|\$\s+)*(?:accelerate|trl|torchrun|deepspeed|axolotl|vllm|uv|python[\d.]*|\S*/python[\d.]*)\s"
)
VARIABLE = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
NUMBER = re.compile(r"-?[.\d]")
DEVICES = {"CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"}


def is_command(text: str) -> bool:
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("#")]
    return any(PROGRAM.match(f"{line} ") or line.startswith("export ") for line in lines[:50]) or (
        bool(lines) and lines[0].startswith("--")
    )


def options(text: str) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """Return the settings by name, and the other parts with the reasons to skip them. Raises UnreadableDocument."""
    if len(text) > MAX_CHARACTERS:
        raise UnreadableDocument(f"The command line is longer than {MAX_CHARACTERS // 1024} KB, the limit.")
    settings: dict[str, Any] = {}
    skipped: list[tuple[str, str]] = []
    skipped_lines = []
    for number, line in _lines(text):
        if not is_command(line):
            skipped_lines.append(str(number))
            continue
        try:
            arguments = shlex.split(line, comments=True)
        except ValueError as error:
            raise UnreadableDocument(f"Line {number}: {str(error).lower()}.") from error
        if len(arguments) > MAX_ARGUMENTS:
            raise UnreadableDocument(f"Line {number} has more than {MAX_ARGUMENTS} arguments.")
        _command(arguments, settings, skipped)
    if skipped_lines:
        lines = f"line {', '.join(skipped_lines[:12])}{' …' * (len(skipped_lines) > 12)}"
        skipped.append((lines, "Not a command that starts training or a server."))
    return settings, skipped


def _lines(text: str) -> Iterator[tuple[int, str]]:
    start, joined = 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        start = start if joined else number
        if line.rstrip().endswith("\\"):
            joined += line.rstrip()[:-1] + " "
            continue
        if (joined + line).strip() and not line.lstrip().startswith("#"):
            yield start, joined + line
        joined = ""
    if joined.strip():
        yield start, joined


def _command(arguments: list[str], settings: dict[str, Any], skipped: list[tuple[str, str]]) -> None:
    while arguments and (arguments[0] in ("export", "$", "env") or VARIABLE.fullmatch(arguments[0])):
        name, equals, value = arguments.pop(0).partition("=")
        if equals:
            add_variable(name, value, settings, skipped)
    program: list[str] = []
    while arguments:
        argument = arguments.pop(0)
        if not argument.startswith("-") or argument == "-" or NUMBER.match(argument):
            program.append(argument)
            continue
        name, equals, value = argument.lstrip("-").partition("=")
        values = [value] if equals else _values(arguments)
        if name == "m":
            program += values[:1]
            arguments[:0] = values[1:]
            continue
        _option(name.replace("-", "_"), values, settings)
    _program(program, settings, skipped)


def _values(arguments: list[str]) -> list[str]:
    values = []
    while arguments and (not arguments[0].startswith("-") or NUMBER.match(arguments[0])):
        values.append(arguments.pop(0))
    return values


def _option(name: str, values: list[str], settings: dict[str, Any]) -> None:
    # A launcher's flags precede the script, so that the values after a flag may include the script.
    script_index = next((n for n, value in enumerate(values) if value.endswith(".py")), None)
    values = values if script_index is None else values[:script_index]
    if not values:
        is_off = name.startswith("no_")
        settings[name.removeprefix("no_") if is_off else name] = not is_off
    else:
        scalars = [_scalar(value) for value in values]
        settings[name] = scalars[0] if len(scalars) == 1 else scalars


def _scalar(text: str) -> Any:
    """Parse an argument as a YAML scalar; return it unchanged if it isn't one."""
    try:
        value = safe_yaml.load(text.encode())
    except (safe_yaml.YamlRefused, yaml.YAMLError, UnicodeEncodeError):
        return text
    return text if value is None or isinstance(value, dict) else value


def add_variable(name: str, value: str, settings: dict[str, Any], skipped: list[tuple[str, str]]) -> None:
    """Add an environment variable to the settings, or to the rest with the reason why it is skipped."""
    if name in DEVICES:
        skipped.append((name, "A run gets its GPUs when it starts; a hardware profile can pin them."))
    elif name in reporting.VARIABLES:
        settings[name] = value
    elif problem := environment_problem(name, value):
        skipped.append((name, problem))
    else:
        settings.setdefault("env", {})[name] = value


def _program(arguments: list[str], settings: dict[str, Any], skipped: list[tuple[str, str]]) -> None:
    if any("vllm" in argument for argument in arguments):
        settings.update(use_vllm=True, vllm_mode="server")
        if "serve" in arguments[:-1]:
            settings.setdefault("model", arguments[arguments.index("serve") + 1])
    if "deepspeed" in arguments[:3]:
        settings.setdefault("deepspeed", True)
    files = [argument for argument in arguments if argument.endswith((".yaml", ".yml", ".json"))]
    skipped += [(file, "A file on your machine can't be read from here; import its content, too.") for file in files]
