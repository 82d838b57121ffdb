"""The reader process, which runs a verb on a folder, with JSON arguments on stdin and the result on stdout.

The limits are set before a verb's modules are imported. Exit codes: 0, limits.MEMORY_EXCEEDED, limits.TIME_EXCEEDED,
ENOSPC for a full disk, 2 for a wrong command line; 1 with a traceback for unexpected errors.
"""

import errno
import gc
import json
import os
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from controlplane.catalogue.datasets.reader import limits
from controlplane.platform.datafolder import FULL_DISK_ERRORS

VERBS = {
    "check": ("checking.check_file", "run"),
    "import": ("versions.import_rows", "run"),
    "render": ("prompts.render_rows", "run"),
    "tools": ("prompts.tool_template", "run"),
    "find": ("versions.find_rows", "find"),
    "derive": ("versions.derive_rows", "run"),
    "export": ("versions.find_rows", "export"),
    "corpus": ("corpus_rows", "run"),
    "search": ("corpus_rows", "search"),
    "sample": ("sample_rows", "export"),
}
"""Module in this package and function for each verb, called with the folder and the arguments. The result is written as
JSON; a function named `export` writes a file to stdout itself."""


def main(argv: list[str]) -> int:
    if len(argv) != 3 or argv[2] not in VERBS:
        print(f"usage: python -m {__package__} FOLDER {{{','.join(VERBS)}}} < ARGUMENTS", file=sys.stderr)
        return 2
    folder, verb = Path(argv[1]), argv[2]
    limits.apply()
    gc.set_threshold(200_000, 50, 100)  # many short-lived rows, none of them in a reference cycle
    try:
        arguments: dict[str, Any] = json.loads(sys.stdin.buffer.read() or b"{}")
        module, name = VERBS[verb]
        function: Callable[..., Any] = getattr(import_module(f"{__package__}.{module}"), name)
        if name == "export":
            function(folder, arguments, sys.stdout.buffer)
        else:
            sys.stdout.write(json.dumps(function(folder, arguments)))
        sys.stdout.flush()
    except MemoryError:
        print("MemoryError", file=sys.stderr)
        return limits.MEMORY_EXCEEDED
    except limits.CpuTimeExceeded:
        return limits.TIME_EXCEEDED
    except OSError as error:
        if error.errno not in FULL_DISK_ERRORS:
            raise
        print(error, file=sys.stderr)
        return errno.ENOSPC
    return 0


if __name__ == "__main__":
    code = main(sys.argv)
    sys.stderr.flush()
    os._exit(code)  # all is written; a regular exit sometimes aborts in Arrow's threads
