"""System calls for which Python has no function; each raises OSError if it fails."""

import ctypes
import os
import struct

_libc = ctypes.CDLL(None, use_errno=True)
_prctl = _libc.prctl
_prctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong]
_mount = _libc.mount
_mount.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p]
_syscall = _libc.syscall
_unshare, _setns = _libc.unshare, _libc.setns

CLONE_NEWNS = 0x00020000
CLONE_NEWPID = 0x20000000
_TMPFS_FLAGS = 2 | 4 | 8
"""MS_NOSUID, MS_NODEV, MS_NOEXEC."""

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_SECCOMP = 22
PR_SET_NO_NEW_PRIVS = 38
SECCOMP_MODE_FILTER = 2

_CAPSET = {"x86_64": 126, "aarch64": 91}.get(os.uname().machine, -1)
_CAPABILITY_VERSION_3 = 0x20080522
_CAPABILITIES_OF_SELF = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
_NO_CAPABILITIES = (ctypes.c_uint32 * 6)()


def check_result(result: int, call: str) -> int:
    """Return a call's result. Raises OSError with the call's name if it has failed."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")
    return result


def prctl(option: int, value: int = 0, extra: int = 0) -> None:
    check_result(_prctl(option, value, extra, 0, 0), f"prctl({option})")


def unshare(flags: int) -> None:
    check_result(_unshare(flags), "unshare")


def setns(fd: int, flags: int) -> None:
    check_result(_setns(fd, flags), "setns")


def mount_tmpfs(path: bytes, options: bytes) -> None:
    check_result(_mount(b"tmpfs", path, b"tmpfs", _TMPFS_FLAGS, options), "mount")


def drop_capabilities() -> None:
    """Drop all capabilities, permanently if no_new_privs is set."""
    check_result(_syscall(_CAPSET, _CAPABILITIES_OF_SELF, _NO_CAPABILITIES), "capset")


def syscall(number: int, *arguments: object) -> int:
    """Call the kernel by a system call's number, and return the result."""
    return check_result(_syscall(number, *arguments), f"system call {number}")


class SeccompFilter:
    """A compiled seccomp filter in memory, with the address to pass to the kernel."""

    def __init__(self, code: bytes) -> None:
        self._code = ctypes.create_string_buffer(code, len(code))
        header = struct.pack("@HP", len(code) // 8, ctypes.addressof(self._code))
        self._header = ctypes.create_string_buffer(header, len(header))
        self.address = ctypes.addressof(self._header)


def install(address: int) -> None:
    """Install the filter at this address permanently for this process, which needs no_new_privs."""
    check_result(_prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, address, 0, 0), "seccomp")
