"""Failures of rewards, which are reported as events and counted over the last batches; too many end the run.

Each rank notes its own failures; `judge_batch` gathers the notes after each batch, so that all ranks have the same
counts and end at the same step.
"""

import sys
from collections import Counter, deque
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass

from workers.contract.wire.names import EventKind
from workers.rewards.reward import Failure

WINDOW = 8
"""Number of batches over which failures are counted."""
MIN_BATCHES = 4
"""Minimum number of batches scored before failures may end the run, since a server may be down for one."""
MAX_MESSAGE = 500


@dataclass(frozen=True)
class FailureNote:
    """The failures of one reward in one batch, on one rank."""

    reward: str
    scored: int
    failed: int
    kind: str = ""
    message: str = ""
    row: int | None = None
    """Row of the first failure."""


class Failures:
    """Counter of the failures of all rewards, which decides whether the run ends."""

    def __init__(self, *, share: float, event: Callable[..., None], spared: Container[str] = ()) -> None:
        """Begin to count. `share`: the run ends if a reward fails on more than this share of its rows; 1 never ends it.
        `event`: writes an event on the rank that reports. `spared`: rewards that never end the run."""
        self._share = share
        self._spared = spared
        self._event = event
        self._new_notes: list[FailureNote] = []
        self._windows: dict[str, deque[tuple[int, int]]] = {}
        self._failed: Counter[str] = Counter()
        self._scored: Counter[str] = Counter()
        self._last_messages: dict[str, str] = {}
        self.verdict = ""
        """Sentence that says why the run ends; "" while it continues."""

    def note(self, reward: str, rows: Sequence[int], failures: Sequence[Failure]) -> None:
        """Record the failures of one reward on this rank's part of a batch. `rows`: the row ids of that part."""
        if not failures:
            self._new_notes.append(FailureNote(reward, len(rows), 0))
            return
        first, failed = failures[0], len({failure.index for failure in failures})
        if self._is_reported(self._failed[reward], failed):
            print(f"Reward {reward!r} failed on row {rows[first.index]}: {first.message}", file=sys.stderr)
            if first.traceback:
                print(first.traceback, file=sys.stderr)
        self._new_notes.append(FailureNote(reward, len(rows), failed, first.kind, first.message, rows[first.index]))

    def judge_batch(self, step: int, gather: Callable[[list[FailureNote]], list[FailureNote]]) -> None:
        """Combine the notes on a batch, report failures, and set `verdict` if there are too many. `gather`: returns the
        notes of all ranks."""
        own_notes, self._new_notes = self._new_notes, []
        by_reward: dict[str, list[FailureNote]] = {}
        for note in gather(own_notes):
            by_reward.setdefault(note.reward, []).append(note)
        for reward, notes in by_reward.items():
            self._count(reward, notes, step)
            if not self.verdict and len(self._windows[reward]) >= MIN_BATCHES:
                self.verdict = self._judge(reward)

    def judge_the_end(self) -> None:
        """Set `verdict` for runs that were too short to be judged during training."""
        self.verdict = self.verdict or next(
            (verdict for reward in self._windows if (verdict := self._judge(reward))), ""
        )

    def _count(self, reward: str, notes: list[FailureNote], step: int) -> None:
        failed, scored = sum(note.failed for note in notes), sum(note.scored for note in notes)
        self._windows.setdefault(reward, deque(maxlen=WINDOW)).append((failed, scored))
        previous = self._failed[reward]
        self._failed[reward] += failed
        self._scored[reward] += scored
        first_failure = next((note for note in notes if note.failed), None)
        if first_failure is None:
            return
        self._last_messages[reward] = first_failure.message
        if self._is_reported(previous, failed):
            message = first_failure.message[:MAX_MESSAGE]
            failure = {"reward": reward, "row": first_failure.row, "kind": first_failure.kind, "message": message}
            counts = {"count": previous + failed, "of": self._scored[reward]}
            self._event(EventKind.REWARD_FAILED, {**failure, **counts}, step=step)

    @staticmethod
    def _is_reported(before: int, failed: int) -> bool:
        """Return whether the 1st, 10th, 100th … failure is among these: a broken reward fails on every row."""
        return failed > 0 and len(str(before + failed)) > (len(str(before)) if before else 0)

    def _judge(self, reward: str) -> str:
        window = self._windows[reward]
        failed, scored = sum(failed for failed, _ in window), sum(scored for _, scored in window)
        if reward in self._spared or failed <= self._share * scored:
            return ""
        batches = f"its last {len(window)} batches" if len(window) > 1 else "its batch"
        return (
            f"The reward {reward} failed on {failed} of the {scored} completions of {batches}, but the run allows only "
            f"{self._share:.0%}: {self._last_messages[reward]}"
        )
