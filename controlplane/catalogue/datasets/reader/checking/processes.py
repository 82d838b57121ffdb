"""A file's batches shared among processes: each looks at its part of them, and the results come in the file's order.

Every process reads the whole file, since finding the batches takes much less time than looking at their rows: nothing
but results is sent, and a process that is ahead waits until its result is taken. The processes are forks of this one:
they have its limits, and they die with it, however it ends.
"""

from __future__ import annotations

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

from workers.contract.wire.parent_death import die_with_parent

MOST = 8
"""Processes: each takes memory, and the file is read once by each."""
BYTES_EACH = 2**20
"""Bytes of the file per process; starting one for less takes longer than it saves."""
PIPE_BYTES = 2**20
"""Lets a process start its next batch before its result is taken."""

Batch = TypeVar("Batch")
Result = TypeVar("Result")


def useful(path: Path) -> int:
    """The number of processes worth starting for a file."""
    return max(1, min(MOST, len(os.sched_getaffinity(0)), path.stat().st_size // BYTES_EACH))


def looked_at(
    batches: Callable[[], Iterator[Batch]], look: Callable[[Batch], Result], processes: int
) -> Generator[Result, None, None]:
    """The results of `look` for each of `batches()`. Raises what either raises, after the results of all earlier
    batches, and MemoryError if a process was ended by its limits. Closed early, it ends the processes."""
    if processes == 1:
        yield from map(look, batches())
        return
    shares = [_Share(batches, look, number, processes) for number in range(processes)]
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
    """A process that looks at each batch number `first`, `first` + `step`, …"""

    def __init__(self, batches: Callable[[], Iterator[Any]], look: Callable[[Any], Any], first: int, step: int) -> None:
        self._results, sending = Pipe(duplex=False)
        with suppress(OSError):  # more than this user may have
            fcntl(sending.fileno(), F_SETPIPE_SZ, PIPE_BYTES)
        parent = os.getpid()
        self._pid = os.fork()
        if not self._pid:
            die_with_parent(parent, signal.SIGKILL)
            os.environ["TOKENIZERS_PARALLELISM"] = "false"  # its threads are lost in a fork, and all cores have work
            _send_each(map(look, islice(batches(), first, None, step)), sending.send)
        sending.close()

    def next(self) -> Any:
        """The next result, or its exception; StopIteration after the last one."""
        try:
            return self._results.recv()
        except EOFError:
            return MemoryError("a process of the check was ended")

    def end(self) -> None:
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        self._results.close()


def _send_each(results: Iterator[Any], send: Callable[[Any], None]) -> None:
    """Send all `results`, and the exception that they end with. The process ends without cleaning up, since its open
    files belong to its parent."""
    try:
        while True:
            send(next(results))
    except BaseException as error:
        error.add_note(traceback.format_exc())
        with suppress(BaseException):
            send(error)
    finally:
        os._exit(0)
