"""Helpers for child processes: death with their parent, and a lower priority on machines with GPUs."""

import contextlib
import ctypes
import os
import signal
from pathlib import Path

NICENESS = 10
GPU_DEVICE = Path("/dev/nvidiactl")
"""Device file that exists once NVIDIA's driver is loaded."""
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent(parent: int, death_signal: signal.Signals) -> None:
    """Ask the kernel to send `death_signal` to this child when its parent dies, or send it now if the parent already
    has. Call this in the child, also between fork and exec. The kernel watches the *thread* that started the child, so
    start such children from a thread that lives as long as its process."""
    _libc.prctl(_PR_SET_PDEATHSIG, death_signal)
    if os.getppid() != parent:  # the parent died before the call
        os.kill(os.getpid(), death_signal)


def lower_priority(niceness: int) -> None:
    """Lower the priority of this process, and of its session if it leads it: Linux first divides the processor among
    sessions, and heeds niceness only within each."""
    os.nice(niceness)
    if os.getsid(0) == os.getpid():
        with contextlib.suppress(OSError):
            Path("/proc/self/autogroup").write_text(str(niceness))


def niceness() -> int:
    """Return the niceness of processes that gather, send and show metrics: NICENESS on a machine with GPUs, so that
    they never hold up a process that feeds a GPU; 0 on other machines."""
    return NICENESS if GPU_DEVICE.exists() else 0
