"""Ties a process to the life of the one that started it."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def end_with(parent: int, by: signal.Signals) -> None:
    """In the child, also between fork and exec: receive the signal `by` when the parent has died, or now if it has.

    The parent is the *thread* that started the child: start tied children from a thread that lives as long as its
    process.
    """
    _libc.prctl(_PR_SET_PDEATHSIG, by)
    if os.getppid() != parent:  # it died before the call
        os.kill(os.getpid(), by)
