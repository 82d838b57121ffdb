"""Use of the reader process, a child with resource limits and without secrets.

`ask` is for pages: a small result within seconds. `run` is for the worker: it may take minutes, and the child is killed
once its result is no longer wanted. `stream` yields the child's output as it is written.
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
from controlplane.catalogue.datasets.reader.limits import CPU_SECONDS, MEMORY_BYTES, MEMORY_EXCEEDED, TIME_EXCEEDED
from workers.contract.wire.processes import die_with_parent
from workers.sandbox.outcomes import SandboxUnavailable
from workers.sandbox.selftest import best as best_backend

log = logging.getLogger(__name__)

PROGRAM = ("-m", "controlplane.catalogue.datasets.reader")
ASK_SECONDS = 10.0
WORK_SECONDS = 2 * 3600.0
"""Time limit of a check or an import; CPU time is limited separately."""
POLL_S = 0.5
MAX_STREAMS = 4
"""Maximum downloads at a time per web process, since each child takes about 100 MB until its download ends."""
_STREAMS = threading.BoundedSemaphore(MAX_STREAMS)
MAX_ERROR_BYTES = 2000
SPLIT_ADVICE = "Split it into smaller files."
READER_FAILED = "The reader process failed on the server. The worker's log has the details."


class ResultUnwanted(Exception):
    """Signal that a result is no longer wanted, so that the child was killed."""


def backend_for(mapping: ColumnMapping) -> dict[str, str]:
    """Choose the sandbox backend for a mapping's function, and return it as a verb's argument; {} without a function.

    Raises ChildFailed if no sandbox works on this machine.
    """
    if mapping.transform != CUSTOM:
        return {}
    try:
        return {"backend": best_backend()}
    except SandboxUnavailable as error:
        raise ChildFailed("server", f"Functions need a sandbox, but none works on this server. {error}") from error


def ask(folder: Path, verb: str, arguments: Any, *, seconds: float = ASK_SECONDS) -> Any:
    """Run a verb in the child for up to `seconds`, and return its JSON result. Raises ChildFailed."""
    with _started(folder, verb) as child:
        try:
            output, errors = child.communicate(json.dumps(arguments).encode(), timeout=seconds)
        except subprocess.TimeoutExpired as error:
            raise ChildFailed("limits", f"The server didn't finish this within {seconds:g} seconds.") from error
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
    """Run a verb in the child for up to WORK_SECONDS, and return its output.

    Raises ChildFailed, or ResultUnwanted once `is_wanted()` is False.
    """
    deadline = time.monotonic() + WORK_SECONDS
    with _started(folder, verb, program=program, environment=environment, tied=True) as child:
        message: bytes | None = json.dumps(arguments).encode()
        while True:
            try:
                output, errors = child.communicate(message, timeout=POLL_S)
                break
            except subprocess.TimeoutExpired:
                message = None
            if not is_wanted():
                raise ResultUnwanted
            if time.monotonic() > deadline:
                hours = f"{WORK_SECONDS / 3600:.0f} hours"
                raise ChildFailed("limits", f"Reading this file took longer than the limit of {hours}.", SPLIT_ADVICE)
        _raise_for_exit(child.returncode, errors, f"{verb} in {folder.name}")
    return output


def run_for_json(folder: Path, verb: str, arguments: Any, **options: Any) -> dict[str, Any]:
    """Run a verb as `run` does, and return the JSON object that it writes. `options` are those of `run`."""
    result: dict[str, Any] = _decoded(run(folder, verb, arguments, **options), folder, verb)
    return result


def stream(folder: Path, verb: str, arguments: Any) -> Iterator[bytes]:
    """Yield the child's output in pieces. Closing the generator early kills the child.

    Raises ChildFailed at the end, or at once if there are too many streams.
    """
    if not _STREAMS.acquire(blocking=False):
        message = f"{MAX_STREAMS} dataset files are already being downloaded, which is the limit."
        raise ChildFailed("limits", message, "Try again when a download has finished.")
    try:
        yield from _streamed(folder, verb, arguments)
    finally:
        _STREAMS.release()


def _decoded(output: bytes, folder: Path, verb: str) -> Any:
    try:
        return json.loads(output)
    except ValueError as error:
        log.exception("%s in %s returned invalid JSON", verb, folder.name)
        raise ChildFailed("server", READER_FAILED) from error


def _streamed(folder: Path, verb: str, arguments: Any) -> Iterator[bytes]:
    with _started(folder, verb) as child:
        if child.stdin is None or child.stdout is None or child.stderr is None:  # for mypy: all three are pipes
            raise ChildFailed("server", READER_FAILED)
        with suppress(BrokenPipeError):  # the child has already exited; its exit code says why
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
    """Start the child (PROGRAM by default) for the block, then kill it. If `tied`, it dies with this process."""
    inherited = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    # PYTHONPATH, because some installations keep their packages outside the interpreter's folder.
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
    message = errors[-MAX_ERROR_BYTES:].decode("utf-8", "replace")
    log.error("%s exited with code %s: %s", step, code, message)
    if code == errno.ENOSPC or os.strerror(errno.ENOSPC) in message:
        raise ChildFailed("disk", "The control plane's disk is full.", "Free some space, then try again.")
    exceeded = "Reading this file took more {} than the limit of {}."
    if code == MEMORY_EXCEEDED or code < 0 or message.rstrip().endswith("MemoryError"):
        raise ChildFailed("limits", exceeded.format("memory", f"{MEMORY_BYTES / 2**30:.1f} GiB"), SPLIT_ADVICE)
    if code == TIME_EXCEEDED:
        raise ChildFailed("limits", exceeded.format("CPU time", f"{CPU_SECONDS // 60} minutes"), SPLIT_ADVICE)
    raise ChildFailed("server", READER_FAILED, "The file may be fine. Try again after the server has been repaired.")
