"""The allow-list of system calls for sandboxed code, built as a BPF program that the kernel runs for each call.

All other calls fail with EPERM. The program is a binary search by call number, because the kernel runs it once for each
possible number when it is installed.
"""

import errno
import os
import struct
import sys
from dataclasses import dataclass

from workers.sandbox.isolation.syscall_numbers import READ_CALLS, SPECIAL, WRITE_CALLS

_ARCHES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""Column of the table, and the kernel's number for the architecture, by machine."""

_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NR, _ARCH, _ARGUMENTS = 0, 4, 16
_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_KILL = 0x80000000
_X32 = 0x40000000

_FCNTL = (0, 1, 2, 3, 4, 1030, 1032)
"""F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC, F_GETPIPE_SZ. Not F_SETOWN and F_SETSIG, which send
signals to other processes. Not F_SETPIPE_SZ, which allocates memory that no limit counts."""
_LOCKS = (5, 6, 7)
"""F_GETLK, F_SETLK, F_SETLKW, with which SQLite locks its own files. flock is never allowed: it could lock any readable
file, even exclusively."""
_GETSOCKOPT = (3, 4, 7, 8, 38, 39)
"""SO_TYPE, SO_ERROR, SO_SNDBUF, SO_RCVBUF, SO_PROTOCOL, SO_DOMAIN. Not SO_PEERCRED and SO_PEERPIDFD, which say who the
caller is and give a handle of it."""
_IOCTL = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
"""TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX."""
_PRCTL = (15, 16, 0x53564D41)
"""PR_SET_NAME, PR_GET_NAME, PR_SET_VMA. Not PR_SET_PDEATHSIG, which makes the process die with its zygote."""
_CLONE_THREAD = 0x00010000
_CLONE_NEW_ANY = 0x7E020080


@dataclass(frozen=True)
class _OneOf:
    """Rule that allows a call if an argument is one of the values, all with 32 bits."""

    argument: int
    values: tuple[int, ...]

    def code(self) -> list[bytes]:
        count = len(self.values)
        tests = [_op(_JUMP_EQUAL, value, count - index) for index, value in enumerate(self.values)]
        return [_argument(self.argument), *tests, _fail_with(errno.EPERM), _op(_RETURN, _ALLOW)]


@dataclass(frozen=True)
class _Null:
    """Rule that allows a call if an argument is a null pointer."""

    argument: int

    def code(self) -> list[bytes]:
        low = _op(_LOAD, _ARGUMENTS + 8 * self.argument)
        high = _op(_LOAD, _ARGUMENTS + 8 * self.argument + 4)
        refuse, allow = _fail_with(errno.EPERM), _op(_RETURN, _ALLOW)
        return [low, _op(_JUMP_EQUAL, 0, 0, 2), high, _op(_JUMP_EQUAL, 0, 1), refuse, allow]


@dataclass(frozen=True)
class _Thread:
    """Rule that allows clone only for threads of this process."""

    def code(self) -> list[bytes]:
        new = _op(_JUMP_ANY_BIT, _CLONE_NEW_ANY, 1)
        return [_argument(0), new, _op(_JUMP_ANY_BIT, _CLONE_THREAD, 1), _fail_with(errno.EPERM), _op(_RETURN, _ALLOW)]


@dataclass(frozen=True)
class _Always:
    action: int

    def code(self) -> list[bytes]:
        return [_op(_RETURN, self.action)]


_Rule = _OneOf | _Null | _Thread | _Always
_REFUSE = _Always(_ERRNO | errno.EPERM)


class Unsupported(Exception):
    """Error for a machine without seccomp filters or with an unknown architecture. The message is for people."""


def check_supported() -> None:
    """Raise Unsupported if there is no filter for this machine."""
    if os.uname().machine not in _ARCHES or sys.maxsize < 2**32:
        raise Unsupported(f"There is no table of system calls for {os.uname().machine}.")


def program(*, writes: bool = False, executes: bool = False, alone: bool = False) -> bytes:
    """Build a filter and return its code. `writes`: the process may change files. `executes`: it may become another
    program, with threads. `alone`: it is process 1, alone in a pid namespace, and may signal itself. Raises Unsupported
    if there is none for this machine."""
    check_supported()
    column, arch = _ARCHES[os.uname().machine]
    allowed: dict[str, _Rule] = dict.fromkeys(READ_CALLS, _Always(_ALLOW))
    if writes:
        allowed |= dict.fromkeys(WRITE_CALLS, _Always(_ALLOW))
    allowed |= {
        "fcntl": _OneOf(1, _FCNTL + (_LOCKS if writes else ())),
        "ioctl": _OneOf(1, _IOCTL),
        "prctl": _OneOf(0, _PRCTL),
        "prlimit64": _OneOf(0, (0,)),
        "socketpair": _OneOf(0, (1,)),
        "getsockopt": _OneOf(2, _GETSOCKOPT),
        "sendto": _Null(4),  # without an address: one end of a pair could send to any named Unix socket
        "clone3": _Always(_ERRNO | errno.ENOSYS),
    }
    allowed |= {name: _Always(_ERRNO | errno.EOPNOTSUPP) for name in SPECIAL if name.endswith("xattr")}
    if alone:
        allowed |= {"kill": _OneOf(0, (1,)), "tgkill": _OneOf(0, (1,))}
    if executes:
        allowed |= {"clone": _Thread(), "execve": _Always(_ALLOW)}
    table = READ_CALLS | WRITE_CALLS | SPECIAL
    rules = {number: rule for name, rule in allowed.items() if (number := table[name][column]) is not None}
    head = [
        _op(_LOAD, _ARCH),
        _op(_JUMP_EQUAL, arch, 1),
        _op(_RETURN, _KILL),
        _op(_LOAD, _NR),
        _op(_JUMP_AT_LEAST, _X32, 0, 1),
        _fail_with(errno.EPERM),
    ]
    return b"".join(head + _search(_intervals(rules)))


def _intervals(rules: dict[int, _Rule]) -> list[tuple[int, _Rule]]:
    """Return (first number, rule) for each interval of call numbers with the same rule."""
    intervals: list[tuple[int, _Rule]] = [(0, _REFUSE)]
    for number in range(max(rules) + 2):
        rule = rules.get(number, _REFUSE)
        if rule == intervals[-1][1]:
            continue
        if intervals[-1][0] == number:
            intervals.pop()
        intervals.append((number, rule))
    return intervals


def _search(intervals: list[tuple[int, _Rule]]) -> list[bytes]:
    if len(intervals) == 1:
        return intervals[0][1].code()
    middle = len(intervals) // 2
    lower_half, upper_half = _search(intervals[:middle]), _search(intervals[middle:])
    if len(lower_half) > 255:
        raise Unsupported("The table of system calls has grown beyond what a jump can cross.")
    return [_op(_JUMP_AT_LEAST, intervals[middle][0], len(lower_half)), *lower_half, *upper_half]


def _argument(index: int) -> bytes:
    # The lower half: the arguments that are checked are ints.
    return _op(_LOAD, _ARGUMENTS + 8 * index)


def _fail_with(number: int) -> bytes:
    return _op(_RETURN, _ERRNO | number)


def _op(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, value)
