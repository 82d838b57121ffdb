"""What lies ready between a caller's calls: candidates' processes that have run nothing yet, each beside a fresh
verifier's. To score one then takes no fork."""

from __future__ import annotations

import threading

from workers.sandbox.evaluation import Evaluation
from workers.sandbox.outcomes import Limits
from workers.sandbox.starting import Zygote


class Ready:
    """Thread-safe."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._lying: list[Evaluation] = []
        self._closed = False

    def take(self, limits: Limits, zygote: Zygote) -> Evaluation | None:
        """One under these limits."""
        with self._lock:
            for gone in [each for each in self._lying if each.zygote is not zygote]:
                self._lying.remove(gone)
                gone.discard()
            found = next((each for each in self._lying if each.limits == limits), None)
            if found is not None:
                self._lying.remove(found)
            return found

    def has_room(self, limits: Limits) -> bool:
        with self._lock:
            return sum(each.limits == limits for each in self._lying) < self._most

    def put(self, evaluation: Evaluation) -> None:
        """The oldest one makes room for it."""
        with self._lock:
            self._lying.append(evaluation)
            while len(self._lying) > (0 if self._closed else self._most):
                self._lying.pop(0).discard()

    def close(self) -> None:
        """And for good."""
        with self._lock:
            self._closed = True
        self.clear()

    def clear(self) -> None:
        with self._lock:
            while self._lying:
                self._lying.pop().discard()
