"""Restriction of this process and its children by Landlock, so that they can read some folders and change nothing."""

import ctypes
import os
import struct
from collections.abc import Iterable

from workers.sandbox.isolation import kernel

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG = 1
_PATH_BENEATH = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_FILES_OF = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}
"""File operations that each version can forbid: since 2 moving between folders, since 3 truncating, since 5 ioctl."""
_NETWORK = 0b11
"""TCP bind and connect, since version 4. seccomp forbids creating sockets anyway."""
_SCOPES = 0b11
"""Abstract Unix sockets and signals, since version 6."""


def version() -> int:
    """Return the version of Landlock in the kernel, or 0 if it has none."""
    try:
        return kernel.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION_FLAG)
    except OSError:
        return 0


def restrict(readable: Iterable[str], writable: Iterable[str] = ()) -> None:
    """Restrict this process, which needs no_new_privs, and all its children permanently. `readable`: folders and files
    that may be read and executed, if they exist. `writable`: files such as /dev/null. Raises OSError if the kernel
    refuses."""
    abi = version()
    files = _FILES_OF[min(abi, max(_FILES_OF))] if abi else 0
    attributes = struct.pack("=QQQ", files, _NETWORK, _SCOPES)[: 8 if abi < 4 else 16 if abi < 6 else 24]
    ruleset = kernel.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    try:
        for path in readable:
            _allow(ruleset, path, _READ_FILE | _EXECUTE | (_READ_DIR if os.path.isdir(path) else 0))
        for path in writable:
            _allow(ruleset, path, _READ_FILE | _WRITE_FILE)
        kernel.syscall(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, access: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        kernel.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", access, descriptor), 0)
    finally:
        os.close(descriptor)
