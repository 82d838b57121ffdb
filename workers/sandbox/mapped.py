"""Libraries' pages, so that forks have them without asking for each.

The kernel leaves out of a fork what it can read from a file again, and a fork then faults sixty times for the code that
it runs. It copies the whole table of a mapping in which the process has written once, be it the byte that stood there.
"""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

_LOAD = 1
_EXECUTE, _WRITE, _READ = 1, 2, 4
"""Flags of a program header."""
_PROTECTION = {_EXECUTE: mmap.PROT_EXEC, _WRITE: mmap.PROT_WRITE, _READ: mmap.PROT_READ}
_POPULATE_READ = 22
_LEAST = 256 << 10
"""Bytes: of a small library a fork asks for a page or two, which costs it less than the table."""


class _Header(ctypes.Structure):
    """Elf64_Phdr."""

    _fields_ = [
        *(("type", ctypes.c_uint32), ("flags", ctypes.c_uint32), ("offset", ctypes.c_uint64)),
        *(("address", ctypes.c_uint64), ("physical", ctypes.c_uint64), ("in_file", ctypes.c_uint64)),
        *(("in_memory", ctypes.c_uint64), ("alignment", ctypes.c_uint64)),
    ]


class _Library(ctypes.Structure):
    """dl_phdr_info, its beginning."""

    _fields_ = [
        *(("address", ctypes.c_uint64), ("name", ctypes.c_char_p)),
        *(("headers", ctypes.POINTER(_Header)), ("count", ctypes.c_uint16)),
    ]


_Visit = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Library), ctypes.c_size_t, ctypes.c_void_p)
_libc = ctypes.CDLL(None)
_mprotect, _madvise = _libc.mprotect, _libc.madvise
_mprotect.argtypes = _madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def inherit() -> None:
    """Have forks of this process inherit what is loaded. Where the kernel refuses, they ask as ever."""
    for start, length, flags in _segments():
        protection = sum(bit for flag, bit in _PROTECTION.items() if flags & flag)
        if length < _LEAST or flags & _WRITE or _mprotect(start, length, protection | mmap.PROT_WRITE):
            continue  # written to already, or a kernel that wants code to stay as it is
        _madvise(start, length, _POPULATE_READ)
        byte = ctypes.c_char.from_address(start)
        byte.value = byte.value
        _mprotect(start, length, protection)


def _segments() -> list[tuple[int, int, int]]:
    """Of all libraries: where, how many bytes, with which flags."""
    found: list[tuple[int, int, int]] = []

    def note(library: Any, _size: int, _data: None) -> int:
        for header in library.contents.headers[: library.contents.count]:
            start = library.contents.address + header.address
            begin, end = start & -mmap.PAGESIZE, -(-(start + header.in_memory) // mmap.PAGESIZE) * mmap.PAGESIZE
            if header.type == _LOAD:
                found.append((begin, end - begin, header.flags))
        return 0

    _libc.dl_iterate_phdr(_Visit(note), None)
    return found
