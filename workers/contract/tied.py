"""A process that ends with the one that started it, however that one ends."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def end_with(parent: int, by: signal.Signals) -> None:
    """In the child, also between fork and exec: get the signal `by` when its parent has died, or now where it has.

    The parent is the *thread* that started us: start what is tied from one that lives as long as its process.
    """
    _libc.prctl(_PR_SET_PDEATHSIG, by)
    if os.getppid() != parent:  # it died before we asked
        os.kill(os.getpid(), by)
