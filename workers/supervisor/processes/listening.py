"""Listeners on this host's TCP ports, as the kernel reports them."""

import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from workers.contract.stack.commands import HOST

_LISTEN_STATE = "0A"


def port_is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers do, so that a recent connection in TIME_WAIT doesn't occupy the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def ports() -> list[int]:
    """Return all ports with a listener, on any address."""
    return sorted({port for port, _ in _sockets()})


def is_listening(port: int, pids: set[int]) -> bool:
    """Return whether one of these processes listens on the port."""
    inodes = {inode for listening, inode in _sockets() if listening == port}
    return bool(inodes) and any(_holds_socket(pid, inodes) for pid in pids)


def _sockets() -> Iterator[tuple[int, str]]:
    for name in ("tcp", "tcp6"):
        try:
            rows = Path(f"/proc/net/{name}").read_text().splitlines()[1:]
        except FileNotFoundError:
            continue
        for row in rows:
            fields = row.split()
            if fields[3] == _LISTEN_STATE:
                yield int(fields[1].rsplit(":", 1)[1], 16), f"socket:[{fields[9]}]"


def _holds_socket(pid: int, inodes: set[str]) -> bool:
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)
    except OSError:
        return False  # the process has exited
    for name in names:
        with suppress(OSError):
            if os.readlink(f"{folder}/{name}") in inodes:
                return True
    return False
