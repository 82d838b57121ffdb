"""Restriction of the resources, privileges and system calls of the zygote and its forks."""

import errno
import mmap
import os
import resource
import signal
from collections.abc import Callable
from typing import NamedTuple

from workers.sandbox.isolation import kernel

WORK = "/tmp"  # noqa: S108  # inside the sandbox: each evaluation mounts its own tmpfs there
_MAX_FILES_IN_FORK = 64
_MAX_FILES_IN_ZYGOTE = 1 << 16
_PRECISION_BYTES = 1 << 16
_NOBODY_UID = 65534
_INFINITE = 0x7FFFFFFFFFFFFFFF
_zygote_pid = -1


class ResourceLimits(NamedTuple):
    seconds: float
    address_space: int
    """Limit in bytes on the total address space, including that of the zygote."""
    file_bytes: int


def address_space() -> int:
    """Return the number of bytes that count towards this process's address space limit, rounded up to 64 KiB. It is
    found without /proc, as the lowest limit under which another page can be mapped."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    low, high = 0, min(1 << 46, hard & _INFINITE)
    try:
        while high - low > _PRECISION_BYTES:
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
    """Set the limits common to all forks, and drop the privileges that the zygote never needs. Raises OSError if the
    hard limit of open files is too low, or if the kernel refuses."""
    global _zygote_pid
    _zygote_pid = os.getpid()
    hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if 0 <= hard_limit < _MAX_FILES_IN_FORK:
        raise OSError(errno.EMFILE, f"Only {hard_limit} files may be open at once; {_MAX_FILES_IN_FORK} are needed")
    # The caller's soft limit may be low, and each evaluation needs a few descriptors here.
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(_MAX_FILES_IN_ZYGOTE, hard_limit & _INFINITE), hard_limit))
    # Whoever scores may have a limit of its own, but this process serves many evaluations, each with its own limit.
    cpu_limit = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_limit, cpu_limit))
    for limit in (resource.RLIMIT_CORE, resource.RLIMIT_MEMLOCK, resource.RLIMIT_MSGQUEUE, resource.RLIMIT_RTPRIO):
        resource.setrlimit(limit, (0, 0))
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)


def lock(limits: ResourceLimits, *, tmpfs_bytes: int, dies_with_parent: bool, filter_address: int) -> None:
    """Lock this process down permanently. `tmpfs_bytes`: the size of a tmpfs to mount as the working folder in a new
    mount namespace, 0 for none. `filter_address`: the address of a seccomp filter, 0 for none. Raises OSError if the
    kernel refuses."""
    if tmpfs_bytes:
        kernel.unshare(kernel.CLONE_NEWNS)
        options = b"size=%d,nr_inodes=%d,mode=0700" % (tmpfs_bytes, 16 + tmpfs_bytes // 4096)
        kernel.mount_tmpfs(WORK.encode(), options)
        os.chdir(WORK)
    kernel.drop_capabilities()
    if dies_with_parent:
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != _zygote_pid:
            os._exit(1)  # the parent ended before the signal was requested
    _set_limit(resource.RLIMIT_AS, limits.address_space)
    _set_limit(resource.RLIMIT_CPU, int(limits.seconds) + 2)
    _set_limit(resource.RLIMIT_FSIZE, limits.file_bytes)
    _set_limit(resource.RLIMIT_NOFILE, _MAX_FILES_IN_FORK)
    if filter_address:
        kernel.install(filter_address)


def _set_limit(resource_id: int, value: int) -> None:
    hard = resource.getrlimit(resource_id)[1] & _INFINITE  # infinity becomes the largest number
    resource.setrlimit(resource_id, (min(value, hard), min(value, hard)))


def give_up_root(readable: list[str]) -> None:
    """Give up root: become a user who owns nothing, if that user can read the files, and drop all capabilities."""
    if os.geteuid() != 0:
        return

    def can_read() -> bool:
        _become_nobody()
        return all(os.access(path, os.R_OK) for path in readable)

    if _succeeds_in_fork(can_read):
        _become_nobody()
    kernel.drop_capabilities()


def _become_nobody() -> None:
    os.setgroups([])
    os.setresgid(_NOBODY_UID, _NOBODY_UID, _NOBODY_UID)
    os.setresuid(_NOBODY_UID, _NOBODY_UID, _NOBODY_UID)
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)


def is_filter_accepted(filter_: kernel.SeccompFilter) -> bool:
    """Return whether the kernel accepts a seccomp filter, by trying it in a separate process."""

    def is_installed() -> bool:
        kernel.install(filter_.address)
        return True

    return _succeeds_in_fork(is_installed)


def _succeeds_in_fork(attempt: Callable[[], bool]) -> bool:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if attempt() else 1
        finally:
            os._exit(code)
    return os.waitpid(pid, 0)[1] == 0
