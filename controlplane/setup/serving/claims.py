"""Exclusive claims of `up` and `demo`: the data folder, and a port."""

import contextlib
import errno
import fcntl
import json
import os
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

DEFAULT_PORT = 8000
PORTS_TO_TRY = 50
NEEDED_MIB = 200
LEFT_OVER_S = 30.0
"""Seconds; longer than the children of a killed `up` take to end."""


class ServingRefused(Exception):
    """A refusal to serve as requested; the message says why and what to do."""


@contextlib.contextmanager
def data_folder_lock(data: Path, command: str) -> "Iterator[DataFolderLock]":
    """Lock the data folder. The lock of a dead process doesn't block: the kernel has released it. Raises
    ServingRefused."""
    handle = os.open(data / "serving.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ServingRefused(_who_holds(data, os.pread(handle, 4096, 0))) from None
        lock = DataFolderLock(handle)
        lock.describe(command=command)
        yield lock
    finally:
        os.close(handle)


def serving_url(data: Path) -> str:
    """Return the address of the `up` or `demo` that serves the data folder; "" if none does."""
    try:
        handle = os.open(data / "serving.lock", os.O_RDWR)
    except FileNotFoundError:
        return ""
    try:
        return "" if _acquired(handle) else str(json.loads(os.pread(handle, 4096, 0)).get("url", ""))
    except ValueError:
        return ""
    finally:
        os.close(handle)


class DataFolderLock:
    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._facts: dict[str, str | int] = {"pid": os.getpid()}

    def describe(self, **facts: str) -> None:
        """Describe the holder, for the message of a second command."""
        self._facts.update(facts)
        os.ftruncate(self._handle, 0)
        os.pwrite(self._handle, json.dumps(self._facts).encode(), 0)


@contextlib.contextmanager
def children_lock(data: Path, report: Callable[[str], None], deadline_s: float = LEFT_OVER_S) -> Iterator[int]:
    """Take a lock that our children inherit, so that it is held as long as one of them is alive.

    Children of a killed `up` end soon, but not at once, and a Valkey that ends removes the socket's name even if
    another one has created it. So the next `up` waits for them. Raises ServingRefused.
    """
    handle = os.open(data / "children.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        end = time.monotonic() + deadline_s
        reported = False
        while not _acquired(handle):
            if not reported:
                report("Waiting for the processes of an earlier start to end …")
                reported = True
            if time.monotonic() > end:
                raise ServingRefused(
                    f"Processes of an earlier start on {data} do not end; `fuser {data}/children.lock` lists them."
                )
            time.sleep(0.1)
        yield handle
    finally:
        os.close(handle)


def _acquired(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _who_holds(data: Path, text: bytes) -> str:
    try:
        facts = json.loads(text)
    except ValueError:
        facts = {}
    where = f" at {facts['url']}" if "url" in facts else ""
    command = f"`manage.py {facts.get('command', 'up')}` (process {facts.get('pid', 'unknown')})"
    return (
        f"{command} already serves {data}{where}. Use that one, or end it with Ctrl-C where it runs; "
        "for a second installation beside it set CONTROLPLANE_DATA to another folder."
    )


def refuse_full_disk(data: Path, needed_mib: int = NEEDED_MIB) -> None:
    """Refuse to start on a full disk, before anything is half-written. Raises ServingRefused."""
    free_mib = shutil.disk_usage(data).free // 2**20
    if free_mib < needed_mib:
        raise ServingRefused(
            f"Only {free_mib} MiB are free where {data} is, and serving needs {needed_mib}. "
            "Free some space, or set CONTROLPLANE_DATA to a folder on another disk."
        )


def open_listener(bind: str, port: int | None) -> socket.socket:
    """Return a listening socket on `port`, or on the first free port from 8000 on. Raises ServingRefused."""
    candidates = [port] if port is not None else range(DEFAULT_PORT, DEFAULT_PORT + PORTS_TO_TRY)
    for candidate in candidates:
        try:
            return listen(bind, candidate)
        except OverflowError:
            raise ServingRefused(f"There is no port {candidate}; choose one between 1024 and 65535.") from None
        except OSError as error:
            if error.errno == errno.EACCES:
                raise ServingRefused(f"Port {candidate} needs more rights; choose one above 1023.") from None
            if error.errno != errno.EADDRINUSE:
                raise ServingRefused(f"Can't listen on {bind}: {error.strerror or error}.") from None
    if port is not None:
        raise ServingRefused(f"Port {port} is in use by another program. Leave --port out to take the next free one.")
    raise ServingRefused(
        f"Ports {DEFAULT_PORT} to {DEFAULT_PORT + PORTS_TO_TRY - 1} are all in use; choose one with --port."
    )


def listen(bind: str, port: int) -> socket.socket:
    """Return a listening socket for the web. Port 0: any free one. Raises OSError or OverflowError."""
    family = socket.getaddrinfo(bind, port, type=socket.SOCK_STREAM)[0][0]
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        # Closing connections of the previous process must not make the port "in use".
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Its connections inherit this. Without it each answer waited 40 ms for the browser to acknowledge its first
        # part: asyncio sets it only if it knows the protocol of the socket, which it doesn't for an inherited one.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.bind((bind, port))
        listener.listen(1024)
    except (OSError, OverflowError):
        listener.close()
        raise
    return listener
