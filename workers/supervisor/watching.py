"""Reads the trainer's lines and the machine's figures, and writes them to the outbox."""

from collections import deque
from collections.abc import Callable, Collection
from statistics import median
from typing import NamedTuple

from workers.contract.reports.lines import Line
from workers.contract.wire.names import UNHURRIED, EventKind, FileName
from workers.supervisor.limits import LimitWatch
from workers.supervisor.processes.folder import AttemptFolder
from workers.supervisor.processes.witnesses import activities
from workers.supervisor.reports.reporting import Reporting
from workers.supervisor.reports.tail import Tail
from workers.supervisor.reports.trainerlines import TrainerProgress, trainer_line

REMEMBERED = 50
"""The number of steps that determine the usual duration."""


class Stall(NamedTuple):
    """A training that no longer makes progress."""

    step: int | None
    """The last step that ended."""
    seconds: float
    """Seconds since then."""
    usual_s: float | None
    """The usual duration of a step in seconds; None before the first step."""

    def __str__(self) -> str:
        if self.usual_s is None:
            return f"Training began {self.seconds:.0f} s ago, and no step has ended yet."
        usual = f"although steps usually take {self.usual_s:.3g} s"
        return f"No step has ended for {self.seconds:.0f} s, {usual}: the last was step {self.step}."


class TrainerWatch:
    """Reads metrics.jsonl as it grows."""

    def __init__(self, folder: AttemptFolder, report: Reporting, pace: "StepPace", limits: LimitWatch) -> None:
        self._folder = folder
        self._report = report
        self.tail = Tail(folder / FileName.METRICS, trainer_line)
        self._pace = pace
        self._limits = limits
        self.progress = TrainerProgress()
        self.heard_at = float("-inf")
        """When the trainer's last line was read, by time.monotonic()."""

    def read(self, now: float | None = None) -> None:
        for line in self.tail.read():
            self.heard_at = self.heard_at if now is None else now
            self.progress.note(line)
            self._note_pace(line, now)
            if line.kind == EventKind.TRAIN and self._limits.reads:
                self._limits.note(line.step, line.data() or {})
            self._report.forward(line)

    def read_to_the_end(self) -> None:
        """Read the trainer's last lines. Called before its exit is judged."""
        while not self.tail.at_end():
            self.read()

    def stall(self, now: float) -> Stall | None:
        """Return a stall that was not reported before. Evaluations, saves and waits for agents count by their own
        progress, and not as a part of the step."""
        if self._pace.stall(now) is None:
            return None
        ranks = activities(self._folder)
        moved_at = [rank.since if UNHURRIED.intersection(rank.doing) else rank.steps_since for rank in ranks]
        stall = self._pace.stall(now, since=max(moved_at, default=float("-inf")))
        if stall is not None:
            self._pace.reported = True
        return stall

    def _note_pace(self, line: Line, now: float | None) -> None:
        if now is None or line.kind not in (EventKind.TRAINING, EventKind.TRAIN):
            return
        text = self._pace.step(self.progress.step, now)
        if text:
            self._report.note(text)


class StepPace:
    """The usual duration of a step, and stalls; each is reported once, as is the end of a stall. `after`: the number of
    usual durations after which a step stalls, but not before `least_s`. `first_s`: the limit of the first step."""

    def __init__(self, *, after: float, least_s: float, first_s: float) -> None:
        self._after, self._least_s, self._first_s = after, least_s, first_s
        self._took: deque[float] = deque(maxlen=REMEMBERED)
        self._step: int | None = None
        self._at: float | None = None
        """When the last step ended; None before training begins."""
        self.reported = False

    def step(self, step: int | None, now: float) -> str:
        """Record the start of training or the end of a step; return a message if that ends a stall."""
        if step == self._step and self._at is not None:
            return ""
        before, self._at, self._step = self._at, now, step
        reported, self.reported = self.reported, False
        if before is None:
            return ""
        self._took.append(now - before)
        return f"Step {step} ended after {now - before:.0f} s: training continues." if reported else ""

    def stall(self, now: float, since: float = float("-inf")) -> Stall | None:
        """Return a stall, if there is one. `since`: when an activity other than a step last progressed."""
        usual = median(self._took) if self._took else None
        limit = self._first_s if usual is None else max(self._least_s, self._after * usual)
        if self._at is None or self.reported or now - max(self._at, since) < limit:
            return None
        return Stall(self._step, now - self._at, usual)


class HostFigures:
    """Reports samples of the host, its GPUs and the vLLM servers, and keeps the peaks for the receipt. `own_figures`:
    figures of the attempt itself, sent with each sample."""

    def __init__(
        self,
        report: Reporting,
        progress: TrainerProgress,
        *,
        open_for: Callable[[], bool],
        own_figures: Callable[[], dict[str, float]],
    ) -> None:
        self._report = report
        self._progress = progress
        self._open = open_for
        self._own_figures = own_figures
        self.tree_bytes: int | None = None
        """Resident memory of all descendants at the last scan; None before the first."""
        self.peaks: dict[int, int] = {}
        self.gpus: Collection[int] = ()
        self.use: dict[int, float] = {}
        """GPU -> percent, as last sampled."""

    def on_system_sample(self, sample: dict[str, float]) -> None:
        for gpu in self.gpus:
            self.use[gpu] = sample.get(f"gpu/{gpu}/util_percent", 0.0)
            used = int(sample.get(f"gpu/{gpu}/memory_mib", 0))
            self.peaks[gpu] = max(used, self.peaks.get(gpu, 0))
        if self.tree_bytes is not None:
            sample = {**sample, "host/run_memory_mib": float(self.tree_bytes >> 20)}
        sample = {**sample, **self._own_figures()}
        if self._open():
            self._report.append(EventKind.SYSTEM, sample, step=self._progress.step)

    def on_server_sample(self, sample: dict[str, float]) -> None:
        if self._open():
            self._report.append(EventKind.VLLM, sample, step=self._progress.step)
