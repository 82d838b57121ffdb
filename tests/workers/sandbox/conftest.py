"""A sandbox of each backend that this machine can do, and what must hold after every attack on it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from workers.sandbox.outcomes import Backend, Job, Kind, Limits, Outcome, SandboxUnavailable
from workers.sandbox.pool import Sandbox

BACKENDS = (Backend.BUBBLEWRAP, Backend.LANDLOCK)
LIMITS = Limits(seconds=20, memory_mb=128, disk_mb=4)
"""For attacks that shall come to their own end, on a machine that is busy."""


@pytest.fixture(scope="session")
def opened() -> Iterator[dict[Backend, Sandbox]]:
    """One sandbox of each backend that this machine has."""
    with ExitStack() as stack:
        sandboxes: dict[Backend, Sandbox] = {}
        for backend in Backend:
            with suppress(SandboxUnavailable):
                sandboxes[backend] = stack.enter_context(Sandbox(backend))
        yield sandboxes


@pytest.fixture(params=BACKENDS)
def one_of_each(request: pytest.FixtureRequest, opened: dict[Backend, Sandbox]) -> Sandbox:
    """A sandbox of each backend that has walls."""
    return choose(request.param, opened)


@pytest.fixture(params=list(Backend))
def any_sandbox(request: pytest.FixtureRequest, opened: dict[Backend, Sandbox]) -> Sandbox:
    """A sandbox of every backend: BARE too."""
    return choose(request.param, opened)


def choose(backend: Backend, opened: dict[Backend, Sandbox]) -> Sandbox:
    if backend not in opened:
        pytest.skip(f"{backend} can't be started here.")
    return opened[backend]


@pytest.fixture
def sandbox(one_of_each: Sandbox) -> Iterator[Sandbox]:
    """Afterwards nothing runs any more, and the next evaluation works."""
    before = zygote(one_of_each)
    yield one_of_each
    assert left_of(before) == []
    assert one_of_each.run([Job("def answer(): return 6 * 7", "answer")], LIMITS)[0].value == 42
    assert zygote(one_of_each) == before, "an attack ended the zygote"


@pytest.fixture
def attack(sandbox: Sandbox) -> Callable[..., Outcome]:
    """`attack(source, *arguments)` calls the source's function attack and gives what came of it."""

    def run(source: str, *arguments: object, limits: Limits = LIMITS) -> Outcome:
        call = "attack" if "def attack(" in source else None
        [outcome] = sandbox.run([Job(source, call, arguments)], limits)
        assert not outcome.trouble  # no code makes itself count as not applicable
        return outcome

    return run


@pytest.fixture
def gains(attack: Callable[..., Outcome]) -> Callable[..., list[str]]:
    """The same for a source that names what it could do: by `tried(name, action)`, for all that raise nothing."""

    def run(source: str, *arguments: object) -> list[str]:
        outcome = attack(TRIED + source, *arguments)
        assert outcome.kind is Kind.OK, outcome
        assert isinstance(outcome.value, list)
        return outcome.value

    return run


TRIED = """
import ctypes, os
libc = ctypes.CDLL(None)
done = []
def tried(name, action):
    try:
        result = action()
    except (OSError, RuntimeError, ValueError, MemoryError):
        return
    if not (isinstance(result, int) and result < 0):
        done.append(name)
"""


def open_or_skip(backend: Backend, **options: object) -> Sandbox:
    try:
        return Sandbox(backend, **options)  # type: ignore[arg-type]
    except SandboxUnavailable as error:
        pytest.skip(str(error))


def zygote(sandbox: Sandbox) -> int:
    """Its process id."""
    return sandbox._zygote.pid


def left_of(pid: int) -> list[int]:
    """Its forks once they had the time to end: an outcome may come before the kernel has taken its process away."""
    deadline = time.monotonic() + 30
    while forks_of(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return forks_of(pid)


def forks_of(pid: int) -> list[int]:
    """Every process below this one that isn't a zombie."""
    found: list[int] = []
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return found  # it ended just now
    for child in map(int, children):
        found += [child, *forks_of(child)] if alive(child) else []
    return found


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


def descriptors() -> int:
    """Open ones of this process."""
    return len(os.listdir("/proc/self/fd"))
