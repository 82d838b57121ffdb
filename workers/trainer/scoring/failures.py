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


class Failures:
    """Counter of the failures of all rewards, which decides whether the run ends."""

    def __init__(self, *, share: float, event: Callable[..., None], exempt_rewards: Container[str] = ()) -> None:
        """Begin to count. `share`: the run ends if a reward fails on more than this share of its rows; 1 never ends it.
        `event`: writes an event on the rank that reports. `exempt_rewards`: rewards that never end the run."""
        self._share = share
        self._spared = exempt_rewards
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
        first_failure, failed = failures[0], len({failure.index for failure in failures})
        if self._is_reported(self._failed[reward], failed):
            print(
                f"Reward {reward!r} failed on row {rows[first_failure.index]}: {first_failure.message}", file=sys.stderr
            )
            if first_failure.traceback:
                print(first_failure.traceback, file=sys.stderr)
        self._new_notes.append(
            FailureNote(reward, len(rows), failed, first_failure.kind, first_failure.message, rows[first_failure.index])
        )

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

    def judge_at_end(self) -> None:
        """Set `verdict` for runs that were too short to be judged during training."""
        self.verdict = self.verdict or next(
            (verdict for reward in self._windows if (verdict := self._judge(reward))), ""
        )

    def _count(self, reward: str, notes: list[FailureNote], step: int) -> None:
        failed, total = sum(note.failed for note in notes), sum(note.scored for note in notes)
        self._windows.setdefault(reward, deque(maxlen=WINDOW)).append((failed, total))
        previous = self._failed[reward]
        self._failed[reward] += failed
        self._scored[reward] += total
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
    def _is_reported(count_before: int, new_count: int) -> bool:
        """Return whether the 1st, 10th, 100th … failure is among the new ones; a broken reward fails on every row."""
        return new_count > 0 and len(str(count_before + new_count)) > (len(str(count_before)) if count_before else 0)

    def _judge(self, reward: str) -> str:
        window = self._windows[reward]
        failed, total = (sum(failed for failed, _ in window), sum(total for _, total in window))
        if reward in self._spared or failed <= self._share * total:
            return ""
        batches = f"its last {len(window)} batches" if len(window) > 1 else "its batch"
        return (
            f"The reward {reward} failed on {failed} of the {total} completions of {batches}, but the run allows only "
            f"{self._share:.0%}: {self._last_messages[reward]}"
        )
