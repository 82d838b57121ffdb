"""Owners of abstract Unix sockets, queried through the kernel's sock_diag interface."""

import os
import socket
import struct
from collections.abc import Iterator

_SOCK_DIAG, _BY_FAMILY, _DUMP = 4, 20, 0x301
_ERROR, _DONE = 2, 3
_SHOW_NAME_AND_UID = 0x41
_NAME, _UID = 0, 7
_ANY = 0xFFFFFFFF
_HEADER = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBHIIIII")
_ATTRIBUTE = struct.Struct("=HH")
_MESSAGE_BYTES = 16
_READ_BYTES = 1 << 16


def owner(name: bytes) -> int | None:
    """Return the uid of the process that has bound `name`; None if no process has. Raises OSError."""
    request = _REQUEST.pack(socket.AF_UNIX, 0, 0, _ANY, 0, _SHOW_NAME_AND_UID, _ANY, _ANY)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _SOCK_DIAG) as kernel:
        kernel.send(_HEADER.pack(_HEADER.size + len(request), _BY_FAMILY, _DUMP, 1, 0) + request)
        owners = [entry[_UID] for entry in _sockets(kernel) if entry.get(_NAME) == name and _UID in entry]
    return int.from_bytes(owners[0], "little") if owners else None


def _sockets(kernel: socket.socket) -> Iterator[dict[int, bytes]]:
    while True:
        data = kernel.recv(_READ_BYTES)
        while data:
            length, kind, *_ = _HEADER.unpack_from(data)
            if kind == _DONE:
                return
            if kind == _ERROR:
                code = -int.from_bytes(data[_HEADER.size : _HEADER.size + 4], "little", signed=True)
                raise OSError(code, os.strerror(code))
            yield _attributes(data[_HEADER.size + _MESSAGE_BYTES : length])
            data = data[-(-length // 4) * 4 :]


def _attributes(data: bytes) -> dict[int, bytes]:
    values = {}
    while data:
        length, kind = _ATTRIBUTE.unpack_from(data)
        values[kind] = data[_ATTRIBUTE.size : length]
        data = data[-(-length // 4) * 4 :]
    return values
