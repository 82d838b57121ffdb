"""Readers of the trainer's lines and the host's metrics, which write them to the outbox."""

from collections import deque
from collections.abc import Callable, Collection
from statistics import median
from typing import NamedTuple

from workers.contract.reports.lines import Line
from workers.contract.wire.names import UNHURRIED_PARTS, EventKind, FileName
from workers.supervisor.limits import LimitWatch
from workers.supervisor.processes.folder import AttemptFolder
from workers.supervisor.processes.witnesses import activities
from workers.supervisor.reports.reporting import Reporting
from workers.supervisor.reports.tail import Tail
from workers.supervisor.reports.trainerlines import TrainerProgress, trainer_line

MAX_DURATIONS = 50


class Stall(NamedTuple):
    """Training that is no longer making progress."""

    step: int | None
    seconds: float
    """Seconds since `step` ended, or since training began."""
    usual_s: float | None
    """Usual duration of a step in seconds; None before the first step."""

    def __str__(self) -> str:
        if self.usual_s is None:
            return f"Training began {self.seconds:.0f} s ago, and no step has ended yet."
        usual_clause = f"although steps usually take {self.usual_s:.3g} s"
        return f"No step has ended for {self.seconds:.0f} s, {usual_clause}: the last was step {self.step}."


class TrainerWatch:
    def __init__(self, folder: AttemptFolder, report: Reporting, pace: "StepPace", limits: LimitWatch) -> None:
        self._folder = folder
        self._report = report
        self.tail = Tail(folder / FileName.METRICS, trainer_line)
        self._pace = pace
        self._limits = limits
        self.progress = TrainerProgress()
        self.heard_at = float("-inf")
        """Time of time.monotonic() when the trainer's last line was read."""

    def read(self, now: float | None = None) -> None:
        for line in self.tail.read():
            self.heard_at = self.heard_at if now is None else now
            self.progress.note(line)
            self._note_pace(line, now)
            if line.kind == EventKind.TRAIN and self._limits.needs_metrics:
                self._limits.note(line.step, line.data() or {})
            self._report.forward(line)

    def read_to_the_end(self) -> None:
        """Read all remaining lines of the trainer. Called before its exit is judged."""
        while not self.tail.is_at_end():
            self.read()

    def stall(self, now: float) -> Stall | None:
        """Return a stall that was not reported before, or None. Evaluations, saves and waits for agents are judged by
        their own progress, not as a part of the step."""
        if self._pace.stall(now) is None:
            return None
        ranks = activities(self._folder)
        moved_at = [rank.since if UNHURRIED_PARTS.intersection(rank.doing) else rank.steps_since for rank in ranks]
        stall = self._pace.stall(now, since=max(moved_at, default=float("-inf")))
        if stall is not None:
            self._pace.reported = True
        return stall

    def _note_pace(self, line: Line, now: float | None) -> None:
        if now is None or line.kind not in (EventKind.TRAINING, EventKind.TRAIN):
            return
        note = self._pace.step(self.progress.step, now)
        if note:
            self._report.note(note)


class StepPace:
    """The usual duration of a step, and stalls; each is reported once, as is the end of a stall. A step stalls after
    `after` times the usual duration, but at least `least_s` seconds; the first one after `first_s` seconds."""

    def __init__(self, *, after: float, least_s: float, first_s: float) -> None:
        self._after, self._least_s, self._first_s = after, least_s, first_s
        self._durations: deque[float] = deque(maxlen=MAX_DURATIONS)
        self._step: int | None = None
        self._ended_at: float | None = None
        """Time when the last step ended; None before training begins."""
        self.reported = False

    def step(self, step: int | None, now: float) -> str:
        """Record the start of training or the end of a step; return a note if that ends a stall, or ""."""
        if step == self._step and self._ended_at is not None:
            return ""
        previous_end, self._ended_at, self._step = self._ended_at, now, step
        reported, self.reported = self.reported, False
        if previous_end is None:
            return ""
        self._durations.append(now - previous_end)
        return f"Step {step} ended after {now - previous_end:.0f} s: training continues." if reported else ""

    def stall(self, now: float, since: float = float("-inf")) -> Stall | None:
        """Return an unreported stall, or None. `since`: when an activity other than a step last made progress."""
        usual_s = median(self._durations) if self._durations else None
        limit = self._first_s if usual_s is None else max(self._least_s, self._after * usual_s)
        if self._ended_at is None or self.reported or now - max(self._ended_at, since) < limit:
            return None
        return Stall(self._step, now - self._ended_at, usual_s)


class HostSampler:
    """Sampler of the host, its GPUs and the vLLM servers, which also keeps the peaks for the receipt. `own_metrics`
    returns metrics of the attempt itself, which are added to each sample."""

    def __init__(
        self,
        report: Reporting,
        progress: TrainerProgress,
        *,
        is_open: Callable[[], bool],
        own_metrics: Callable[[], dict[str, float]],
    ) -> None:
        self._report = report
        self._progress = progress
        self._open = is_open
        self._own_metrics = own_metrics
        self.tree_bytes: int | None = None
        """Resident memory of all descendants in bytes at the last scan; None before the first."""
        self.peaks: dict[int, int] = {}
        self.gpus: Collection[int] = ()
        self.use: dict[int, float] = {}
        """GPU -> utilization in percent, as last sampled."""

    def on_system_sample(self, sample: dict[str, float]) -> None:
        for gpu in self.gpus:
            self.use[gpu] = sample.get(f"gpu/{gpu}/util_percent", 0.0)
            used_mib = int(sample.get(f"gpu/{gpu}/memory_mib", 0))
            self.peaks[gpu] = max(used_mib, self.peaks.get(gpu, 0))
        if self.tree_bytes is not None:
            sample = {**sample, "host/run_memory_mib": float(self.tree_bytes >> 20)}
        sample = {**sample, **self._own_metrics()}
        if self._open():
            self._report.append(EventKind.SYSTEM, sample, step=self._progress.step)

    def on_server_sample(self, sample: dict[str, float]) -> None:
        if self._open():
            self._report.append(EventKind.VLLM, sample, step=self._progress.step)
