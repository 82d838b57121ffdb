"""From the reason to the receipt, and until the control plane has everything."""

from __future__ import annotations

import logging

from workers.contract import EventKind, Phase, Receipt, to_dict
from workers.supervisor.child import ChildExit
from workers.supervisor.ends import End
from workers.supervisor.steps import Outcome, Shared, Step, Work
from workers.supervisor.teardown import Teardown
from workers.supervisor.trainerlines import lines_left_out

log = logging.getLogger(__name__)

SIGTERM_DRAIN_S = 10.0
"""A host that shuts down allows no more time; the reaper hands over the rest when it is back."""


class Ending(Work):
    """Ends the tree, proves the GPUs free, and reports the end with its receipt."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._end: End | None = None
        self._teardown: Teardown | None = None

    def because(self, end: End, now: float) -> None:
        """Record the reason in the outbox before the first signal."""
        shared = self._shared
        self._end = end
        log.info("ending: %s %s", end.reason, end.detail)
        shared.report.phase(Phase.STOPPING, " ".join(part for part in (end.reason, end.detail) if part), end.reason)
        shared.servers.close()
        self._teardown = Teardown(
            shared.children.descendants,
            shared.settings,
            now=now,
            baselines=shared.children.baselines,
            peaks=shared.figures.peaks,
            ports=shared.servers.ports,
            read_gpus=shared.read_gpus,
            is_orphan=shared.children.is_orphan,
            nobody_left=shared.children.none_left,
        )

    def tick(self, now: float) -> Outcome:
        if self._teardown is None or self._end is None:
            return None
        was_verifying = self._teardown.verifying
        receipt = self._teardown.tick(now)
        if self._teardown.verifying and not was_verifying:
            self._shared.report.phase(Phase.VERIFYING)
        if receipt is None:
            return None
        self._tell(self._end, receipt)
        return Step.DRAINING

    def _tell(self, end: End, receipt: Receipt) -> None:
        shared = self._shared
        shared.report.stop_sampling()
        shared.trainer.read_to_the_end()
        if shared.trainer.bad_lines:
            shared.report.note(lines_left_out(shared.trainer.bad_lines), level="warning")
        for exit_ in shared.children.reap():
            tell_exit(shared, exit_)
        data = {
            "reason": end.reason,
            "detail": end.detail,
            "exit_codes": {role: exit_.code for role, exit_ in shared.children.exits.items()},
            "receipt": to_dict(receipt),
        }
        shared.report.append(EventKind.ENDED, data, step=shared.trainer.progress.step)


class Draining(Work):
    """Stays until the control plane has confirmed the last line."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._drain_s = shared.settings.drain_deadline_s
        self._deadline = float("inf")

    def begin(self, now: float) -> Outcome:
        self._deadline = now + self._drain_s
        self._shared.report.close()
        self._shared.children.record([])
        return None

    def hurry(self, now: float) -> None:
        if self._drain_s != SIGTERM_DRAIN_S:
            self._drain_s = SIGTERM_DRAIN_S
            self._deadline = min(self._deadline, now + SIGTERM_DRAIN_S)

    def tick(self, now: float) -> Outcome:
        if self._shared.report.handed_over():
            return Step.DONE
        if now >= self._deadline:
            log.error("the control plane did not confirm everything in time; the reaper finds the rest in the outbox")
            return Step.DONE
        return None


def tell_exit(shared: Shared, exit_: ChildExit) -> None:
    data = {"role": exit_.role, "pid": exit_.pid, "exit_code": exit_.code, "signal": exit_.signal}
    shared.report.append(EventKind.PROCESS_EXITED, data)
