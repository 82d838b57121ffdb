"""Programs that want to reach something over a socket."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Gains = Callable[..., list[str]]
pytestmark = pytest.mark.processes


@pytest.fixture
def listening(short_folder: Path) -> Iterator[tuple[int, str, str]]:
    """A TCP port, a Unix socket of a path and one without, which nobody may have called at the end."""
    path, hidden = str(short_folder / "attacked"), f"sandbox-test-{os.getpid()}"
    tcp = socket.create_server(("127.0.0.1", 0))
    unix, abstract = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    unix.bind(path)
    os.chmod(path, 0o777)
    abstract.bind("\0" + hidden)
    letters = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    letters.bind(path + "-letters")
    servers = (tcp, unix, abstract)
    for server in servers:
        server.listen()
        server.setblocking(False)
    letters.setblocking(False)
    yield tcp.getsockname()[1], path, hidden
    for server in servers:
        with pytest.raises(BlockingIOError):
            server.accept()
        server.close()
    with pytest.raises(BlockingIOError):
        letters.recv(1)
    letters.close()
    os.unlink(path)
    os.unlink(path + "-letters")


def test_no_socket_can_be_opened(gains: Gains, listening: tuple[int, str, str]) -> None:
    source = """
import socket
def attack(port, path, hidden):
    tried("TCP", lambda: socket.create_connection(("127.0.0.1", port), 5))
    tried("UDP", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", port)))
    tried("a name", lambda: socket.getaddrinfo("localhost.example", 80, type=socket.SOCK_STREAM))
    tried("listening", lambda: socket.create_server(("127.0.0.1", 0)))
    tried("Unix", lambda: socket.socket(socket.AF_UNIX).connect(path))
    tried("abstract Unix", lambda: socket.socket(socket.AF_UNIX).connect(chr(0) + hidden))
    tried("Unix datagrams", lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"x", path + "-letters"))
    for family in range(46):
        for kind in (1, 2, 3, 5):
            tried(f"socket {family} {kind}", lambda: libc.socket(family, kind, 0))
            tried(f"pair {family} {kind}", lambda: -1 if family == 1 else libc.socketpair(family, kind, 0, pair))
    return done
pair = ctypes.create_string_buffer(8)
"""
    assert gains(source, *listening) == []


def test_a_pair_of_its_own_sockets_can_be_turned_towards_nobody(gains: Gains, listening: tuple[int, str, str]) -> None:
    source = """
import socket
def attack(port, path, hidden):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        for where in (path, path + "-letters", chr(0) + hidden):
            one, other = socket.socketpair(socket.AF_UNIX, kind)
            tried(f"connect {kind}", lambda: one.connect(where))
            tried(f"bind {kind}", lambda: one.bind(chr(0) + "new"))
            tried(f"listen {kind}", lambda: one.listen())
            # A datagram to an address, from a socket that is connected elsewhere
            tried(f"sendto {kind}", lambda: one.sendto(b"x", where))
            tried(f"sendmsg {kind}", lambda: one.sendmsg([b"x"], [], 0, where))
    return done
"""
    assert gains(source, *listening) == []


def test_no_socket_tells_who_the_caller_is_or_gives_a_handle_of_it(gains: Gains) -> None:
    source = """
import socket, stat
def attack():
    channels = [fd for fd in range(20) if exists(fd) and stat.S_ISSOCK(os.fstat(fd).st_mode)]
    made = [one.detach() for one in socket.socketpair()]
    room, size = ctypes.create_string_buffer(64), ctypes.c_uint32(64)
    for fd in (*channels, *made):
        for option in (17, 31, 59, 77):  # SO_PEERCRED, SO_PEERSEC, SO_PEERGROUPS, SO_PEERPIDFD
            tried(f"{option} of {fd}", lambda: libc.getsockopt(fd, 1, option, room, ctypes.byref(size)))
    assert libc.getsockopt(made[0], 1, 3, room, ctypes.byref(size)) == 0  # SO_TYPE
    return done
def exists(fd):
    try:
        return os.fstat(fd) is not None
    except OSError:
        return False
"""
    assert gains(source) == []
