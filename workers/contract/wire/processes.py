"""Processes of the operating system: ends with the one that started it, and gives way on machines with GPUs."""

from __future__ import annotations

import ctypes
import os
import signal
from pathlib import Path

NICENESS = 10
GPU_DEVICE = Path("/dev/nvidiactl")
"""Exists once NVIDIA's driver is loaded."""
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def end_with(parent: int, by: signal.Signals) -> None:
    """In the child, also between fork and exec: receive the signal `by` when the parent has died, or now if it has.

    The parent is the *thread* that started the child: start such children from a thread that lives as long as its
    process.
    """
    _libc.prctl(_PR_SET_PDEATHSIG, by)
    if os.getppid() != parent:  # it died before the call
        os.kill(os.getpid(), by)


def niceness() -> int:
    """Niceness of processes that gather, send and show figures: a core that feeds a GPU must not wait for one that
    reports on it. 0 on a machine without GPUs."""
    return NICENESS if GPU_DEVICE.exists() else 0
