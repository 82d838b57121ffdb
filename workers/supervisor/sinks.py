"""The process that sends a run's metrics to its sinks, alongside the trainer. It is restarted after a crash, and
nothing waits for it, except for a short time at the end."""

import os
import sys

from workers.contract.run import sinks
from workers.contract.wire.names import FileName
from workers.supervisor import commands
from workers.supervisor.steps import StepContext

MAX_STARTS = 5
POLL_S = 2.0


class Sinks:
    def __init__(self, context: StepContext) -> None:
        self._context = context
        self._starts = 0
        self._restart_at: float | None = None
        self._next_poll = 0.0
        self._reported: dict[str, str] = {}
        """Sink -> the problem last reported."""

    def begin(self, now: float) -> None:
        context = self._context
        if not context.spec.run.sinks:
            return
        self._starts += 1
        self._restart_at = None
        context.children.exits.pop(sinks.ROLE, None)
        argv = context.settings.sinks_command or (sys.executable, "-m", "workers.sinks")
        environment = commands.sinks_environment(context.spec, context.settings, os.environ, context.secrets)
        failure = context.start(sinks.ROLE, [*argv, str(context.folder.path)], environment)
        if failure is not None:
            context.report.note(f"The run's metrics aren't sent to its sinks: {failure.detail}", level="warning")
            self._starts = MAX_STARTS

    def tick(self, now: float) -> None:
        """Report problems and restart the process. Called while the trainer runs."""
        if not self._starts:
            return
        if now >= self._next_poll:
            self._next_poll = now + POLL_S
            self._report_problems()
        exit_ = self._context.children.exits.get(sinks.ROLE)
        if exit_ is None or self._starts >= MAX_STARTS:
            return
        if self._restart_at is None:
            self._restart_at = now + 2.0**self._starts
            self._context.report.note(
                f"The process that sends metrics to the run's sinks exited with code {exit_.code}. Training continues, "
                f"and the process is restarted at most {MAX_STARTS - 1} times. See its log for details.",
                level="warning",
            )
        elif now >= self._restart_at:
            self.begin(now)

    def _report_problems(self) -> None:
        state = self._context.folder.read_json(f"{FileName.SINKS}/{sinks.STATE}") or {}
        for title, problem in state.items():
            if problem and problem != self._reported.get(title):
                warning = f"{title} doesn't accept the run's metrics: {problem} They are kept and sent later."
                self._context.report.note(warning, level="warning")
        self._reported.update({str(title): str(problem) for title, problem in state.items() if problem})
