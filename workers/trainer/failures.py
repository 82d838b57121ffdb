"""Rows that rewards failed on: told as events, counted over the last batches, and too many of them end the run.

Each rank notes what it has scored; `settle` brings the ranks' notes together after a batch, so that all of them count
the same and end at the same step.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from workers.rewards import Failure

WINDOW = 8
"""Batches of completions whose rows are looked at."""
LEAST = 4
"""Batches that are scored before a run is judged while it trains: a server may be away for one."""


@dataclass(frozen=True)
class Noted:
    """Of one reward and one batch, on one rank."""

    reward: str
    scored: int
    failed: int
    kind: str = ""
    message: str = ""
    row: int | None = None
    """Of the first failure."""


class Failures:
    def __init__(self, *, share: float, event: Callable[..., None]) -> None:
        """`share`: a run ends when a reward fails on more of its rows; 1 never ends it. `event` writes a line for the
        control plane, on the rank that does."""
        self._share = share
        self._event = event
        self._fresh: list[Noted] = []
        self._windows: dict[str, deque[tuple[int, int]]] = {}
        self._failed: dict[str, int] = {}
        self._scored: dict[str, int] = {}
        self._last: dict[str, str] = {}
        self.verdict = ""
        """Why the run ends, a sentence for people; "" while it goes on."""

    def note(self, reward: str, rows: Sequence[int], failures: Sequence[Failure]) -> None:
        """One reward has scored this rank's part of a batch; `rows` are their ids."""
        if not failures:
            self._fresh.append(Noted(reward, len(rows), 0))
            return
        first, failed = failures[0], len({failure.index for failure in failures})
        if self._is_worth_telling(self._failed.get(reward, 0), failed):
            print(f"Reward {reward!r} failed on row {rows[first.index]}: {first.message}", file=sys.stderr)
            if first.traceback:
                print(first.traceback, file=sys.stderr)
        self._fresh.append(Noted(reward, len(rows), failed, first.kind, first.message, rows[first.index]))

    def settle(self, step: int, gather: Callable[[list[Noted]], list[Noted]]) -> None:
        """After each batch: `gather` gives every rank the notes of all."""
        mine, self._fresh = self._fresh, []
        together: dict[str, list[Noted]] = {}
        for noted in gather(mine):
            together.setdefault(noted.reward, []).append(noted)
        for reward, notes in together.items():
            self._count(reward, notes, step)
            if not self.verdict and len(self._windows[reward]) >= LEAST:
                self.verdict = self._judged(reward)

    def judge_the_end(self) -> None:
        """The training is over: what was too short to be judged before is judged now."""
        self.verdict = self.verdict or next((said for reward in self._windows if (said := self._judged(reward))), "")

    def _count(self, reward: str, notes: list[Noted], step: int) -> None:
        failed, scored = sum(noted.failed for noted in notes), sum(noted.scored for noted in notes)
        self._windows.setdefault(reward, deque(maxlen=WINDOW)).append((failed, scored))
        before = self._failed.get(reward, 0)
        self._failed[reward] = before + failed
        self._scored[reward] = self._scored.get(reward, 0) + scored
        first = next((noted for noted in notes if noted.failed), None)
        if first is None:
            return
        self._last[reward] = first.message
        if self._is_worth_telling(before, failed):
            told = {"reward": reward, "row": first.row, "kind": first.kind, "message": first.message}
            self._event("reward_failed", step=step, **told, count=before + failed, of=self._scored[reward])

    @staticmethod
    def _is_worth_telling(before: int, failed: int) -> bool:
        """The 1st failure, the 10th, the 100th: of a reward that fails on every row there is no end."""
        return failed > 0 and len(str(before + failed)) > (len(str(before)) if before else 0)

    def _judged(self, reward: str) -> str:
        window = self._windows[reward]
        failed, scored = sum(failed for failed, _ in window), sum(scored for _, scored in window)
        if failed <= self._share * scored:
            return ""
        batches = f"its last {len(window)} batches" if len(window) > 1 else "its batch"
        return (
            f"The reward {reward} failed on {failed} of the {scored} completions of {batches}, and the run allows "
            f"{self._share:.0%}: {self._last[reward]}"
        )


def nothing(event: str, **fields: Any) -> None:
    """For a rank, or a test, that writes no lines."""
