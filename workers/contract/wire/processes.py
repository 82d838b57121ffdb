"""Processes of the operating system: they die with their parent, and have a lower priority on machines with GPUs."""

import ctypes
import os
import signal
from pathlib import Path

NICENESS = 10
GPU_DEVICE = Path("/dev/nvidiactl")
"""Device file that exists once NVIDIA's driver is loaded."""
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent(parent: int, by: signal.Signals) -> None:
    """Ask the kernel to send the signal `by` to this child when its parent dies, or send it now if it already has. For
    use in the child, also between fork and exec. The kernel watches the *thread* that started the child, so start such
    children from a thread that lives as long as its process."""
    _libc.prctl(_PR_SET_PDEATHSIG, by)
    if os.getppid() != parent:  # the parent died before the call
        os.kill(os.getpid(), by)


def niceness() -> int:
    """Return the niceness of processes that gather, send and show metrics, since a core that feeds a GPU must not wait
    for one that reports on it; 0 on a machine without GPUs."""
    return NICENESS if GPU_DEVICE.exists() else 0
