"""Owners of this machine's sockets, queried through the kernel's sock_diag interface."""

import ipaddress
import os
import socket
import struct
from collections.abc import Iterator

Address = tuple[str, int]

_SOCK_DIAG, _BY_FAMILY, _REQUEST, _DUMP = 4, 20, 0x1, 0x301
_ERROR, _DONE, _MULTI = 2, 3, 0x2
_SHOW_NAME_AND_UID = 0x41
_NAME, _UID = 0, 7
_ANY_STATE, _ESTABLISHED = 0xFFFFFFFF, 1
_HEADER = struct.Struct("=IHHII")
_UNIX = struct.Struct("=BBHIIIII")
_INTERNET = struct.Struct("=BBHI")
_ENDS = struct.Struct("!HH16s16s")
_INTERFACE = struct.Struct("=III")
_ATTRIBUTE = struct.Struct("=HH")
_UNIX_BYTES, _OWNER_OFFSET = 16, 64
_READ_BYTES = 1 << 16


def owner(name: bytes) -> int | None:
    """Return the uid of the process that has bound an abstract Unix socket's name, or None if there is none. Raises
    OSError if the kernel can't be asked."""
    request = _UNIX.pack(socket.AF_UNIX, 0, 0, _ANY_STATE, 0, _SHOW_NAME_AND_UID, _ANY_STATE, _ANY_STATE)
    entries = [_attributes(entry[_UNIX_BYTES:]) for entry in _entries(request, _DUMP)]
    owners = [entry[_UID] for entry in entries if entry.get(_NAME) == name and _UID in entry]
    return int.from_bytes(owners[0], "little") if owners else None


def client_owner(client: Address, server: Address) -> int | None:
    """Return the uid of the process at the client's end of a TCP connection on this machine, or None if the connection
    isn't open. Raises OSError if the kernel can't be asked.

    A connection that its client has closed belongs to nobody, but the kernel attributes it to root.
    """
    family = socket.AF_INET6 if ":" in client[0] else socket.AF_INET
    hosts = (ipaddress.ip_address(host).packed.ljust(16, b"\0") for host, _ in (client, server))
    ends = _ENDS.pack(client[1], server[1], *hosts) + _INTERFACE.pack(0, _ANY_STATE, _ANY_STATE)
    try:
        [entry] = _entries(_INTERNET.pack(family, socket.IPPROTO_TCP, 0, _ANY_STATE) + ends, _REQUEST)
    except FileNotFoundError:
        return None
    return int.from_bytes(entry[_OWNER_OFFSET : _OWNER_OFFSET + 4], "little") if entry[1] == _ESTABLISHED else None


def _entries(request: bytes, flags: int) -> Iterator[bytes]:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _SOCK_DIAG) as kernel:
        kernel.send(_HEADER.pack(_HEADER.size + len(request), _BY_FAMILY, flags, 1, 0) + request)
        while True:
            data = kernel.recv(_READ_BYTES)
            while data:
                length, kind, how, *_ = _HEADER.unpack_from(data)
                if kind == _DONE:
                    return
                if kind == _ERROR:
                    code = -int.from_bytes(data[_HEADER.size : _HEADER.size + 4], "little", signed=True)
                    raise OSError(code, os.strerror(code))
                yield data[_HEADER.size : length]
                if not how & _MULTI:
                    return
                data = data[-(-length // 4) * 4 :]


def _attributes(data: bytes) -> dict[int, bytes]:
    values = {}
    while data:
        length, kind = _ATTRIBUTE.unpack_from(data)
        values[kind] = data[_ATTRIBUTE.size : length]
        data = data[-(-length // 4) * 4 :]
    return values
