"""A Django shell of a stack's installation that stays up: a question costs a pipe, not the start of an interpreter."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from tests.stack import ROOT, Stack

SERVE = """
import json, sys, traceback, django
django.setup()
for line in sys.stdin:
    code, names = json.loads(line)
    names = {"result": None, **names}
    try:
        exec(code, names)
        answer = [True, names["result"]]
    except Exception:
        answer = [False, traceback.format_exc()]
    print("\\x1e" + json.dumps(answer, default=str), flush=True)
"""


class Shell:
    """`shell("result = Run.objects.count()", **names)`; ends with its standard input, so with us."""

    def __init__(self, stack: Stack) -> None:
        argv = [sys.executable, "-c", SERVE]
        self._process = subprocess.Popen(
            argv, env=stack.environment, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __call__(self, code: str, **names: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([code, names]) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("\x1e"):
                fine, result = json.loads(line[1:])
                if not fine:
                    raise AssertionError(f"the code failed in the stack's Django:\n{result}")
                return result
        raise AssertionError(f"the stack's Django ended with code {self._process.wait()}")

    def close(self) -> None:
        self._process.communicate()
