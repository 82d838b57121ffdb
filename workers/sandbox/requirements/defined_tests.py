"""Running of functions and classes that a test only defines, as in pytest and unittest, until the first failure."""

import sys
from typing import Any


def prepare(test: str) -> None:
    """Keep a test's `unittest.main()` from ending the process; `run` runs the tests instead."""
    if "unittest" in test and "main" in test:
        import unittest

        unittest.main = lambda *_, **__: None  # type: ignore[assignment]


def run(test: Any) -> None:
    """Run a function, a unittest.TestCase, or a class with test methods. Raises the exceptions of the test."""
    if not isinstance(test, type):
        test()
        return
    unittest = sys.modules.get("unittest")
    if unittest is not None and issubclass(test, unittest.TestCase):
        unittest.defaultTestLoader.loadTestsFromTestCase(test).debug()
        return
    _call(test, "setup_class")
    for name, method in list(vars(test).items()):
        if name.startswith("test") and callable(method):
            instance = test()
            _call(instance, "setup_method", method)
            getattr(instance, name)()
            _call(instance, "teardown_method", method)
    _call(test, "teardown_class")


def _call(holder: Any, name: str, *arguments: Any) -> None:
    function = getattr(holder, name, None)
    if function is not None:
        code = function.__func__.__code__
        function(*arguments[: code.co_argcount - 1])
