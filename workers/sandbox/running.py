"""What a test only defines, run after it as pytest and unittest would: one failure ends it."""

from __future__ import annotations

import sys
from typing import Any


def before(text: str) -> None:
    """Of a test: `unittest.main()` in it ends no process, and records nothing; what it would run is run by `run`."""
    if "unittest" in text and "main" in text:
        import unittest

        unittest.main = lambda *_, **__: None  # type: ignore[assignment]


def run(one: Any) -> None:
    """A function, a unittest.TestCase, or a class whose methods are tests. Raises what they raise."""
    if not isinstance(one, type):
        one()
        return
    unittest = sys.modules.get("unittest")
    if unittest is not None and issubclass(one, unittest.TestCase):
        unittest.defaultTestLoader.loadTestsFromTestCase(one).debug()
        return
    _call(one, "setup_class")
    for name, method in list(vars(one).items()):
        if name.startswith("test") and callable(method):
            holder = one()
            _call(holder, "setup_method", method)
            getattr(holder, name)()
            _call(holder, "teardown_method", method)
    _call(one, "teardown_class")


def _call(of: Any, name: str, *given: Any) -> None:
    function = getattr(of, name, None)
    if function is not None:
        code = function.__func__.__code__
        function(*given[: code.co_argcount - 1])
