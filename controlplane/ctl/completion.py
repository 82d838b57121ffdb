"""Shell completion for bash and zsh, generated from the parser's commands, options and choices."""

import argparse
from collections.abc import Iterator

SHELLS = ("bash", "zsh")

_BASH = """_grpoctl() {
  local path="" word current="${COMP_WORDS[COMP_CWORD]}"
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case "$path $word" in
%(paths)s
    esac
  done
  local words=""
  case "$path" in
%(words)s
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
  [[ ${#COMPREPLY[@]} -gt 0 || "$current" == -* ]] || COMPREPLY=($(compgen -f -- "$current"))
}
complete -F _grpoctl grpoctl
"""


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """Return the completion script that a shell evaluates: eval "$(grpoctl completion bash)"."""
    completions = dict(_completions(parser, ""))
    command_paths = [path for path in completions if path]
    bash_script = _BASH % {
        "paths": "\n".join(f'      "{path}") path="{path}" ;;' for path in command_paths),
        "words": "\n".join(f'    "{path}") words="{" ".join(options)}" ;;' for path, options in completions.items()),
    }
    return bash_script if shell == "bash" else f"autoload -U +X bashcompinit && bashcompinit\n{bash_script}"


def _completions(parser: argparse.ArgumentParser, path: str) -> Iterator[tuple[str, list[str]]]:
    options: list[str] = []
    subcommands: list[tuple[str, argparse.ArgumentParser]] = []
    for action in parser._actions:
        options += action.option_strings
        if isinstance(action, argparse._SubParsersAction):
            subcommands += action.choices.items()
        if action.choices is not None and not action.option_strings:
            options += [str(choice) for choice in action.choices]
    yield path, options
    for name, command in subcommands:
        yield from _completions(command, f"{path} {name}")
