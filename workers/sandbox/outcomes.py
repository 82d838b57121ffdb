"""Jobs for the sandbox, their limits, and their outcomes."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Backend(StrEnum):
    """The isolation method. The best one whose self-test passes is chosen."""

    BUBBLEWRAP = "bubblewrap"
    """Own user, pid, network, mount, ipc and uts namespaces, seccomp, rlimits."""
    LANDLOCK = "landlock"
    """Landlock, seccomp and rlimits, for systems without user namespaces."""
    BARE = "bare"
    """A separate process with rlimits and, if possible, seccomp: only if an admin allows it for a host."""


class Kind(StrEnum):
    """How an evaluation ended."""

    OK = "ok"
    ERROR = "error"
    """It raised, or exited early."""
    TIMEOUT = "timeout"
    MEMORY = "memory"
    OUTPUT = "output"
    """It exceeded the output limit."""
    KILLED = "killed"
    """It was killed by a signal, or ended without an answer."""


_MOST_MB = 1 << 24
_MOST_BYTES = 1 << 30
_BOUNDS = (
    ("seconds", 0.001, 7 * 24 * 3600),
    ("memory_mb", 1, _MOST_MB),
    ("disk_mb", 0, _MOST_MB),
    ("output_bytes", 0, _MOST_BYTES),
    ("value_bytes", 1, _MOST_BYTES),
)
"""Valid limits: field, minimum, maximum."""


@dataclass(frozen=True)
class Limits:
    """The limits of one evaluation; for a tested one, of each of its two processes."""

    seconds: float = 5.0
    """Wall-clock time; also limits CPU time."""
    memory_mb: int = 256
    """Address space beyond the prewarmed interpreter's; it can't fork, so this is the total."""
    disk_mb: int = 16
    """The tmpfs at the working directory; with 0, and always under Landlock, nothing can be written."""
    output_bytes: int = 64 * 1024
    """Each for stdout and stderr; more ends the evaluation."""
    value_bytes: int = 1024 * 1024
    """The size of a value passed between processes."""

    def __post_init__(self) -> None:
        """Raises ValueError for limits that can't be enforced."""
        for name, minimum, maximum in _BOUNDS:
            value = getattr(self, name)
            if not (isinstance(value, int | float) and minimum <= value <= maximum):
                raise ValueError(f"{name} is {value!r}; it must be between {minimum:g} and {maximum:,}.")


@dataclass(frozen=True)
class Job:
    """A Python module to execute, and optionally one of its functions (`call`) to call."""

    source: str
    call: str | None = None
    args: tuple[Any, ...] = ()
    """Plain values: None, bool, int, float, str, bytes, and list, tuple, set, dict of them."""


@dataclass(frozen=True)
class Program:
    """A trusted executable with untrusted standard input; it may start threads, but not read or write more than a
    Job."""

    argv: tuple[str, ...]
    stdin: str = ""


@dataclass(frozen=True)
class TestJob:
    """Tests for a model-written module; each is Python code that fails by raising."""

    source: str
    tests: tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    kind: Kind
    value: Any = None
    """The function's result, a plain value; for a Program, its exit code."""
    stdout: str = ""
    stderr: str = ""
    seconds: float = 0.0
    message: str = ""
    """One line for people unless it is ok: the exception, the limit."""
    traceback: str = ""
    trouble: bool = False
    """KILLED because the sandbox itself failed, which says nothing about the code."""


@dataclass(frozen=True)
class TestResult:
    """The result of one test. A test without an answer has failed."""

    passed: bool
    message: str = ""
    needs: str = ""
    """Why this test can't be judged at all ("Calculator is used as more than a function …"); such a test never
    passes."""


@dataclass(frozen=True)
class TestOutcome:
    results: tuple[TestResult, ...]
    candidate: Outcome
    """The process with the model's code."""
    notes: tuple[str, ...] = field(default=())

    @property
    def passed(self) -> int:
        return sum(result.passed for result in self.results)


class SandboxUnavailable(Exception):
    """No backend works on this machine. The text says what each one lacks, for people."""
