"""Who gives way on a machine with GPUs: a core that feeds one must not wait for a core that reports on it."""

from __future__ import annotations

from pathlib import Path

NICENESS = 10
GPU_DEVICE = Path("/dev/nvidiactl")
"""There once NVIDIA's driver is."""


def niceness() -> int:
    """Of what gathers, sends and shows beside a training; 0 on a machine without GPUs."""
    return NICENESS if GPU_DEVICE.exists() else 0
