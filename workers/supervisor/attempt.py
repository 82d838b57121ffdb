"""A claimed attempt, from the control plane's `go` to its receipt.

The main thread calls tick(), which handles exits, stops and the current step. Nothing here waits: threads query the
network, NVML and the dataset, and deliver results through the inbox or a background call.
"""

import time
from collections.abc import Callable
from dataclasses import replace

from workers.contract.reports.lines import ClaimAnswer, SyncAnswer
from workers.contract.run.jobs import WarmNews
from workers.contract.run.spec import AttemptSpec, servers_of
from workers.contract.wire.artifacts import STORES
from workers.contract.wire.documents import to_json
from workers.contract.wire.names import EndReason, FileName, Phase, StopMode
from workers.settings import HostSettings
from workers.supervisor import claim, end_reasons
from workers.supervisor.end_reasons import WITHOUT_FAILURE, End, Judge
from workers.supervisor.ending import Draining, Ending, report_exit
from workers.supervisor.fetching import Fetching
from workers.supervisor.limits import LimitWatch
from workers.supervisor.processes.child import Children
from workers.supervisor.processes.folder import AttemptFolder
from workers.supervisor.processes.gpus import ReadGpus
from workers.supervisor.processes.witnesses import agent_metrics
from workers.supervisor.reports.control import Control
from workers.supervisor.reports.reporting import Inbox, Reporting
from workers.supervisor.servers.fleet import ServerFleet
from workers.supervisor.starting import Preparing, ServersStarting
from workers.supervisor.steps import BEFORE_END, STARTED, AttemptStep, Outcome, StepContext, StepWork
from workers.supervisor.stopping import Stops
from workers.supervisor.storage import Storage
from workers.supervisor.training import Saving, Settling, Training
from workers.supervisor.watching import HostSampler, StepPace, TrainerWatch

_REASONS_WITHOUT_FOLDER = WITHOUT_FAILURE | {EndReason.DISK_FULL}
"""End reasons that are kept if the folder is gone. Any other end is considered a consequence of its loss."""


