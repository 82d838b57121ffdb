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
from typing import Any, Self

from django.conf import settings

from controlplane.catalogue.datasets.errors import ChildFailed
from controlplane.catalogue.datasets.reader.columns.mapping import ColumnMapping
from controlplane.catalogue.datasets.reader.columns.transforms import CUSTOM
from controlplane.catalogue.datasets.reader.limits import CPU_SECONDS, MEMORY_BYTES, MEMORY_EXCEEDED, TIME_EXCEEDED
from controlplane.platform.confined.limits import Busy, Slots
from controlplane.platform.confined.messages import MAX_RESULT_BYTES
from controlplane.platform.datafolder import FULL_DISK_ERRORS
from workers.contract.wire.processes import die_with_parent
from workers.sandbox.outcomes import SandboxUnavailable
from workers.sandbox.selftest import best as best_backend

log = logging.getLogger(__name__)

PROGRAM = ("-m", "controlplane.catalogue.datasets.reader")
ASK_SECONDS = 10.0
WORK_SECONDS = 2 * 3600.0
"""Time limit of a check or an import; CPU time is limited separately."""
POLL_S = 0.5
PIECE_BYTES = 2**18
END_S = 2.0
MAX_STREAMS = 4
"""Maximum concurrent downloads per web process, since each child takes about 100 MB until its download ends."""
_STREAMS = threading.BoundedSemaphore(MAX_STREAMS)
_QUESTIONS = Slots(count=4, waiting=16)
MAX_ERROR_BYTES = 2000
MAX_OUTPUT_BYTES = MAX_RESULT_BYTES
"""Maximum size of a result, which the web or the worker holds in memory; what is larger is streamed."""
SPLIT_ADVICE = "Split it into smaller files."
READER_FAILED = "The reader process failed on the server. The worker's log has the details."


class ResultUnwanted(Exception):
    """Signal that the child was killed because its result is no longer wanted."""


def backend_for(mapping: ColumnMapping) -> dict[str, str]:
    """Choose the sandbox backend for a mapping's function, and return it as a verb's argument, or {} without a
    function.

    Raises ChildFailed if no sandbox works on this machine.
    """
    if mapping.transform != CUSTOM:
        return {}
    try:
        return {"backend": best_backend()}
    except SandboxUnavailable as error:
        raise ChildFailed("server", f"Functions need a sandbox, but none works on this server. {error}") from error


def ask(folder: Path, verb: str, arguments: Any, *, seconds: float = ASK_SECONDS) -> Any:
    """Run a verb in the child for up to `seconds`, and return its JSON result. Raises ChildFailed if too many are
    running, or if the child fails or takes too long."""
    try:
        with (
            _QUESTIONS.hold("Reading this dataset", seconds),
            _started(folder, verb) as child,
            _ChildExchange(child, arguments) as conversation,
        ):
            if not conversation.ends_within(seconds):
                raise ChildFailed("limits", f"The server didn't finish this within {seconds:g} seconds.")
            output = conversation.output(f"{verb} in {folder.name}")
    except Busy as error:
        raise ChildFailed("limits", str(error)) from error
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

    Raises ChildFailed if the child fails or exceeds a limit, or ResultUnwanted once `is_wanted()` is False.
    """
    deadline = time.monotonic() + WORK_SECONDS
    with (
        _started(folder, verb, program=program, environment=environment, dies_with_parent=True) as child,
        _ChildExchange(child, arguments) as conversation,
    ):
        while not conversation.ends_within(POLL_S):
            if not is_wanted():
                raise ResultUnwanted
            if time.monotonic() > deadline:
                problem = f"Reading this file took longer than the limit of {WORK_SECONDS / 3600:.0f} hours."
                raise ChildFailed("limits", problem, SPLIT_ADVICE)
        return conversation.output(f"{verb} in {folder.name}")


def run_for_json(folder: Path, verb: str, arguments: Any, **options: Any) -> dict[str, Any]:
    """Run a verb as `run` does, and return the JSON object that it writes. `options` are those of `run`."""
    result: dict[str, Any] = _decoded(run(folder, verb, arguments, **options), folder, verb)
    return result


def stream(folder: Path, verb: str, arguments: Any) -> Iterator[bytes]:
    """Yield the child's output in pieces. Closing the generator early kills the child.

    Raises ChildFailed at once if there are too many streams, or at the end if the child has failed.
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
    with _started(folder, verb) as child, _ChildExchange(child, arguments, reads=False) as conversation:
        while piece := os.read(conversation.stdout, PIECE_BYTES):
            yield piece
        conversation.output(f"{verb} in {folder.name}")


