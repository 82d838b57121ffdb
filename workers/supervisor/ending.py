"""The last steps of an attempt: from the end reason to the receipt, and until the control plane has everything."""

import logging
import math
from typing import Any

from workers.contract.reports.lines import Receipt
from workers.contract.run import sinks
from workers.contract.wire.documents import to_dict
from workers.contract.wire.names import EventKind, Phase
from workers.supervisor.end_reasons import DIAGNOSIS_WAIT_S, UNDIAGNOSED, End, diagnosis_of
from workers.supervisor.processes.child import STORING, TRAINER, ChildExit
from workers.supervisor.processes.loops import BackgroundCall
from workers.supervisor.processes.teardown import Teardown
from workers.supervisor.reports.trainerlines import dropped_lines_note
from workers.supervisor.steps import AttemptStep, Outcome, StepContext, StepWork

log = logging.getLogger(__name__)

SIGTERM_DRAIN_S = 10.0
"""Seconds for handing over on a host that is shutting down, and for the uploads before that if the host's notice is
unknown. When the host is back, its reaper hands over what remains."""


class Ending(StepWork):
    """The step that ends all processes, proves the GPUs free, and reports the end with its receipt."""

    _end: End | None = None
    _teardown: Teardown | None = None
    _diagnosis: BackgroundCall[dict[str, Any] | None] | None = None
    _receipt: Receipt | None = None
    _diagnosis_deadline = 0.0
    _sinks_deadline = 0.0
    _uploads_deadline: float | None = None

    def record(self, end: End, now: float) -> None:
        """Record the end reason in the outbox. Called before the first signal is sent."""
        context = self._context
        self._end = end
        log.info("ending: %s %s", end.reason, end.detail)
        context.report.phase(Phase.STOPPING, " ".join(part for part in (end.reason, end.detail) if part), end.reason)
        context.servers.close()
        sending = TRAINER in context.children.exits and sinks.ROLE in context.children.running()
        self._sinks_deadline = now + context.settings.sinks_end_s if sending else now

    def _begin_teardown(self, now: float) -> Teardown | None:
        """Begin the teardown and return it; None while the sinks may still send the last lines of an exited trainer."""
        context = self._context
        if now < self._sinks_deadline and sinks.ROLE in context.children.running():
            return None
        return Teardown(
            context.children.descendants,
            context.settings,
            now=now,
            baselines=context.children.baselines,
            peaks=context.figures.peaks,
            ports=context.servers.ports,
            read_gpus=context.read_gpus,
            is_orphan=context.children.is_orphan,
            nobody_left=context.children.has_none_left,
        )

    def tick(self, now: float) -> Outcome:
        if self._end is None:
            return None
        self._teardown = self._teardown or self._begin_teardown(now)
        if self._teardown is None:
            return None
        was_verifying = self._teardown.is_verifying
        self._receipt = self._receipt or self._teardown.tick(now)
        if self._teardown.is_verifying and not was_verifying:
            self._context.report.phase(Phase.VERIFYING)
            if self._end.reason not in UNDIAGNOSED:
                folder = self._context.folder.path
                self._diagnosis = BackgroundCall("diagnosis", lambda: diagnosis_of(folder))
                self._diagnosis_deadline = now + DIAGNOSIS_WAIT_S
        if self._receipt is None or (self._diagnosis and not self._diagnosis.done and now < self._diagnosis_deadline):
            return None
        if not self._upload_before_end(now):
            return None
        diagnosis = self._diagnosis.value() if self._diagnosis is not None and self._diagnosis.done else None
        if diagnosis is not None:
            step = self._context.trainer.progress.step
            self._context.report.append(EventKind.DIAGNOSED, diagnosis, step=step)
        self._report_end(self._end, self._receipt)
        return AttemptStep.DRAINING

    def _upload_before_end(self, now: float) -> bool:
        """Upload checkpoints before the end is reported if the host is shutting down, so that the next attempt is
        planned from the last one; return whether that is done. On other hosts, `Draining` uploads them."""
        context = self._context
        if context.host_deadline is None or not (context.storage.stores and context.trainer.progress.saved):
            return True
        if self._uploads_deadline is None:
            self._uploads_deadline = _upload_deadline(context.host_deadline, now)
            context.report.phase(Phase.UPLOADING)
            context.storage.finish()
        if now >= self._uploads_deadline:
            context.storage.give_up()
        return context.storage.is_idle

    def _report_end(self, end: End, receipt: Receipt) -> None:
        context = self._context
        context.report.stop_sampling()
        context.trainer.read_to_the_end()
        if bad_lines := context.trainer.tail.bad_lines:
            context.report.note(dropped_lines_note(bad_lines), level="warning")
        for exit_ in context.children.reap():
            report_exit(context, exit_)
        data = {
            "reason": end.reason,
            "detail": end.detail,
            "exit_codes": {role: exit_.code for role, exit_ in context.children.exits.items() if role != STORING},
            "receipt": to_dict(receipt),
        }
        context.report.append(EventKind.ENDED, data, step=context.trainer.progress.step)


class Draining(StepWork):
    """The step that waits for the confirmation of the last line, the uploads, and the removal of unfinished files."""

    def __init__(self, context: StepContext) -> None:
        super().__init__(context)
        self._drain_s = context.settings.drain_deadline_s
        self._deadline = float("inf")
        self._tidied: BackgroundCall[None] | None = None
        self._storing_deadline = float("inf")

    def begin(self, now: float) -> Outcome:
        self._tidied = BackgroundCall("tidying", self._context.folder.remove_unfinished)
        self._deadline = now + self._drain_s
        self._context.report.close()
        self._context.children.record([])
        self._storing_deadline = now + self._context.settings.store_deadline_s
        if self._context.trainer.progress.saved and self._context.host_deadline is None:
            self._context.storage.finish()
        return None

    def hurry(self, host_deadline: float, now: float) -> None:
        """Shorten the deadlines because the host is shutting down. Called at each tick from then on."""
        if self._drain_s != SIGTERM_DRAIN_S:
            self._drain_s = SIGTERM_DRAIN_S
            uploads_until = _upload_deadline(host_deadline, now)
            self._storing_deadline = min(self._storing_deadline, uploads_until)
            self._deadline = min(self._deadline, uploads_until + SIGTERM_DRAIN_S)

    def tick(self, now: float) -> Outcome:
        storage = self._context.storage
        if now >= self._storing_deadline:
            storage.give_up()
        if self._context.report.is_handed_over() and (self._tidied is None or self._tidied.done) and storage.is_idle:
            return AttemptStep.DONE
        if now >= self._deadline:
            storage.give_up()
            log.error("the control plane did not confirm everything in time; the reaper will send the rest")
            return AttemptStep.DONE
        return None


def _upload_deadline(host_deadline: float, now: float) -> float:
    return host_deadline if math.isfinite(host_deadline) else now + SIGTERM_DRAIN_S


def report_exit(context: StepContext, exit_: ChildExit) -> None:
    if exit_.role == STORING:
        return  # it reports to the control plane directly, even after the last line
    data = {"role": exit_.role, "pid": exit_.pid, "exit_code": exit_.code, "signal": exit_.signal}
    context.report.append(EventKind.PROCESS_EXITED, data)
