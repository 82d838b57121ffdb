"""python -m workers.trainer.vllm ARGUMENTS: vLLM's own command line, with imports that take a fifth less time."""

import contextlib
import importlib
import sys

from workers.trainer.configuration import imports

MODULES = ("vllm.entrypoints.cli.main", "vllm.entrypoints.openai.api_server")


def main() -> None:
    with imports.quick():
        for name in MODULES:
            with contextlib.suppress(ImportError):  # the command line has a better message about what is missing
                importlib.import_module(name)
    from vllm.entrypoints.cli.main import main as command_line

    sys.argv[0] = "vllm"
    command_line()


if __name__ == "__main__":
    main()
