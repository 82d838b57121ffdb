"""Stops: those that somebody requests, and those because the host is shutting down."""

import math

from workers.contract.wire.names import EndReason, EventKind, StopMode
from workers.supervisor.end_reasons import End
from workers.supervisor.ending import SIGTERM_DRAIN_S
from workers.supervisor.processes.folder import HostStop
from workers.supervisor.steps import BEFORE_END, AttemptStep, Outcome, StepContext


class Stops:
    """The stops of one attempt. The caller judges the exits so far first, because a stop didn't cause them."""

    def __init__(self, context: StepContext) -> None:
        self._context = context
        self._mode: StopMode | None = None
        """Mode of the stop accepted last."""
        self._host_stop: HostStop | None = None

    def request(self, mode: StopMode, step: AttemptStep) -> Outcome:
        """Handle a pushed or polled stop and return its outcome; repeats have no effect. `now` may follow `save`, but
        not the reverse."""
        if step not in BEFORE_END or self._mode in (mode, StopMode.NOW):
            return None
        self._mode = mode
        self._context.report.append(EventKind.STOP_SEEN, {"mode": mode})
        if mode == StopMode.SAVE and step == AttemptStep.TRAINING:
            return AttemptStep.SAVING
        if mode == StopMode.SAVE and step == AttemptStep.SAVING:
            return None  # it saves because of a limit
        return self._end("", EndReason.STOPPED_BY_USER)

    def stop_with_host(self, step: AttemptStep, now: float) -> Outcome:
        """Handle a SIGTERM: set the host's deadline and return the outcome. Called at each tick from then on."""
        if self._host_stop is None:
            stop = self._host_stop = self._context.folder.host_stop()
            self._context.host_deadline = (
                math.inf if stop.within_s is None else now + max(0.0, stop.within_s - SIGTERM_DRAIN_S)
            )
            if stop.saves and step == AttemptStep.TRAINING:
                self._context.report.note("The host is shutting down, so the run saves a checkpoint first.")
                detail = "The worker on the host was stopped and let the run save first."
                self._context.requested_end = End(stop.reason, detail)
                return AttemptStep.SAVING
        if self._host_stop.saves and step == AttemptStep.SAVING:
            return None
        reason = EndReason.STOPPED_BY_USER if self._mode else self._host_stop.reason
        return self._end("The supervisor received SIGTERM on the host.", reason)

    def _end(self, detail: str, reason: EndReason) -> End:
        """Return the end by a stop, or the trainer's own end if it had already exited."""
        return self._context.settled or End(reason, detail)
