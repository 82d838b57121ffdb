"""A claimed attempt, from `go` to its receipt, as a tick() of the main thread.

    PREPARING -> (SERVER_STARTING ->) TRAINING -> (SAVING | SETTLING ->) ENDING -> DRAINING -> DONE

Any step may go to ENDING; the reason is in the outbox before the first signal. Nothing here waits: the network, NVML
and the dataset are asked by threads, whose results are found in the inbox or in a job.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from enum import StrEnum

from workers.commands import own_servers
from workers.contract import (
    AttemptSpec,
    ClaimAnswer,
    EventKind,
    FileName,
    Phase,
    Receipt,
    ServerPlace,
    StopMode,
    SyncAnswer,
    to_dict,
)
from workers.settings import HostSettings
from workers.supervisor import claim, commands, ends, vllm
from workers.supervisor.control import Control
from workers.supervisor.ends import End, Reason
from workers.supervisor.folder import AttemptFolder
from workers.supervisor.gpus import GpuReading
from workers.supervisor.process import Children, Exit, Role
from workers.supervisor.reporting import Inbox, Reporting
from workers.supervisor.teardown import Teardown
from workers.supervisor.watching import Figures, TrainerWatch

log = logging.getLogger(__name__)


class Step(StrEnum):
    PREPARING = "preparing"
    SERVER_STARTING = "server_starting"
    TRAINING = "training"
    SAVING = "saving"
    SETTLING = "settling"
    ENDING = "ending"
    DRAINING = "draining"
    DONE = "done"


STARTED = frozenset({Step.SERVER_STARTING, Step.TRAINING, Step.SAVING, Step.SETTLING})
BEFORE_END = STARTED | {Step.PREPARING}
SIGTERM_DRAIN_S = 10.0
"""A host that shuts down gives no more time; the reaper hands over the rest when it is back."""


class ClaimedAttempt:
    def __init__(
        self,
        folder: AttemptFolder,
        spec: AttemptSpec,
        settings: HostSettings,
        answer: ClaimAnswer,
        *,
        inbox: Inbox,
        make_control: Callable[[], Control],
        read_gpus: Callable[[], list[GpuReading]],
        clock: Callable[[], float],
    ) -> None:
        self.folder, self.spec, self.settings = folder, spec, settings
        self.step = Step.PREPARING
        self.end: End | None = None
        self.children = Children(self.folder)
        self._inbox = inbox
        self._clock = clock
        self._secrets = answer.secrets
        self._server = next(iter(own_servers(spec)), None)
        self._read_gpus = read_gpus
        self._judge = ends.Judge(self.folder)
        self._preparation: claim.Preparation | None = None
        self._gate: vllm.Gate | None = None
        self._teardown: Teardown | None = None
        self._settled: End | None = None
        self._stop_mode: StopMode | None = None
        self._deadline = 0.0
        self._next_scan = 0.0
        self._drain_s = self.settings.drain_deadline_s
        self.report = Reporting(
            self.folder,
            self.spec,
            self.settings,
            make_control=make_control,
            acked=self.spec.first_seq - 1,
            inbox=self._inbox,
            on_answer=self._on_answer,
        )
        self.trainer = TrainerWatch(self.folder, self.report)
        self.figures = Figures(self.report, self.trainer.progress, open_for=lambda: self.step in BEFORE_END)
        self._steps: dict[Step, Callable[[float], None]] = {
            Step.PREPARING: self._preparing,
            Step.SERVER_STARTING: self._server_starting,
            Step.TRAINING: self._training,
            Step.SAVING: self._saving,
            Step.SETTLING: self._settling,
            Step.ENDING: self._ending,
            Step.DRAINING: self._draining,
        }
        self._begin(answer, make_control(), clock())

    # --- a tick -------------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        self._look_at_exits(now)
        while not self._inbox.empty():
            self._inbox.get()()
        self.trainer.read()
        requested = self.folder.stop_request() if self.step in BEFORE_END else None
        if requested is not None:
            self._request_stop(requested, now)
        if self.step in STARTED and now >= self._next_scan:
            self._next_scan = now + self.settings.tree_scan_s
            self._scan()
        if self.report.outbox.disk_full:
            self.finish(End(Reason.DISK_FULL, "The run's folder takes no more lines: no space is left."), now)
        if self.step != Step.DONE:
            self._steps[self.step](now)

    def told_to_end(self, now: float) -> None:
        self._look_at_exits(now)
        self._finish_for_stop("The supervisor received SIGTERM on the host.", now)
        if self._drain_s != SIGTERM_DRAIN_S:
            self._drain_s = SIGTERM_DRAIN_S
            self._deadline = min(self._deadline, now + SIGTERM_DRAIN_S)

    def finish(self, end: End, now: float) -> None:
        """The one door to the end: the reason is written down, then the tree goes."""
        if self.end is not None:
            return
        self.end = end
        log.info("ending: %s %s", end.reason, end.detail)
        self.report.phase(Phase.STOPPING, " ".join(part for part in (end.reason, end.detail) if part))
        if self._gate is not None:
            self._gate.close()
        self._teardown = Teardown(
            self.children.descendants,
            self.settings,
            now=now,
            baselines=self.children.baselines,
            peaks=self.figures.peaks,
            port=self._server.port if self._server else None,
            read_gpus=self._read_gpus,
            is_orphan=self.children.is_orphan,
        )
        self.step = Step.ENDING

    def _look_at_exits(self, now: float) -> None:
        """What has ended by itself is judged before any stop is taken on: the stop was not its cause."""
        for exit_ in self.children.reap():
            self._on_exit(exit_)
        if self.step in STARTED and self.children.exits:
            self._steps[self.step](now)

    def _finish_for_stop(self, detail: str, now: float) -> None:
        """A trainer that had ended already keeps its own reason; only the wait for its server is cut short."""
        self.finish(self._settled or End(Reason.STOPPED_BY_USER, detail), now)

    def _on_exit(self, exit_: Exit) -> None:
        data = {"role": exit_.role, "pid": exit_.pid, "exit_code": exit_.code, "signal": exit_.signal}
        self.report.append(EventKind.PROCESS_EXITED, data)

    def _scan(self) -> None:
        tree = self.children.descendants()
        self.children.record(tree)
        self.figures.tree_bytes = sum(process.rss_bytes for process in tree)

    def _on_answer(self, answer: SyncAnswer) -> None:
        if answer.stop:
            self._request_stop(StopMode(answer.stop), self._clock())

    def _request_stop(self, mode: StopMode, now: float) -> None:
        """Both roads end here, as often as they like; `now` after `save` is an escalation, never the reverse."""
        self._look_at_exits(now)
        if self.step not in BEFORE_END or self._stop_mode == mode or self._stop_mode == StopMode.NOW:
            return
        self._stop_mode = mode
        self.report.append(EventKind.STOP_SEEN, {"mode": mode})
        if mode == StopMode.NOW or self.step != Step.TRAINING:
            self._finish_for_stop("", now)
            return
        self._deadline = now + self.settings.save_deadline_s
        self.step = Step.SAVING
        self.report.phase(Phase.STOPPING, "the trainer saves a checkpoint")
        (self.folder / FileName.STOP).touch()

    # --- steps --------------------------------------------------------------------------------------------

    def _begin(self, answer: ClaimAnswer, control: Control, now: float) -> None:
        self.report.phase(Phase.CLAIMED)
        if answer.stop:
            self._request_stop(StopMode(answer.stop), now)
            return
        self.report.phase(Phase.PREPARING, "fetching the dataset")
        self._preparation = claim.Preparation(self.spec, self.settings, control, self.folder, self._read_gpus)
        gpus = self.spec.placement.gpus + self.spec.placement.server_gpus
        self.report.sample_system(gpus, self._read_gpus, self.figures.of_system)

    def _preparing(self, now: float) -> None:
        if self._preparation is None or not self._preparation.done():
            return
        error = self._preparation.error()
        if error is not None:
            self.finish(claim.end_for(error), now)
            return
        self.children.baselines = self._preparation.baselines()
        self.figures.gpus = tuple(self.children.baselines)
        if self._server:
            self._start_server(self._server, now)
        else:
            self._start_trainer(now)

    def _start_server(self, place: ServerPlace, now: float) -> None:
        if not vllm.port_is_free(place.port):
            self.finish(End(Reason.PORT_IN_USE, f"Port {place.port} is held by another process on this host."), now)
            return
        self.report.phase(Phase.VLLM_STARTING)
        argv = commands.server_argv(self.spec, self.settings, place)
        environment = commands.server_environment(self.spec, self.settings, os.environ, self._secrets, place)
        if self._start(Role.VLLM, argv, environment, now):
            timeout_s = self.spec.run.hardware.server.ready_timeout_s if self.spec.run.hardware.server else 0
            interval_s = min(0.5, self.settings.sample_s)
            self._gate = vllm.Gate(
                self.spec, place, tree=self._pids, now=now, interval_s=interval_s, timeout_s=timeout_s
            )
            self.step = Step.SERVER_STARTING

    def _pids(self) -> set[int]:
        return {process.pid for process in self.children.descendants()}

    def _server_starting(self, now: float) -> None:
        server = self.children.exits.get(Role.VLLM)
        gate = self._gate
        if server is not None or gate is None:
            self.finish(self._judge.server(server) if server else End(Reason.VLLM_EXITED, ""), now)
        elif gate.is_open():
            self.report.phase(Phase.VLLM_READY)
            self.report.sample_server(self._server.port if self._server else 0, self.figures.of_server)
            self._start_trainer(now)
        elif now >= gate.deadline:
            self.finish(End(Reason.VLLM_NOT_READY, gate.seen), now)

    def _start_trainer(self, now: float) -> None:
        self.report.phase(Phase.TRAINER_STARTING)
        environment = commands.trainer_environment(self.spec, self.settings, os.environ, self._secrets)
        if self._start(Role.TRAINER, commands.trainer_argv(self.settings, self.folder.path), environment, now):
            self.step = Step.TRAINING

    def _start(self, role: Role, argv: list[str], environment: dict[str, str], now: float) -> bool:
        try:
            pid = self.children.start(role, argv, environment)
        except OSError as error:
            if error.filename is None:
                raise
            self.finish(End(Reason.LAUNCH_FAILED, f"{error.filename} could not be started: {error.strerror}."), now)
            return False
        self.report.append(EventKind.PROCESS_STARTED, {"role": role, "pid": pid})
        return True

    def _exits(self) -> tuple[Exit | None, Exit | None]:
        return self.children.exits.get(Role.TRAINER), self.children.exits.get(Role.VLLM)

    def _training(self, now: float) -> None:
        trainer, server = self._exits()
        if trainer is not None and trainer.code == 0:
            self.finish(self._trainer_end(trainer), now)
        elif server is not None:
            self.finish(self._judge.server(server), now)
        elif trainer is not None:
            # A server that dies takes the trainer's next request with it, and may be seen to die a moment later.
            self._settled = self._trainer_end(trainer)
            self._deadline = now + (self.settings.settle_s if self.children.running(Role.VLLM) else 0.0)
            self.step = Step.SETTLING

    def _settling(self, now: float) -> None:
        _, server = self._exits()
        if server is not None:
            self.finish(self._judge.server(server), now)
        elif now >= self._deadline and self._settled is not None:
            self.finish(self._settled, now)

    def _saving(self, now: float) -> None:
        trainer, server = self._exits()
        if trainer is not None:
            end = self._trainer_end(trainer)
            good = end.reason in (Reason.STOPPED_BY_USER, Reason.COMPLETED)
            self.finish(end if good else End(Reason.STOPPED_BY_USER, f"It could not save: {end.detail}"), now)
        elif server is not None:
            self.finish(End(Reason.STOPPED_BY_USER, f"It could not save: {self._judge.server(server).detail}"), now)
        elif now >= self._deadline:
            seconds = self.settings.save_deadline_s
            self.finish(End(Reason.STOPPED_BY_USER, f"The trainer did not save within {seconds:g} s."), now)

    def _trainer_end(self, exit_: Exit) -> End:
        self.trainer.read_to_the_end()
        return self._judge.trainer(exit_, self.trainer.progress)

    # --- the end ------------------------------------------------------------------------------------------

    def _ending(self, now: float) -> None:
        if self._teardown is None:
            return
        was_verifying = self._teardown.verifying
        receipt = self._teardown.tick(now)
        if self._teardown.verifying and not was_verifying:
            self.report.phase(Phase.VERIFYING)
        if receipt is not None and self.end is not None:
            self._report_end(self.end, receipt, now)

    def _report_end(self, end: End, receipt: Receipt, now: float) -> None:
        self.report.stop_sampling()
        self.trainer.read_to_the_end()
        for exit_ in self.children.reap():
            self._on_exit(exit_)
        data = {
            "reason": end.reason,
            "detail": end.detail,
            "exit_codes": {role: exit_.code for role, exit_ in self.children.exits.items()},
            "receipt": to_dict(receipt),
        }
        self.report.append(EventKind.ENDED, data, step=self.trainer.progress.step)
        self.step = Step.DRAINING
        self._deadline = now + self._drain_s
        self.report.close()
        self.children.record([])

    def _draining(self, now: float) -> None:
        if self.report.handed_over():
            self.step = Step.DONE
        elif now >= self._deadline:
            log.error("the control plane did not confirm everything in time; the reaper finds the rest in the outbox")
            self.step = Step.DONE
