"""Tools with the real interpreter of workers.packages, where it is built."""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from workers.packages import interpreter
from workers.packages.interpreter import PackageMissing
from workers.rewards.tools import Tools
from workers.sandbox import selftest
from workers.sandbox.outcomes import Backend
from workers.sandbox.pool import Sandbox


@functools.cache
def lacks(module: str) -> str:
    """Why a module can't be used here, or ""."""
    try:
        python = interpreter.python()
    except PackageMissing as error:
        return str(error)
    found = subprocess.run([python, "-c", f"import importlib.util as u; exit(not u.find_spec({module!r}))"])
    return f"{python} has no {module}." if found.returncode else ""


@contextmanager
def tools_with(module: str, backend: Backend | None = None) -> Iterator[Tools]:
    """Or a skip, with what is missing."""
    if why := lacks(module):
        pytest.skip(why)
    backend = backend or selftest.probe().backend
    if backend is None or selftest.probe().tried.get(backend):
        pytest.skip("this sandbox doesn't hold here")
    with closing(Tools(open_sandbox=None, open_package=functools.partial(_opened, backend))) as tools:  # type: ignore[arg-type]
        yield tools


def _opened(backend: Backend, name: str) -> Sandbox:
    return interpreter.open_sandbox(name, backend)
