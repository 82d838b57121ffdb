"""What a running attempt tells of itself: the trainer's lines and the machine's figures, on their way to the outbox."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from workers.contract import EventKind, FileName
from workers.supervisor.folder import AttemptFolder
from workers.supervisor.reporting import Reporting
from workers.supervisor.tail import Tail
from workers.supervisor.trainerlines import Progress, note_progress, translate


class TrainerWatch:
    """metrics.jsonl, read as it grows."""

    def __init__(self, folder: AttemptFolder, report: Reporting) -> None:
        self._folder = folder
        self._report = report
        self._tail = Tail(folder / FileName.METRICS)
        self._not_finite: set[str] = set()
        self.progress = Progress()

    def read(self) -> None:
        for line in self._tail.read():
            note_progress(self.progress, line)
            self._name_not_finite(line)
            new = translate(line, folder=self._folder.path, now=time.time())
            if new is not None:
                self._report.append(new.kind, new.data, step=new.step, t=new.t)

    def read_to_the_end(self) -> None:
        """Its last words, before they are judged."""
        while not self._tail.at_end():
            self.read()

    def _name_not_finite(self, line: dict[str, object]) -> None:
        """Once for each metric: a run that diverged would say it at every step."""
        dropped = line.get("dropped")
        fresh = {str(name) for name in dropped} - self._not_finite if isinstance(dropped, list) else set()
        if fresh:
            self._not_finite |= fresh
            names = ", ".join(sorted(fresh))
            self._report.note(f"Not a finite number at step {line.get('step')}: {names}.", level="warning")


class Figures:
    """Samples of the host, its GPUs and the vLLM servers; peaks are kept for the receipt."""

    def __init__(self, report: Reporting, progress: Progress, *, open_for: Callable[[], bool]) -> None:
        self._report = report
        self._progress = progress
        self._open = open_for
        self.tree_bytes: int | None = None
        """Resident memory of all descendants at the last scan; None while there are none."""
        self.peaks: dict[int, int] = {}
        self.gpus: Collection[int] = ()

    def of_system(self, sample: dict[str, float]) -> None:
        for gpu in self.gpus:
            used = int(sample.get(f"gpu/{gpu}/memory_mib", 0))
            self.peaks[gpu] = max(used, self.peaks.get(gpu, 0))
        if self.tree_bytes is not None:
            sample = {**sample, "host/run_memory_mib": float(self.tree_bytes >> 20)}
        if self._open():
            self._report.append(EventKind.SYSTEM, sample, step=self._progress.step)

    def of_servers(self, sample: dict[str, float]) -> None:
        if self._open():
            self._report.append(EventKind.VLLM, sample, step=self._progress.step)
