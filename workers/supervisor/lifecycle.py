"""The supervisor's main loop: claim the attempt, tick it to its end, and never leave a process behind."""

import logging
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from queue import Empty

from workers.contract.reports.lines import ClaimAnswer
from workers.contract.run.spec import AttemptSpec
from workers.settings import HostSettings
from workers.supervisor import claim, end_reasons
from workers.supervisor.attempt import ClaimedAttempt
from workers.supervisor.processes import procfs
from workers.supervisor.processes.child import Children
from workers.supervisor.processes.folder import AttemptFolder
from workers.supervisor.processes.gpus import ReadGpus
from workers.supervisor.processes.loops import BackgroundCall
from workers.supervisor.processes.procfs import Process
from workers.supervisor.reports.control import Control
from workers.supervisor.reports.reporting import Inbox
from workers.supervisor.steps import AttemptStep

log = logging.getLogger(__name__)

ERRORS_ALLOWED = 20
"""Maximum number of consecutive errors before the attempt is given up."""
GIVE_UP_ROUNDS = 5


class Lifecycle:
    """The supervisor's main loop: makes the claim, ticks the claimed attempt, and handles errors of the supervisor."""

    def __init__(
        self,
        folder: AttemptFolder,
        spec: AttemptSpec,
        settings: HostSettings,
        *,
        make_control: Callable[[], Control],
        read_gpus: ReadGpus,
    ) -> None:
        self.folder = folder
        self.spec = spec
        self.settings = settings
        self.inbox: Inbox = Inbox()
        self.attempt: ClaimedAttempt | None = None
        self.refused = False
        self._make_control = make_control
        self._read_gpus = read_gpus
        self._sigterm_received = False
        self._claim: BackgroundCall[ClaimAnswer] = BackgroundCall(
            "claim", lambda: claim.claim(spec, settings, make_control())
        )

    @property
    def is_finished(self) -> bool:
        return self.refused or (self.attempt is not None and self.attempt.step == AttemptStep.DONE)

    @property
    def is_hurried(self) -> bool:
        """True if somebody is watching the run or it is ending; ticks are then more frequent."""
        attempt = self.attempt
        return attempt is not None and (attempt.step == AttemptStep.ENDING or attempt.report.syncer.watched)

    def tick(self) -> None:
        now = time.monotonic()
        if self.attempt is None:
            self._poll_claim(now)
            return
        if self._sigterm_received:
            self.attempt.on_sigterm(now)
        self.attempt.tick(now)

    def on_sigterm(self) -> None:
        """Handle SIGTERM; called from a signal handler, so it only sets a flag."""
        self._sigterm_received = True
        self.wake()

    def wake(self) -> None:
        self.inbox.put(lambda: None)

    def run(self) -> None:
        """Run to the end. If the supervisor itself fails, kill all children and raise its error."""
        errors = 0
        while not self.is_finished:
            try:
                with suppress(Empty):
                    self.inbox.get(timeout=self.settings.tick_watched_s if self.is_hurried else self.settings.tick_s)()
                self.tick()
                errors = 0
            except Exception as error:
                errors += 1
                log.exception("the supervisor itself failed")
                try:
                    if self.attempt is None or errors > ERRORS_ALLOWED:
                        raise
                    self.attempt.finish(end_reasons.of_error(error), time.monotonic())
                except Exception:
                    self._give_up()
                    raise

    def _give_up(self) -> None:
        """Kill all children, because nothing can be reported anymore; the reaper will find the folder."""
        children = self.attempt.children if self.attempt else Children(self.folder)
        for _ in range(GIVE_UP_ROUNDS):
            try:
                for process in children.descendants():
                    _kill_if_possible(process)
            except OSError:
                log.exception("the descendants can't be listed")
                children.kill_started()
            children.reap()

    def _poll_claim(self, now: float) -> None:
        if self._sigterm_received:
            self.refused = True
        if self._sigterm_received or not self._claim.done:
            return
        if self._claim.error is not None:
            log.error("no claim, so nothing is started: %s", self._claim.error)
            self.refused = True
            return
        response = self._claim.value()
        if response.go and response.ack < self.spec.first_seq:
            self.attempt = ClaimedAttempt(
                self.folder,
                self.spec,
                self.settings,
                response,
                inbox=self.inbox,
                make_control=self._make_control,
                read_gpus=self._read_gpus,
            )
            return
        reason = response.why or f"the control plane has lines up to {response.ack} already"
        log.warning("the claim was refused, so nothing is started: %s", reason)
        self.refused = True


def _kill_if_possible(process: Process) -> None:
    try:
        procfs.send(process.identity, signal.SIGKILL)
    except OSError:
        log.exception("%d can't be ended", process.pid)