class ClaimedAttempt:
    def __init__(
        self,
        folder: AttemptFolder,
        spec: AttemptSpec,
        settings: HostSettings,
        response: ClaimAnswer,
        *,
        inbox: Inbox,
        make_control: Callable[[], Control],
        read_gpus: ReadGpus,
    ) -> None:
        self.step = AttemptStep.PREPARING
        self.end: End | None = None
        self._inbox = inbox
        self._next_scan = 0.0
        self._warm: WarmNews | None = None
        self._former_users: list[str] = []
        self.report = Reporting(
            folder,
            spec,
            settings,
            make_control=make_control,
            acked=spec.first_seq - 1,
            inbox=inbox,
            on_response=self._on_response,
        )
        control = make_control()
        self._context = self._share(folder, spec, settings, response, read_gpus, control.token)
        self._stops = Stops(self._context)
        self._ending = Ending(self._context)
        self._draining = Draining(self._context)
        self._works: dict[AttemptStep, StepWork] = {
            AttemptStep.PREPARING: Preparing(self._context, control, stores=STORES in response.secrets),
            AttemptStep.FETCHING: Fetching(self._context),
            AttemptStep.SERVERS_STARTING: ServersStarting(self._context),
            AttemptStep.TRAINING: Training(self._context),
            AttemptStep.SAVING: Saving(self._context),
            AttemptStep.SETTLING: Settling(self._context),
            AttemptStep.ENDING: self._ending,
            AttemptStep.DRAINING: self._draining,
            AttemptStep.DONE: StepWork(self._context),
        }
        self._begin(response, time.monotonic())

    # --- a tick -------------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        context = self._context
        self._handle_exits(now)
        if not self._folder_exists() and self.end is None:
            self.finish(End(EndReason.FOLDER_LOST, ""), now)
        while not self._inbox.empty():
            self._inbox.get()()
        if context.folder.take_watched():
            self.report.wake(now)
        context.trainer.read(now)
        stop_mode = context.folder.stop_request() if self.step in BEFORE_END else None
        if stop_mode is not None:
            self._request_stop(stop_mode, now)
        if self.step in STARTED and now >= self._next_scan:
            self._next_scan = now + context.settings.tree_scan_s
            tree = context.children.descendants()
            context.children.record(tree)
            context.figures.tree_bytes = sum(process.rss_bytes for process in tree)
        if trouble := self.report.outbox.trouble or context.trainer.tail.trouble:
            self.finish(end_reasons.of_disk(trouble), now)
        if context.trainer.progress.saved and self.step in (AttemptStep.TRAINING, AttemptStep.SAVING):
            context.storage.tick(now)
        self._advance(self._works[self.step].tick(now), now)

    @property
    def children(self) -> Children:
        return self._context.children

    def on_sigterm(self, now: float) -> None:
        """End the attempt after a SIGTERM. Called at each tick from then on."""
        self._handle_exits(now)
        self._advance(self._stops.stop_with_host(self.step, now), now)
        if self._context.host_deadline is not None:
            self._draining.hurry(self._context.host_deadline, now)

    def finish(self, end: End, now: float) -> None:
        """Record the end reason, then begin to end the processes. Every end begins here."""
        if self.end is not None:
            return
        if not self._folder_exists() and end.reason not in _REASONS_WITHOUT_FOLDER:
            end = End(EndReason.FOLDER_LOST, f"{self._context.folder.path} or a part of it was removed.")
        self.end = end
        self._ending.record(end, now)
        self.step = AttemptStep.ENDING

    def _folder_exists(self) -> bool:
        """Check for the folder and its outbox: if a removal races with writes, the folder itself may remain."""
        folder = self._context.folder
        folder.lost = folder.lost or self.report.outbox.is_removed
        return folder.check()

    def _advance(self, outcome: Outcome, now: float) -> None:
        """Begin the next step, and any that follow immediately; or finish if the outcome is an end."""
        while isinstance(outcome, AttemptStep):
            self.step = outcome
            outcome = self._works[outcome].begin(now)
        if outcome is not None:
            self.finish(outcome, now)

    def _handle_exits(self, now: float) -> None:
        """Report and judge exits. Called before a stop is accepted, because the stop didn't cause them."""
        for exit_ in self._context.children.reap():
            report_exit(self._context, exit_)
        if self.step in STARTED and self._context.children.exits:
            self._advance(self._works[self.step].on_exits(now), now)

    # --- responses and stops ------------------------------------------------------------------------------

    def _on_response(self, response: SyncAnswer) -> None:
        if response.warm is not None and response.warm != self._warm:
            if self._warm and self._warm.user:
                self._former_users.append(self._warm.user)
            self._warm = response.warm
            news = replace(response.warm, former=tuple(self._former_users))
            self._context.folder.write_if_possible(FileName.WARM, to_json(news))
        if response.stop:
            self._request_stop(StopMode(response.stop), time.monotonic())

    def _request_stop(self, mode: StopMode, now: float) -> None:
        self._handle_exits(now)
        self._advance(self._stops.request(mode, self.step), now)

    # --- the beginning ------------------------------------------------------------------------------------

    def _share(
        self,
        folder: AttemptFolder,
        spec: AttemptSpec,
        settings: HostSettings,
        response: ClaimAnswer,
        read_gpus: ReadGpus,
        token: str,
    ) -> StepContext:
        children = Children(folder)
        pace = StepPace(after=spec.run.hang.after, least_s=settings.hang_least_s, first_s=settings.stall_s)
        has_gateway = spec.run.episodes is not None and spec.run.episodes.gateway is not None
        limits = LimitWatch(spec.run.limits, spec.placement, began=time.monotonic())
        trainer = TrainerWatch(folder, self.report, pace, limits)
        # A spec with invalid servers is refused by the first step.
        servers = () if claim.spec_problem(spec) else servers_of(spec)
        return StepContext(
            folder=folder,
            spec=spec,
            settings=settings,
            secrets={name: value for name, value in response.secrets.items() if name != STORES},
            children=children,
            report=self.report,
            trainer=trainer,
            figures=HostSampler(
                self.report,
                trainer.progress,
                is_open=lambda: self.step in BEFORE_END,
                own_metrics=lambda: {
                    **limits.metrics(time.monotonic()),
                    **(agent_metrics(folder) if has_gateway else {}),
                },
            ),
            limits=limits,
            servers=ServerFleet(spec, settings, servers, tree=lambda: {row.pid for row in children.descendants()}),
            judge=Judge(folder),
            storage=Storage(folder, settings, children, token=token if STORES in response.secrets else ""),
            read_gpus=read_gpus,
        )

    def _begin(self, response: ClaimAnswer, now: float) -> None:
        self.report.phase(Phase.CLAIMED)
        if response.spec_sha256 != claim.spec_sha256(self._context.spec, self._context.settings):
            detail = "The spec that this host received differs from the one on the control plane."
            self.finish(End(EndReason.SPEC_REFUSED, detail), now)
        elif response.stop:
            self._request_stop(StopMode(response.stop), now)
        else:
            self._advance(AttemptStep.PREPARING, now)
