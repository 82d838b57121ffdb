"""CPU that trees of processes took between two moments, in percent of one core."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence

import psutil


class CpuWatch:
    def __init__(self, groups: Mapping[str, Sequence[int]]) -> None:
        self._groups = groups
        self._machine = psutil.cpu_times()
        self._begin = time.monotonic()
        self._before = self._seconds()

    def percent(self) -> dict[str, float]:
        """Of each group since the watch was made; `machine` is what all processes took."""
        took = time.monotonic() - self._begin
        used = {name: seconds - self._before[name] for name, seconds in self._seconds().items()}
        used["machine"] = _busy(psutil.cpu_times()) - _busy(self._machine)
        return {name: round(100 * seconds / took, 1) for name, seconds in used.items()}

    def _seconds(self) -> dict[str, float]:
        return {name: sum(_tree_seconds(pid) for pid in pids) for name, pids in self._groups.items()}


def _tree_seconds(pid: int) -> float:
    """Its own, its living descendants' and those of the ones that it has reaped."""
    with contextlib.suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        total = 0.0
        for process in [root, *root.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                total += sum(process.cpu_times()[:4])
        return total
    return 0.0


def _busy(times: object) -> float:
    named = times._asdict()  # type: ignore[attr-defined]
    return float(sum(value for name, value in named.items() if name in ("user", "system", "nice", "irq", "softirq")))
