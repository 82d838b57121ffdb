"""Checks of the trainer's lines: each is added to the outbox unchanged, or dropped and counted."""

from dataclasses import dataclass

from workers.contract.reports.lines import EVENT_DATA, Line, problem_of, read_line
from workers.contract.wire.names import TRAINER_KINDS, EventKind

MAX_EVENT_BYTES = 16_384


@dataclass
class TrainerProgress:
    step: int | None = None
    ended: bool = False
    """True if the trainer has left its training loop."""
    stopped: bool = False
    """True if the trainer left the loop before the last step because of STOP."""
    saved: bool = False
    is_job: bool = False
    """True if the trainer was a job, whose steps are parts of its work, and has ended."""

    def note(self, line: Line) -> None:
        if line.step is not None:
            self.step = line.step
        self.saved = self.saved or line.kind == EventKind.CHECKPOINT
        if line.kind == EventKind.TRAINED:
            self.ended = True
            ending = (line.data() or {}).get("how")
            self.stopped, self.is_job = ending == "stopped", ending == "done"


def trainer_line(text: bytes) -> Line | None:
    """Parse a line of the trainer, which runs untrusted code that may write anything; return None if the line must not
    be passed on."""
    line = read_line(text)
    if line is None or line.seq or line.kind not in TRAINER_KINDS:
        return None
    data = line.data()
    if data is None or problem_of(line.kind, line.step, data):
        return None
    if line.kind == EventKind.TRAIN:
        return line
    return line if len(text) <= MAX_EVENT_BYTES and data.keys() <= EVENT_DATA[line.kind].keys() else None


def dropped_lines_note(count: int) -> str:
    return f"Dropped {count} of the trainer's lines because {'they' if count > 1 else 'it'} could not be parsed."
