"""Confined tasks run in the test's own process, with real messages: most tests need their results, not their limits."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from controlplane.platform.confined import __main__ as child
from controlplane.platform.confined import messages
from controlplane.platform.confined.pool import ChildPool


def install(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ChildPool, "run", _run)


def _run(self: ChildPool, message: bytes, what: str, seconds: float, is_wanted: Callable[[], bool]) -> bytes:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(messages, "is_wanted", is_wanted)
        return child.answer_to(json.loads(message))
