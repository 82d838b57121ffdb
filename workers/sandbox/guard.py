"""A guard that keeps values from becoming code in the process of the tests.

A test may pass the candidate's values to anything: `loads = pickle.loads`, `map(eval, …)`, a library function that
evaluates strings. Such code would run in the process that decides the verdict. So from the candidate's first reply on,
the interpreter's audit event for such an action ends the test; code can't remove an audit hook.
"""

import ast
import collections
import dataclasses
import os
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

_FORBIDDEN_EVENTS = frozenset(
    (
        *("compile", "marshal.load", "marshal.loads", "pickle.find_class", "code.__new__", "function.__new__"),
        *("os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.startfile", "os.fork", "os.forkpty", "pty.spawn"),
        *("subprocess.Popen", "sqlite3.load_extension", "sqlite3.enable_load_extension"),
    )
)
_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_IMPORT_GLOBALS = vars(sys.modules["_frozen_importlib"])
"""Globals of the frames that load modules; the code of these modules belongs to a library."""
_VERIFIER = "workers.sandbox.verifier"
"""Module that calls the test; frames beyond it are not examined."""
_ALLOWED_COMPILERS = (
    (vars(ast), "parse"),  # makes a tree
    (vars(collections), "namedtuple"),  # from validated names
    (vars(dataclasses), "_create_fn"),
    (vars(dataclasses), "add_fns_to_class"),
)

Refuse = Callable[[str], BaseException]
"""Function that takes the name of an event and returns the exception to raise."""


class Guard:
    """The guard of this process, which is inactive until it is armed."""

    def __init__(self) -> None:
        self._refuse: Refuse | None = None
        self._test: CodeType | None = None
        self._is_added = False

    def add(self) -> None:
        """Add the audit hook, which remains until the process ends."""
        if not self._is_added:
            self._is_added = True
            sys.addaudithook(self._on_event)

    def arm(self, refuse: Refuse, test: CodeType) -> None:
        """Start refusing events. `test`: the running test, whose own string constants may be executed."""
        self._refuse, self._test = refuse, test

    def disarm(self) -> None:
        self._refuse = self._test = None

    def _on_event(self, event: str, args: tuple[Any, ...]) -> None:
        refuse = self._refuse
        if refuse is None:
            return
        if event == "open":
            path, mode, flags = args
            is_read = not flags & _WRITE_FLAGS if type(flags) is int else mode in (None, "r", "rb")
            if is_read or path == os.devnull:
                return
        elif event not in _FORBIDDEN_EVENTS and not event.startswith("ctypes."):
            return
        if _is_by_library(sys._getframe(1)):
            return
        if event == "compile" and self._test is not None and _as_source(args[0]) in _string_constants(self._test):
            return
        raise refuse(event)


def _is_by_library(frame: FrameType | None) -> bool:
    """Return whether a module is being loaded, or code is being created independently of any value."""
    if frame is not None and any(
        frame.f_globals is names and frame.f_code.co_name == name for names, name in _ALLOWED_COMPILERS
    ):
        return True
    while frame is not None:
        if frame.f_globals is _IMPORT_GLOBALS:
            return True
        if frame.f_globals.get("__name__") == _VERIFIER:
            return False
        frame = frame.f_back
    return False


def _as_source(source: object) -> str | None:
    if isinstance(source, bytes):
        return source.decode("utf-8", "replace").strip()
    return source.strip() if isinstance(source, str) else None


def _string_constants(code: CodeType) -> set[str]:
    """Return the string constants of a test: `exec("assert f(1) == 1")` runs code that the test's author wrote."""
    constants: set[str] = set()
    for constant in code.co_consts:
        if isinstance(constant, str):
            constants.add(constant.strip())
        elif isinstance(constant, CodeType):
            constants |= _string_constants(constant)
    return constants


GUARD = Guard()
