"""Exclusive claims of `up` and `demo` on the data folder and a port."""

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
MAX_PORTS = 50
MIN_FREE_MIB = 200
LEFT_OVER_S = 30.0
"""Maximum number of seconds to wait for the children of a killed `up`, which end sooner."""


class ServingRefused(Exception):
    """Refusal to serve as requested; the message says why and what to do."""


@contextlib.contextmanager
def data_folder_lock(data: Path, command: str) -> "Iterator[DataFolderLock]":
    """Lock the data folder, and yield the lock. A dead process doesn't block others, because the kernel releases its
    lock. Raises ServingRefused if another process serves the folder."""
    handle = os.open(data / "serving.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ServingRefused(_already_served(data, os.pread(handle, 4096, 0))) from None
        lock = DataFolderLock(handle)
        lock.describe(command=command)
        yield lock
    finally:
        os.close(handle)


def serving_url(data: Path) -> str:
    """Return the address of the `up` or `demo` that is serving the data folder, or "" if there is none."""
    try:
        handle = os.open(data / "serving.lock", os.O_RDWR)
    except FileNotFoundError:
        return ""
    try:
        return "" if _try_lock(handle) else str(json.loads(os.pread(handle, 4096, 0)).get("url", ""))
    except ValueError:
        return ""
    finally:
        os.close(handle)


class DataFolderLock:
    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._facts: dict[str, str | int] = {"pid": os.getpid()}

    def describe(self, **facts: str) -> None:
        """Record facts about the holder, for the error message of a second command."""
        self._facts.update(facts)
        os.ftruncate(self._handle, 0)
        os.pwrite(self._handle, json.dumps(self._facts).encode(), 0)


@contextlib.contextmanager
def children_lock(data: Path, report: Callable[[str], None], deadline_s: float = LEFT_OVER_S) -> Iterator[int]:
    """Acquire a lock that our children inherit, so that it is held as long as one of them is alive. Yield its handle.

    The children of a killed `up` end soon, but not at once, and a Valkey that ends removes the socket even if another
    one has created it. The next `up` therefore waits for them. Raises ServingRefused if they haven't ended after
    `deadline_s`.
    """
    handle = os.open(data / "children.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        deadline = time.monotonic() + deadline_s
        has_reported = False
        while not _try_lock(handle):
            if not has_reported:
                report("Waiting for the processes of an earlier start to end …")
                has_reported = True
            if time.monotonic() > deadline:
                raise ServingRefused(
                    f"Processes of an earlier start on {data} aren't ending: see `fuser {data}/children.lock`."
                )
            time.sleep(0.1)
        yield handle
    finally:
        os.close(handle)


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _already_served(data: Path, content: bytes) -> str:
    try:
        facts = json.loads(content)
    except ValueError:
        facts = {}
    where = f" at {facts['url']}" if "url" in facts else ""
    command = f"`manage.py {facts.get('command', 'up')}` (process {facts.get('pid', 'unknown')})"
    return (
        f"{command} already serves {data}{where}. Use it, or end it with Ctrl-C where it runs. "
        "For a second installation, set CONTROLPLANE_DATA to another folder."
    )


def refuse_full_disk(data: Path, needed_mib: int = MIN_FREE_MIB) -> None:
    """Raise ServingRefused if the disk is nearly full, before anything is half-written."""
    free_mib = shutil.disk_usage(data).free // 2**20
    if free_mib < needed_mib:
        raise ServingRefused(
            f"Only {free_mib} MiB are free on the disk of {data}, but serving needs {needed_mib} MiB. "
            "Free some space, or set CONTROLPLANE_DATA to a folder on another disk."
        )


def open_listener(bind: str, port: int | None) -> socket.socket:
    """Open a listening socket on `port`, by default on the first free port from 8000 on. Raises ServingRefused if the
    port is in use or not allowed, or the address can't be used."""
    candidates = [port] if port is not None else range(DEFAULT_PORT, DEFAULT_PORT + MAX_PORTS)
    for candidate in candidates:
        try:
            return listen(bind, candidate)
        except OverflowError:
            raise ServingRefused(f"There is no port {candidate}; choose one between 1024 and 65535.") from None
        except OSError as error:
            if error.errno == errno.EACCES:
                raise ServingRefused(f"Port {candidate} needs root privileges; choose one above 1023.") from None
            if error.errno != errno.EADDRINUSE:
                raise ServingRefused(f"Can't listen on {bind}: {error.strerror or error}.") from None
    if port is not None:
        raise ServingRefused(f"Port {port} is in use by another program. Omit --port to use the next free one.")
    raise ServingRefused(
        f"Ports {DEFAULT_PORT} to {DEFAULT_PORT + MAX_PORTS - 1} are all in use; choose one with --port."
    )


def listen(bind: str, port: int) -> socket.socket:
    """Open a listening socket for the web; port 0 means any free one. Raises OSError if it can't be opened, and
    OverflowError if there is no such port."""
    family = socket.getaddrinfo(bind, port, type=socket.SOCK_STREAM)[0][0]
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        # Closing connections of the previous process must not make the port "in use".
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Its connections inherit this. Without it each response waited 40 ms for the browser to acknowledge the first
        # part: asyncio sets it only if it knows the protocol of the socket, which it doesn't for an inherited one.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.bind((bind, port))
        listener.listen(1024)
    except (OSError, OverflowError):
        listener.close()
        raise
    return listener
