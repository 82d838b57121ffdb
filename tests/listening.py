"""The sockets on which a process and its descendants listen."""

from __future__ import annotations

from contextlib import suppress

import psutil


def tcp_addresses(pid: int) -> set[str]:
    """The addresses, without ports, on which the tree of `pid` listens over TCP."""
    root = psutil.Process(pid)
    addresses = set[str]()
    for process in [root, *root.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):  # it has just ended
            sockets = process.net_connections("tcp")
            addresses |= {each.laddr.ip for each in sockets if each.status == psutil.CONN_LISTEN}
    return {address.removeprefix("::ffff:") for address in addresses}
