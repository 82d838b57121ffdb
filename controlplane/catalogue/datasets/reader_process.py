"""The process that reads files: started with limits and without secrets, and killed once nobody needs its answer.

`ask` is for pages: a small answer within seconds. `run` is for the worker: minutes, files instead of an answer, and
an early end once it is no longer wanted. `stream` yields the child's output as it is written.
"""

import errno
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from django.conf import settings

from controlplane.catalogue.datasets.errors import ChildFailed
from controlplane.catalogue.datasets.reader.columns.mapping import ColumnMapping
from controlplane.catalogue.datasets.reader.columns.transforms import CUSTOM
from controlplane.catalogue.datasets.reader.limits import CPU_SECONDS, MEMORY_BYTES, TOO_LONG, TOO_MUCH
from workers.contract.wire.processes import die_with_parent
from workers.sandbox.outcomes import SandboxUnavailable
from workers.sandbox.selftest import best as best_backend

log = logging.getLogger(__name__)

PROGRAM = ("-m", "controlplane.catalogue.datasets.reader")
ASK_SECONDS = 10.0
WORK_SECONDS = 2 * 3600.0
"""Time limit of a check or an import. CPU time has a limit of its own."""
LOOK_S = 0.5
MAX_STREAMS = 4
"""Concurrent downloads per web process: a child takes about 100 MB for as long as the browser reads."""
_STREAMS = threading.BoundedSemaphore(MAX_STREAMS)
TAIL = 2000
SMALLER = "Split it into smaller files."
BROKEN = "The reading process failed on the server; the worker's log says why."


class Unwanted(Exception):
    """The result is no longer wanted; the child was killed."""


def backend_for(mapping: ColumnMapping) -> dict[str, str]:
    """Choose the sandbox's backend, as the argument of a verb that runs the mapping's function; {} without a function.

    Raises ChildFailed if no sandbox works on this machine.
    """
    if mapping.transform != CUSTOM:
        return {}
    try:
        return {"backend": best_backend()}
    except SandboxUnavailable as error:
        raise ChildFailed("server", f"Functions need a sandbox, and none works on this server. {error}") from error


def ask(folder: Path, verb: str, arguments: Any, *, seconds: float = ASK_SECONDS) -> Any:
    """Ask the child for an answer within `seconds`. Raises ChildFailed."""
    with _started(folder, verb) as child:
        try:
            output, errors = child.communicate(json.dumps(arguments).encode(), timeout=seconds)
        except subprocess.TimeoutExpired as error:
            raise ChildFailed("limits", "This took longer than a page can wait.") from error
        _raise_for_exit(child.returncode, errors, f"{verb} in {folder.name}")
    return _decoded(output, folder, verb)


def run(
    folder: Path,
    verb: str,
    arguments: Any,
    *,
    is_wanted: Callable[[], bool],
    program: tuple[str, ...] = (),
    environment: Mapping[str, str] = MappingProxyType({}),
) -> bytes:
    """Run a long task in the child; return its answer. Raises ChildFailed, or Unwanted once `is_wanted()` is False."""
    deadline = time.monotonic() + WORK_SECONDS
    with _started(folder, verb, program=program, environment=environment, tied=True) as child:
        message: bytes | None = json.dumps(arguments).encode()
        while True:
            try:
                output, errors = child.communicate(message, timeout=LOOK_S)
                break
            except subprocess.TimeoutExpired:
                message = None
            if not is_wanted():
                raise Unwanted
            if time.monotonic() > deadline:
                hours = f"{WORK_SECONDS / 3600:.0f} hours"
                raise ChildFailed("limits", f"Reading this file took more time than is allowed, {hours}.", SMALLER)
        _raise_for_exit(child.returncode, errors, f"{verb} in {folder.name}")
    return output


def run_answer(folder: Path, verb: str, arguments: Any, **options: Any) -> dict[str, Any]:
    """Run a verb whose result is its JSON answer. `options` as for `run`."""
    answer: dict[str, Any] = _decoded(run(folder, verb, arguments, **options), folder, verb)
    return answer


def stream(folder: Path, verb: str, arguments: Any) -> Iterator[bytes]:
    """Stream the child's output, in pieces. Closing it early kills the child.

    Raises ChildFailed at the end, or at once if there are too many streams.
    """
    if not _STREAMS.acquire(blocking=False):
        message = f"{MAX_STREAMS} dataset files are being downloaded already."
        raise ChildFailed("limits", message, "Try again when one of them has finished.")
    try:
        yield from _streamed(folder, verb, arguments)
    finally:
        _STREAMS.release()


def _decoded(output: bytes, folder: Path, verb: str) -> Any:
    try:
        return json.loads(output)
    except ValueError as error:
        log.exception("%s in %s returned invalid JSON", verb, folder.name)
        raise ChildFailed("server", BROKEN) from error


def _streamed(folder: Path, verb: str, arguments: Any) -> Iterator[bytes]:
    with _started(folder, verb) as child:
        if child.stdin is None or child.stdout is None or child.stderr is None:  # for mypy: all three are pipes
            raise ChildFailed("server", BROKEN)
        with suppress(BrokenPipeError):  # it has ended already; its exit code says why
            child.stdin.write(json.dumps(arguments).encode())
            child.stdin.close()
        while piece := os.read(child.stdout.fileno(), 2**18):
            yield piece
        errors = child.stderr.read()
        _raise_for_exit(child.wait(), errors, f"{verb} in {folder.name}")


@contextmanager
def _started(
    folder: Path,
    verb: str,
    *,
    program: tuple[str, ...] = (),
    environment: Mapping[str, str] = MappingProxyType({}),
    tied: bool = False,
) -> Iterator[subprocess.Popen[bytes]]:
    """Start the child (by default PROGRAM), and kill it at the end of the block. `tied`: it also dies with this
    process."""
    inherited = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    # PYTHONPATH: where an installation keeps its packages beside the interpreter instead of in it.
    child = subprocess.Popen(
        [sys.executable, *(program or PROGRAM), str(folder), verb],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=settings.BASE_DIR,
        env=inherited | {"LANG": "C.UTF-8"} | dict(environment),
        # Only in the worker, whose processes have one thread: code between fork and exec is safe there.
        preexec_fn=partial(die_with_parent, os.getpid(), signal.SIGKILL) if tied else None,
    )
    try:
        yield child
    finally:
        child.kill()
        child.wait()
        for pipe in filter(None, (child.stdin, child.stdout, child.stderr)):
            with suppress(BrokenPipeError):
                pipe.close()


def _raise_for_exit(code: int, errors: bytes, step: str) -> None:
    if code == 0:
        return
    message = errors[-TAIL:].decode("utf-8", "replace")
    log.error("%s ended with %s: %s", step, code, message)
    if code == errno.ENOSPC or os.strerror(errno.ENOSPC) in message:
        raise ChildFailed("disk", "The disk of the control plane is full.", "Free some space, then try again.")
    exceeded = "Reading this file took more {} than is allowed, {}."
    if code == TOO_MUCH or code < 0 or message.rstrip().endswith("MemoryError"):
        raise ChildFailed("limits", exceeded.format("memory", f"{MEMORY_BYTES / 2**30:.1f} GiB"), SMALLER)
    if code == TOO_LONG:
        raise ChildFailed("limits", exceeded.format("CPU time", f"{CPU_SECONDS // 60} minutes"), SMALLER)
    raise ChildFailed("server", BROKEN, "The file may be fine. Try again once the server is repaired.")
