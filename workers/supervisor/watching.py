"""A running attempt's reports: the trainer's lines and the machine's figures, on their way to the outbox."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from statistics import median

from workers.contract import EventKind, FileName, Line
from workers.supervisor.folder import AttemptFolder
from workers.supervisor.reporting import Reporting
from workers.supervisor.tail import Tail
from workers.supervisor.trainerlines import TrainerProgress, trainer_line

REMEMBERED = 50
"""The number of steps that determine the usual duration."""
FAR_TOO_LONG = 10


class TrainerWatch:
    """Reads metrics.jsonl as it grows."""

    def __init__(self, folder: AttemptFolder, report: Reporting, *, stall_s: float) -> None:
        self._report = report
        self._tail = Tail(folder / FileName.METRICS, trainer_line)
        self._pace = StepPace(stall_s)
        self.progress = TrainerProgress()
        self.heard_at = float("-inf")
        """When its last line was read, by the monotonic clock."""

    @property
    def trouble(self) -> OSError | None:
        return self._tail.trouble

    @property
    def bad_lines(self) -> int:
        return self._tail.bad_lines

    def read(self, now: float | None = None) -> None:
        for line in self._tail.read():
            self.heard_at = self.heard_at if now is None else now
            self.progress.note(line)
            self._note_pace(line, now)
            self._report.forward(line)

    def read_to_the_end(self) -> None:
        """Read the trainer's last lines before its exit is judged."""
        while not self._tail.at_end():
            self.read()

    def look_at_the_pace(self, now: float) -> None:
        text = self._pace.stalled(now)
        if text:
            self._report.note(text, level="warning")

    def _note_pace(self, line: Line, now: float | None) -> None:
        if now is None or line.kind not in (EventKind.TRAINING, EventKind.TRAIN):
            return
        text = self._pace.step(self.progress.step, now)
        if text:
            self._report.note(text)


class StepPace:
    """The usual duration of a step, and stalls: reported once, and once when training goes on."""

    def __init__(self, stall_s: float) -> None:
        self._stall_s = stall_s
        self._took: deque[float] = deque(maxlen=REMEMBERED)
        self._step: int | None = None
        self._at: float | None = None
        """When the last step was seen; None before training begins."""
        self._reported = False

    def step(self, step: int | None, now: float) -> str:
        """Record the start of training or a step; returns a message if that ends a stall."""
        if step == self._step and self._at is not None:
            return ""
        before, self._at, self._step = self._at, now, step
        reported, self._reported = self._reported, False
        if before is not None:
            self._took.append(now - before)
        return (
            f"Step {step} came after {now - before:.0f} s: training goes on." if reported and before is not None else ""
        )

    def stalled(self, now: float) -> str:
        usual = median(self._took) if self._took else 0.0
        if self._at is None or self._reported or now - self._at < max(self._stall_s, FAR_TOO_LONG * usual):
            return ""
        self._reported = True
        if not self._took:
            return f"Training began {now - self._at:.0f} s ago, and no step has ended yet."
        rule = f"where one takes {usual:.3g} s as a rule"
        return f"No step for {now - self._at:.0f} s, {rule}: the last one was step {self._step}."


class HostFigures:
    """Samples of the host, its GPUs and the vLLM servers; peaks are kept for the receipt."""

    def __init__(self, report: Reporting, progress: TrainerProgress, *, open_for: Callable[[], bool]) -> None:
        self._report = report
        self._progress = progress
        self._open = open_for
        self.tree_bytes: int | None = None
        """Resident memory of all descendants at the last scan; None if there are none."""
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
