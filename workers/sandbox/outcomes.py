"""The sandbox's public types: jobs, their limits, and their outcomes."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Backend(StrEnum):
    """An isolation method; the best one whose self-test passes is used."""

    BUBBLEWRAP = "bubblewrap"
    """Separate user, pid, network, mount, ipc and uts namespaces, with seccomp and rlimits."""
    LANDLOCK = "landlock"
    """Landlock, seccomp and rlimits, for systems without user namespaces."""
    BARE = "bare"
    """A separate process with rlimits and, if possible, seccomp; used only if an admin allows it for a host."""


class Kind(StrEnum):
    """How an evaluation ended."""

    OK = "ok"
    ERROR = "error"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    OUTPUT = "output"
    KILLED = "killed"
    """The process was killed by a signal, or ended without a result."""


_MAX_MB = 1 << 24
_MAX_BYTES = 1 << 30
_BOUNDS = (
    ("seconds", 0.001, 7 * 24 * 3600),
    ("memory_mb", 1, _MAX_MB),
    ("disk_mb", 0, _MAX_MB),
    ("output_bytes", 0, _MAX_BYTES),
    ("value_bytes", 1, _MAX_BYTES),
)


@dataclass(frozen=True)
class Limits:
    """The limits on an evaluation; for tests, on each of the two processes."""

    seconds: float = 5.0
    """Limit on wall-clock time, and also on processor time."""
    memory_mb: int = 256
    """Limit on the address space of the process (which can't fork), in addition to that of the prewarmed
    interpreter."""
    disk_mb: int = 16
    """Size of the tmpfs at the working directory. With 0, and always under Landlock, nothing can be written."""
    output_bytes: int = 64 * 1024
    """Limit on the size of stdout and of stderr; exceeding it ends the evaluation."""
    value_bytes: int = 1024 * 1024

    def __post_init__(self) -> None:
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
    """Plain values: None, bool, int, float, str, bytes, and lists, tuples, sets and dicts of them."""
    stdin: str | None = None
    """Standard input, of any length; None for an empty one."""


@dataclass(frozen=True)
class Program:
    """A trusted executable with untrusted input. It may start threads, but has no more access to files than a Job."""

    argv: tuple[str, ...]
    stdin: str = ""


@dataclass(frozen=True)
class TestJob:
    """Tests for a model-written module, each of them Python code that fails by raising an exception."""

    source: str
    tests: tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    kind: Kind
    value: Any = None
    """Result of the function as a plain value; for a Program, its exit code."""
    stdout: str = ""
    stderr: str = ""
    seconds: float = 0.0
    message: str = ""
    """Description of the exception or the exceeded limit in one line, for people; "" for OK."""
    traceback: str = ""
    trouble: bool = False
    """True if the sandbox itself failed, which says nothing about the code; then `kind` is KILLED."""

    @property
    def ending(self) -> str:
        """Sentence for people about an ending other than OK."""
        return self.message or f"It ended as {self.kind}."


@dataclass(frozen=True)
class TestResult:
    """The result of a test. A test without a result has failed."""

    passed: bool
    message: str = ""
    needs: str = ""
    """Why the test can't be judged ("Calculator is used as more than a function …"); such a test never passes."""


@dataclass(frozen=True)
class TestOutcome:
    results: tuple[TestResult, ...]
    candidate: Outcome

    @property
    def passed(self) -> int:
        return sum(result.passed for result in self.results)


class SandboxUnavailable(Exception):
    """Error for a machine on which no backend works. The message tells people what each backend lacks."""
