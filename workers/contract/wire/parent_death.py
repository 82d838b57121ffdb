"""Makes a child process die with the process that started it."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent(parent: int, by: signal.Signals) -> None:
    """Ask the kernel to send the signal `by` to this child when its parent dies, or send it now if it already has.

    For use in the child, also between fork and exec. The kernel watches the *thread* that started the child, so start
    such children from a thread that lives as long as its process.
    """
    _libc.prctl(_PR_SET_PDEATHSIG, by)
    if os.getppid() != parent:  # the parent died before the call
        os.kill(os.getpid(), by)