class _ChildExchange:
    """A child's input and output, in threads: of its output, at most MAX_OUTPUT_BYTES are kept, beyond which it is
    killed; of its errors, the last MAX_ERROR_BYTES."""

    def __init__(self, child: subprocess.Popen[bytes], arguments: Any, *, reads: bool = True) -> None:
        """Begin. The output is read here if `reads`, and otherwise by the caller, from `stdout`."""
        self._child, self._input = child, json.dumps(arguments).encode()
        self._output, self._errors, self._is_too_large = bytearray(), bytearray(), False
        self._is_over = False
        jobs = [self._write, self._read_errors, *([self._read] if reads else [])]
        self._threads = [threading.Thread(target=job, daemon=True) for job in jobs]
        self.stdout = child.stdout.fileno() if child.stdout else -1

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._child.kill()
        for thread in self._threads:
            thread.join(END_S)  # a process of the child's own may still hold its pipes

    def ends_within(self, seconds: float) -> bool:
        """Wait for up to `seconds`, and return whether the child has ended and everything is read."""
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        with suppress(subprocess.TimeoutExpired):
            self._child.wait(max(0.0, deadline - time.monotonic()))
        return self._child.returncode is not None and not any(thread.is_alive() for thread in self._threads)

    def output(self, step: str) -> bytes:
        """Return the output of the ended child. Raises ChildFailed if it failed, or wrote too much."""
        code = self._child.wait()
        for thread in self._threads:
            thread.join()
        if self._is_too_large:
            log.error("%s wrote more than %s bytes", step, MAX_OUTPUT_BYTES)
            raise ChildFailed("limits", "The result is too large to be shown.", "Try it with less, or shorter, rows.")
        _raise_for_exit(code, bytes(self._errors), step)
        return bytes(self._output)

    def _write(self) -> None:
        if self._child.stdin is not None:
            with suppress(BrokenPipeError):  # the child has already exited; its exit code says why
                self._child.stdin.write(self._input)
                self._child.stdin.close()

    def _read(self) -> None:
        while not self._is_over and (piece := os.read(self.stdout, PIECE_BYTES)):
            if len(self._output) + len(piece) > MAX_OUTPUT_BYTES:
                self._is_too_large = True
                self._child.kill()
                return
            self._output += piece

    def _read_errors(self) -> None:
        stderr = self._child.stderr.fileno() if self._child.stderr else -1
        while not self._is_over and (piece := os.read(stderr, PIECE_BYTES)):
            self._errors = (self._errors + piece)[-MAX_ERROR_BYTES:]


@contextmanager
def _started(
    folder: Path,
    verb: str,
    *,
    program: tuple[str, ...] = (),
    environment: Mapping[str, str] = MappingProxyType({}),
    dies_with_parent: bool = False,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run the child (PROGRAM by default) during the block. `dies_with_parent` kills it even if this process is
    killed."""
    inherited_variables = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    # PYTHONPATH, because some installations keep their packages outside the interpreter's folder.
    child = subprocess.Popen(
        [sys.executable, *(program or PROGRAM), str(folder), verb],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=settings.BASE_DIR,
        env=inherited_variables | {"LANG": "C.UTF-8"} | dict(environment),
        # Only in the worker, whose processes have one thread: code between fork and exec is safe there.
        preexec_fn=partial(die_with_parent, os.getpid(), signal.SIGKILL) if dies_with_parent else None,
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
    stderr_text = errors[-MAX_ERROR_BYTES:].decode("utf-8", "replace")
    log.error("%s exited with code %s: %s", step, code, stderr_text)
    if code == errno.ENOSPC or any(os.strerror(number) in stderr_text for number in FULL_DISK_ERRORS):
        raise ChildFailed("disk", "The control plane's disk is full.", "Free some space, then try again.")
    limit_message = "Reading this file took more {} than the limit of {}."
    if code == MEMORY_EXCEEDED or code < 0 or stderr_text.rstrip().endswith("MemoryError"):
        raise ChildFailed("limits", limit_message.format("memory", f"{MEMORY_BYTES / 2**30:.1f} GiB"), SPLIT_ADVICE)
    if code == TIME_EXCEEDED:
        raise ChildFailed("limits", limit_message.format("CPU time", f"{CPU_SECONDS // 60} minutes"), SPLIT_ADVICE)
    raise ChildFailed("server", READER_FAILED, "The file may be fine. Try again after the server has been repaired.")
