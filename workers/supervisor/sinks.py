"""The process of a run's sinks beside its trainer: started, started again after a crash, and never waited for, except
for a short time at the end."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from workers.contract.run import sinks
from workers.contract.wire.names import FileName
from workers.supervisor import commands

if TYPE_CHECKING:
    from workers.supervisor.steps import Shared

RESTARTS = 5
LOOK_S = 2.0


class Sinks:
    """Of one attempt; without sinks in its spec nothing happens."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._starts = 0
        self._again_at: float | None = None
        self._next_look = 0.0
        self._told: dict[str, str] = {}

    def begin(self, now: float) -> None:
        shared = self._shared
        if not shared.spec.run.sinks:
            return
        self._starts += 1
        self._again_at = None
        shared.children.exits.pop(sinks.ROLE, None)
        argv = shared.settings.sinks_command or (sys.executable, "-m", "workers.sinks")
        environment = commands.sinks_environment(shared.spec, shared.settings, os.environ, shared.secrets)
        failed = shared.start(sinks.ROLE, [*argv, str(shared.folder.path)], environment)
        if failed is not None:
            shared.report.note(f"The run's figures are sent nowhere else: {failed.detail}", level="warning")
            self._starts = RESTARTS

    def tick(self, now: float) -> None:
        """While the trainer runs."""
        if not self._starts:
            return
        if now >= self._next_look:
            self._next_look = now + LOOK_S
            self._tell_problems()
        exit_ = self._shared.children.exits.get(sinks.ROLE)
        if exit_ is None or self._starts >= RESTARTS:
            return
        if self._again_at is None:
            self._again_at = now + 2.0**self._starts
            self._shared.report.note(
                f"What sends the run's figures elsewhere ended with {exit_.code}; the training goes on, and it is "
                f"started again, at most {RESTARTS - 1} times. Its log has more.",
                level="warning",
            )
        elif now >= self._again_at:
            self.begin(now)

    def _tell_problems(self) -> None:
        state = self._shared.folder.read_json(f"{FileName.SINKS}/{sinks.STATE}") or {}
        for title, problem in state.items():
            if problem and problem != self._told.get(title):
                text = f"{title} doesn't take the run's figures: {problem} They are kept, and sent once it does."
                self._shared.report.note(text, level="warning")
        self._told.update({str(title): str(problem) for title, problem in state.items() if problem})
