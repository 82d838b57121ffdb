"""Checks the trainer's lines: each is added to the outbox unchanged, or left out and counted."""

from dataclasses import dataclass

from workers.contract.reports.lines import EVENT_DATA, Line, problem_of, read_line
from workers.contract.wire.names import TRAINER_KINDS, EventKind

EVENT_BYTES = 16_384
"""The longest line without metrics, in bytes."""


@dataclass
class TrainerProgress:
    step: int | None = None
    ended: bool = False
    """True if it has left its training loop."""
    stopped: bool = False
    """True if it left the loop before the last step, because of STOP."""
    saved: bool = False
    """True if it has saved a checkpoint."""
    is_job: bool = False
    """True if a job has ended, whose steps are parts of its work."""

    def note(self, line: Line) -> None:
        if line.step is not None:
            self.step = line.step
        self.saved = self.saved or line.kind == EventKind.CHECKPOINT
        if line.kind == EventKind.TRAINED:
            self.ended = True
            how = (line.data() or {}).get("how")
            self.stopped, self.is_job = how == "stopped", how == "done"


def trainer_line(text: bytes) -> Line | None:
    """Parse a line; None if it must not be passed on: a trainer runs foreign code, which may write anything."""
    line = read_line(text)
    if line is None or line.seq or line.kind not in TRAINER_KINDS:
        return None
    data = line.data()
    if data is None or problem_of(line.kind, line.step, data):
        return None
    if line.kind == EventKind.TRAIN:
        return line
    return line if len(text) <= EVENT_BYTES and data.keys() <= EVENT_DATA[line.kind].keys() else None


def lines_left_out(count: int) -> str:
    return f"Left out {count} of the trainer's lines, which could not be understood."
