"""What the zygote and its forks give up: limits, privileges, system calls."""

from __future__ import annotations

import errno
import mmap
import os
import resource

# By their names, not as attributes of modules: a fork that looks something up there writes to more pages.
from os import chdir
from resource import setrlimit

from workers.sandbox import kernel
from workers.sandbox.kernel import CLONE_NEWNS, drop_capabilities, install, mount_tmpfs, unshare

WORK = "/tmp"  # noqa: S108  inside the sandbox: each evaluation mounts its own tmpfs there
_WORK = WORK.encode()
_OPEN_FILES = 64
_MOST_OPEN = 1 << 16
"""Of the zygote."""
_STEP = 1 << 16
_UNPRIVILEGED = 65534
_INFINITE = 0x7FFFFFFFFFFFFFFF
_zygote = -1
"""Its pid, as its forks see it too where they are in no pid namespace of their own."""
_HARD = [
    resource.getrlimit(which)[1] & _INFINITE  # what is infinite becomes the largest there is
    for which in (resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE)
]

Bounds = tuple[tuple[int, tuple[int, int]], ...]
"""Resource limits: which, and its soft and hard value."""


def address_space() -> int:
    """Bytes that this process's limit on address space counts, found without /proc: by the least limit that lets one
    page more be mapped. To 64 KiB; not below."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    low, high = 0, 1 << 46
    try:
        while high - low > _STEP:
            middle = (low + high) // 2
            resource.setrlimit(resource.RLIMIT_AS, (middle, hard))
            low, high = (low, middle) if _maps_one_page() else (middle, high)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    return high


def _maps_one_page() -> bool:
    try:
        mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    except OSError:
        return False
    return True


def limit_zygote() -> None:
    """What holds for every fork alike, and what the zygote itself never needs. Raises OSError."""
    global _zygote
    _zygote = os.getpid()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if 0 <= most < _OPEN_FILES:
        raise OSError(errno.EMFILE, f"Only {most} files may be open at once; {_OPEN_FILES} are needed")
    # It holds a socket for each candidate that is to come.
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(_MOST_OPEN, most & _INFINITE), most))
    for limit in (resource.RLIMIT_CORE, resource.RLIMIT_MEMLOCK, resource.RLIMIT_MSGQUEUE, resource.RLIMIT_RTPRIO):
        resource.setrlimit(limit, (0, 0))
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)


def limits(seconds: float, memory: int, disk: int) -> Bounds:
    """For `lock`: of processor time, of address space in all, of the largest file, and of open files."""
    wanted = (memory, int(seconds) + 2, disk, _OPEN_FILES)
    kinds = (resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE)
    return tuple(
        (which, (min(value, hard), min(value, hard))) for which, value, hard in zip(kinds, wanted, _HARD, strict=True)
    )


def lock(bounds: Bounds, tmpfs: bytes | None, parent_signal: int, filter_: int) -> None:
    """This process, for good. `bounds`: of `limits`; `tmpfs`: options of one to mount as the working folder, in a mount
    namespace of its own; `parent_signal`: to get when the parent ends; `filter_`: address of a seccomp filter, 0 where
    there is none. Raises OSError."""
    if tmpfs is not None:
        unshare(CLONE_NEWNS)
        mount_tmpfs(_WORK, tmpfs)
        chdir(WORK)
    drop_capabilities()
    if parent_signal:
        kernel.prctl(kernel.PR_SET_PDEATHSIG, parent_signal)
        if os.getppid() != _zygote:
            os._exit(1)  # it ended before it could be heard of
    for which, bound in bounds:
        setrlimit(which, bound)
    if filter_:
        install(filter_)


def tmpfs_options(size: int) -> bytes:
    return b"size=%d,nr_inodes=%d,mode=0700" % (size, 16 + size // 4096)


def give_up_root(readable: list[str]) -> None:
    """To a user who owns nothing, where that one could still read what is needed; else only root's powers."""
    if os.geteuid() != 0:
        return
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            _become_nobody()
            code = 0 if all(os.access(path, os.R_OK) for path in readable) else 1
        finally:
            os._exit(code)
    if os.waitpid(pid, 0)[1] == 0:
        _become_nobody()
    kernel.drop_capabilities()


def _become_nobody() -> None:
    os.setgroups([])
    os.setresgid(_UNPRIVILEGED, _UNPRIVILEGED, _UNPRIVILEGED)
    os.setresuid(_UNPRIVILEGED, _UNPRIVILEGED, _UNPRIVILEGED)
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)


def takes(filter_: kernel.Filter) -> bool:
    """Whether the kernel will have a seccomp filter; tried in a process that does nothing else."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            kernel.install(filter_.address)
            code = 0
        finally:
            os._exit(code)
    return os.waitpid(pid, 0)[1] == 0
