"""Tools with a real sandbox of each backend that holds here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from workers.rewards.tools import Tools
from workers.sandbox import selftest
from workers.sandbox.outcomes import Backend
from workers.sandbox.pool import Sandbox

BACKENDS = (Backend.BUBBLEWRAP, Backend.LANDLOCK)


@contextmanager
def tools_on(backend: Backend) -> Iterator[Tools]:
    """Or a skip, with what the backend lacks here."""
    why = selftest.probe().tried.get(backend, "")
    if why:
        pytest.skip(f"{backend}: {why}")
    with closing(Tools(open_sandbox=lambda preload: Sandbox(backend, preload=preload))) as tools:
        yield tools


@contextmanager
def best_tools() -> Iterator[Tools]:
    backend = selftest.probe().backend
    if backend is None:
        pytest.skip("no sandbox holds here")
    with tools_on(backend) as tools:
        yield tools
