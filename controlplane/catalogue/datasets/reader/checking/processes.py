"""Distribution of a file's batches to processes; the results arrive in the file's order.

Every process reads the whole file, since splitting it into batches takes much less time than checking their rows. So
only results are sent, and a process that is ahead waits until its result is received. The processes are forks of this
one: they share its limits and die with it.
"""

import os
import signal
import traceback
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from fcntl import F_SETPIPE_SZ, fcntl
from itertools import cycle, islice
from multiprocessing import Pipe
from pathlib import Path
from typing import Any, TypeVar

from workers.contract.wire.processes import die_with_parent

MAX_PROCESSES = 8
"""Maximum number of processes, since each takes memory and reads the whole file."""
BYTES_PER_PROCESS = 2**20
"""Bytes of the file per process. With fewer, starting a process takes longer than it saves."""
PIPE_BYTES = 2**20
"""Pipe size that lets a process start its next batch before the result of the last one is received."""

Batch = TypeVar("Batch")
Result = TypeVar("Result")


def useful_processes(path: Path) -> int:
    """Return the number of processes worth starting for a file."""
    return max(1, min(MAX_PROCESSES, len(os.sched_getaffinity(0)), path.stat().st_size // BYTES_PER_PROCESS))


def map_batches(
    batches: Callable[[], Iterator[Batch]], function: Callable[[Batch], Result], processes: int
) -> Generator[Result, None, None]:
    """Yield the results of `function` for each of `batches()`. Closing the generator early kills the processes.

    Exceptions of both functions are raised after all earlier results; MemoryError if a process exceeded its limits.
    """
    if processes == 1:
        yield from map(function, batches())
        return
    shares = [_Share(batches, function, number, processes) for number in range(processes)]
    try:
        for share in cycle(shares):
            result = share.next()
            if isinstance(result, StopIteration):
                return
            if isinstance(result, BaseException):
                raise result
            yield result
    finally:
        for share in shares:
            share.end()


class _Share:
    """Process that handles the batches with the numbers `first`, `first` + `step`, …"""

    def __init__(
        self, batches: Callable[[], Iterator[Any]], function: Callable[[Any], Any], first: int, step: int
    ) -> None:
        self._results, sender = Pipe(duplex=False)
        with suppress(OSError):  # the size may exceed the user's pipe limit
            fcntl(sender.fileno(), F_SETPIPE_SZ, PIPE_BYTES)
        parent = os.getpid()
        self._pid = os.fork()
        if not self._pid:
            die_with_parent(parent, signal.SIGKILL)
            os.environ["TOKENIZERS_PARALLELISM"] = "false"  # its threads don't survive a fork, and all cores are busy
            _send_each(map(function, islice(batches(), first, None, step)), sender.send)
        sender.close()

    def next(self) -> Any:
        """Return the next result or the exception raised instead, which is a StopIteration after the last result."""
        try:
            return self._results.recv()
        except EOFError:
            return MemoryError("a process of the check was killed")

    def end(self) -> None:
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        self._results.close()


def _send_each(results: Iterator[Any], send: Callable[[Any], None]) -> None:
    """Send all `results` and the exception that ends them, and exit without cleaning up, since the open files belong to
    the parent process."""
    try:
        while True:
            send(next(results))
    except BaseException as error:
        error.add_note(traceback.format_exc())
        with suppress(BaseException):
            send(error)
    finally:
        os._exit(0)
