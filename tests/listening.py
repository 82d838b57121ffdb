"""The sockets on which a process and its descendants listen, as /proc shows them."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from workers.supervisor import procfs

_LISTEN = "0A"
_TABLES = {"tcp": socket.AF_INET, "tcp6": socket.AF_INET6}


def tcp_addresses(pid: int) -> set[str]:
    """The addresses, without ports, on which the tree of `pid` listens over TCP."""
    rows = procfs.table()
    inodes = set[str]()
    for each in [pid, *(row.pid for row in procfs.descendants([pid], rows))]:
        inodes |= _sockets(each)
    return {address for inode, address in _listeners() if inode in inodes}


def _listeners() -> list[tuple[str, str]]:
    found = []
    for table, family in _TABLES.items():
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTEN:
                raw = bytes.fromhex(fields[1].partition(":")[0])
                words = b"".join(raw[at : at + 4][::-1] for at in range(0, len(raw), 4))
                found.append((fields[9], socket.inet_ntop(family, words).removeprefix("::ffff:")))
    return found


def _sockets(pid: int) -> set[str]:
    try:
        targets = [os.readlink(entry.path) for entry in os.scandir(f"/proc/{pid}/fd")]
    except OSError:
        return set()  # it has just ended
    return {target[len("socket:[") : -1] for target in targets if target.startswith("socket:[")}
