"""What is run in the sandbox, under which limits, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Backend(StrEnum):
    """How code is held. The best one whose self-test passes is chosen."""

    BUBBLEWRAP = "bubblewrap"
    """Own user, pid, network, mount, ipc and uts namespaces, seccomp, rlimits."""
    LANDLOCK = "landlock"
    """Landlock, seccomp and rlimits, where user namespaces are refused."""
    BARE = "bare"
    """A process of its own with rlimits and, where it can be, seccomp: only when an admin allows it for a host."""


class Kind(StrEnum):
    """How an evaluation ended."""

    OK = "ok"
    ERROR = "error"
    """It raised, or ended early with an exit code."""
    TIMEOUT = "timeout"
    MEMORY = "memory"
    OUTPUT = "output"
    """It printed more than it may."""
    KILLED = "killed"
    """It died by a signal, or without an answer."""


_MOST_MB = 1 << 24
_MOST_BYTES = 1 << 30
_BOUNDS = (
    ("seconds", 0.001, 7 * 24 * 3600),
    ("memory_mb", 1, _MOST_MB),
    ("disk_mb", 0, _MOST_MB),
    ("output_bytes", 0, _MOST_BYTES),
    ("value_bytes", 1, _MOST_BYTES),
)
"""Of Limits: its field, the least and the most."""


@dataclass(frozen=True)
class Limits:
    """Of one evaluation, both processes of a tested one each."""

    seconds: float = 5.0
    """Wall-clock time; CPU time is bounded with it."""
    memory_mb: int = 256
    """Address space of the process above what the prewarmed interpreter holds; it can't fork, so this is the total."""
    disk_mb: int = 16
    """Of the tmpfs at the working directory; 0 and under Landlock always: nothing can be written."""
    output_bytes: int = 64 * 1024
    """Of stdout and of stderr each; what is beyond ends the evaluation."""
    value_bytes: int = 1024 * 1024
    """Of a value on its way between processes."""

    def __post_init__(self) -> None:
        """Raises ValueError for what no evaluation can be held to."""
        for name, least, most in _BOUNDS:
            value = getattr(self, name)
            if not (isinstance(value, int | float) and least <= value <= most):
                raise ValueError(f"{name} is {value!r}; it must be between {least:g} and {most:,}.")


@dataclass(frozen=True)
class Job:
    """A Python module to execute, and if `call` names a function of it, that function to call."""

    source: str
    call: str | None = None
    args: tuple[Any, ...] = ()
    """Plain values: None, bool, int, float, str, bytes, and list, tuple, set, dict of them."""


@dataclass(frozen=True)
class Program:
    """A trusted executable with untrusted standard input: it may start threads, never read or write more than Job."""

    argv: tuple[str, ...]
    stdin: str = ""


@dataclass(frozen=True)
class TestJob:
    """Tests to run against a module that the model wrote, each a piece of Python that fails by raising."""

    source: str
    tests: tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    kind: Kind
    value: Any = None
    """Of the function called, a plain value; of a Program its exit code."""
    stdout: str = ""
    stderr: str = ""
    seconds: float = 0.0
    message: str = ""
    """One line for people where it isn't ok: the exception, the limit."""
    traceback: str = ""
    trouble: bool = False
    """It was KILLED because the sandbox itself failed: that says nothing of what it ran."""


@dataclass(frozen=True)
class TestResult:
    """Of one test. A test that gave no answer has failed."""

    passed: bool
    message: str = ""
    needs: str = ""
    """Why this test can't be judged at all ("Calculator is used as more than a function …"); never passed."""


@dataclass(frozen=True)
class TestOutcome:
    results: tuple[TestResult, ...]
    candidate: Outcome
    """Of the process that held the model's code."""
    notes: tuple[str, ...] = field(default=())

    @property
    def passed(self) -> int:
        return sum(result.passed for result in self.results)


class SandboxUnavailable(Exception):
    """No backend holds on this machine. The text says what each one lacked, for people."""
