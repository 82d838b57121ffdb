"""One attempt from its claim to its receipt, as a tick() of the main thread.

    CLAIMING -> PREPARING -> (SERVER_STARTING ->) TRAINING -> (SAVING | SETTLING ->) ENDING -> DRAINING -> DONE

Any step may go to ENDING; the reason is in the outbox before the first signal. Nothing here waits: the network, NVML
and the dataset are asked by threads, whose results are found in the inbox or in a job.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable
from enum import StrEnum
from queue import Empty

from workers.contract import (
    AttemptSpec,
    ClaimAnswer,
    EventKind,
    FileName,
    Phase,
    Receipt,
    Rollout,
    StopMode,
    SyncAnswer,
    to_dict,
)
from workers.settings import HostSettings
from workers.supervisor import claim, commands, ends, proc, trainerlines, vllm
from workers.supervisor.control import Control
from workers.supervisor.ends import End, Reason
from workers.supervisor.folder import AttemptFolder
from workers.supervisor.gpus import GpuReading
from workers.supervisor.loops import Job, Loop
from workers.supervisor.process import Children, Exit, Role
from workers.supervisor.reporting import Inbox, Reporting
from workers.supervisor.tail import Tail
from workers.supervisor.teardown import Teardown

log = logging.getLogger(__name__)


class Step(StrEnum):
    CLAIMING = "claiming"
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
ERRORS_ALLOWED = 20
SIGTERM_DRAIN_S = 10.0


class Lifecycle:
    def __init__(
        self,
        folder: AttemptFolder,
        spec: AttemptSpec,
        settings: HostSettings,
        *,
        make_control: Callable[[], Control],
        read_gpus: Callable[[], list[GpuReading]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.folder = folder
        self.spec = spec
        self.settings = settings
        self.step = Step.CLAIMING
        self.end: End | None = None
        self.inbox: Inbox = Inbox()
        self.children = Children(folder)
        self.progress = trainerlines.Progress()
        self._make_control = make_control
        self._read_gpus = read_gpus
        self._clock = clock
        self._metrics = Tail(folder / FileName.METRICS)
        self._reporting: Reporting | None = None
        self._claim: Job[ClaimAnswer] = Job("claim", lambda: claim.claim(spec, settings, make_control()))
        self._dataset: Job[None] | None = None
        self._baselines: Job[dict[int, int]] | None = None
        self._probe: vllm.HealthProbe | None = None
        self._teardown: Teardown | None = None
        self._settled: End | None = None
        self._secrets: dict[str, str] = {}
        self._peaks: dict[int, int] = {}
        self._not_finite: set[str] = set()
        self._tree_bytes = 0
        self._stop_mode: StopMode | None = None
        self._told_to_end = False
        self._deadline = 0.0
        self._next_scan = 0.0
        self._kernel_kills = ends.kernel_kills()
        self._errors = 0
        self._steps: dict[Step, Callable[[float], None]] = {
            Step.CLAIMING: self._claiming,
            Step.PREPARING: self._preparing,
            Step.SERVER_STARTING: self._server_starting,
            Step.TRAINING: self._training,
            Step.SAVING: self._saving,
            Step.SETTLING: self._settling,
            Step.ENDING: self._ending,
            Step.DRAINING: self._draining,
            Step.DONE: lambda now: None,
        }

    # --- the loop -----------------------------------------------------------------------------------------

    def run(self) -> None:
        while self.step != Step.DONE:
            try:
                self._wait()
                self.tick()
                self._errors = 0
            except Exception as error:
                log.exception("an error of the supervisor's own")
                self._on_error(error)

    def tick(self) -> None:
        now = self._clock()
        if self._reporting is not None:
            self._take_in(now)
        self._steps[self.step](now)

    def told_to_end(self) -> None:
        """SIGTERM; called from a signal handler, so it only leaves a mark."""
        self._told_to_end = True
        self.wake()

    def wake(self) -> None:
        self.inbox.put(lambda: None)

    def _wait(self) -> None:
        quick = self.step == Step.ENDING or (self._reporting is not None and self._reporting.syncer.watched)
        try:
            self.inbox.get(timeout=self.settings.tick_watched_s if quick else self.settings.tick_s)()
        except Empty:
            return

    def _on_error(self, error: Exception) -> None:
        self._errors += 1
        if self._reporting is None or self._errors > ERRORS_ALLOWED:
            self._give_up(error)
        elif self.end is None:
            self._finish(ends.of_error(error), self._clock())
        else:
            time.sleep(self.settings.tick_s)

    def _give_up(self, error: Exception) -> None:
        """Nothing can be reported any more: leave no process, and let the reaper find the folder."""
        for _ in range(3):
            for process in self.children.descendants():
                proc.send(process.identity, signal.SIGKILL)
            self.children.reap()
        raise error

    # --- what comes in ------------------------------------------------------------------------------------

    def _take_in(self, now: float) -> None:
        for exit_ in self.children.reap():
            self._on_exit(exit_)
        while not self.inbox.empty():
            self.inbox.get()()
        self._read_metrics(now)
        self._look_for_stop(now)
        if self.step in STARTED and now >= self._next_scan:
            self._next_scan = now + self.settings.tree_scan_s
            self._scan()
        if self._report.outbox.disk_full and self.step in BEFORE_END:
            self._finish(End(Reason.DISK_FULL, "The run's folder takes no more lines: no space is left."), now)

    @property
    def _report(self) -> Reporting:
        assert self._reporting is not None, "only after the claim"  # noqa: S101
        return self._reporting

    def _on_exit(self, exit_: Exit) -> None:
        data = {"role": exit_.role, "pid": exit_.pid, "exit_code": exit_.code, "signal": exit_.signal}
        self._report.append(EventKind.PROCESS_EXITED, data)

    def _scan(self) -> None:
        tree = self.children.descendants()
        self.children.record(tree)
        self._tree_bytes = sum(process.rss_bytes for process in tree)

    def _read_metrics(self, now: float) -> None:
        for line in self._metrics.read():
            trainerlines.note_progress(self.progress, line)
            self._name_not_finite(line)
            new = trainerlines.translate(line, folder=self.folder.path, now=time.time())
            if new is not None:
                self._report.append(new.kind, new.data, step=new.step, t=new.t)

    def _name_not_finite(self, line: dict[str, object]) -> None:
        dropped = line.get("dropped")
        fresh = {str(name) for name in dropped} - self._not_finite if isinstance(dropped, list) else set()
        if fresh:
            self._not_finite |= fresh
            self._report.note(
                f"Not a finite number at step {line.get('step')}: {', '.join(sorted(fresh))}.", level="warning"
            )

    def _on_answer(self, answer: SyncAnswer) -> None:
        if answer.stop:
            self._request_stop(StopMode(answer.stop), self._clock())

    def _on_system(self, sample: dict[str, float]) -> None:
        for gpu in self.children.baselines:
            used = int(sample.get(f"gpu/{gpu}/memory_mib", 0))
            self._peaks[gpu] = max(used, self._peaks.get(gpu, 0))
        if self.step in STARTED:
            sample = {**sample, "host/run_memory_mib": float(self._tree_bytes >> 20)}
        if self.step in BEFORE_END:
            self._report.append(EventKind.SYSTEM, sample, step=self.progress.step)

    def _on_server_metrics(self, sample: dict[str, float]) -> None:
        if self.step in STARTED:
            self._report.append(EventKind.VLLM, sample, step=self.progress.step)

    # --- stop ---------------------------------------------------------------------------------------------

    def _look_for_stop(self, now: float) -> None:
        if self._told_to_end and self.step in BEFORE_END:
            self._finish(End(Reason.STOPPED_BY_USER, "The supervisor received SIGTERM on the host."), now)
        mode = self.folder.stop_request()
        if mode is not None:
            self._request_stop(mode, now)

    def _request_stop(self, mode: StopMode, now: float) -> None:
        """Both roads end here, as often as they like; `now` after `save` is an escalation, never the reverse."""
        if self.step not in BEFORE_END or self._stop_mode == mode or self._stop_mode == StopMode.NOW:
            return
        self._stop_mode = mode
        self._report.append(EventKind.STOP_SEEN, {"mode": mode})
        if mode == StopMode.SAVE and self.step == Step.TRAINING and not self.progress.ended:
            (self.folder / FileName.STOP).touch()
            self._deadline = now + self.settings.save_deadline_s
            self.step = Step.SAVING
            self._report.phase(Phase.STOPPING, "the trainer saves a checkpoint")
        else:
            self._finish(End(Reason.STOPPED_BY_USER, ""), now)

    # --- steps --------------------------------------------------------------------------------------------

    def _claiming(self, now: float) -> None:
        if self._told_to_end:
            self.step = Step.DONE
        if self._told_to_end or not self._claim.done:
            return
        if self._claim.error is not None:
            log.error("no claim, so nothing is started: %s", self._claim.error)
            self.step = Step.DONE
            return
        answer = self._claim.value()
        if not answer.go or answer.ack >= self.spec.first_seq:
            why = answer.why or f"the control plane has lines up to {answer.ack} already"
            log.warning("the claim was refused, so nothing is started: %s", why)
            self.step = Step.DONE
            return
        self._begin(answer, now)

    def _begin(self, answer: ClaimAnswer, now: float) -> None:
        self._secrets = answer.secrets
        self._reporting = Reporting(
            self.folder,
            self.spec,
            self.settings,
            make_control=self._make_control,
            acked=self.spec.first_seq - 1,
            inbox=self.inbox,
            on_answer=self._on_answer,
        )
        self._report.phase(Phase.CLAIMED)
        self.step = Step.PREPARING
        if answer.stop:
            self._request_stop(StopMode(answer.stop), now)
            return
        self._report.phase(Phase.PREPARING, "fetching the dataset")
        control = self._make_control()
        self._dataset = Job("dataset", lambda: claim.prepare(self.spec, self.settings, control, self.folder))
        self._baselines = Job("baselines", lambda: claim.gpu_baselines(self._gpus(), self.settings, self._read_gpus))
        self._report.sample_system(self._gpus(), self._read_gpus, self._on_system)

    def _gpus(self) -> tuple[int, ...]:
        return self.spec.placement.gpus + self.spec.placement.server_gpus

    def _preparing(self, now: float) -> None:
        assert self._dataset is not None  # noqa: S101
        assert self._baselines is not None  # noqa: S101
        for job in (self._dataset, self._baselines):
            if job.done and job.error is not None:
                self._finish(_not_prepared(job.error), now)
                return
        if self._dataset.done and self._baselines.done:
            self.children.baselines = self._baselines.value()
            if self.spec.run.hardware.rollout == Rollout.SERVER:
                self._start_server(now)
            else:
                self._start_trainer(now)

    def _start_server(self, now: float) -> None:
        port = self.spec.placement.port
        server = self.spec.run.hardware.server
        if port is None or server is None:
            self._finish(End(Reason.LAUNCH_FAILED, "Rollout mode `server` without a server or a port."), now)
            return
        if not vllm.port_is_free(port):
            self._finish(End(Reason.PORT_IN_USE, f"Port {port} is held by another process on this host."), now)
            return
        environment = commands.server_environment(self.spec, self.settings, os.environ, self._secrets)
        self._report.phase(Phase.VLLM_STARTING)
        argv = vllm.argv(self.spec, self.settings)
        if not self._start(Role.VLLM, argv, environment | vllm.environment(self.spec), now):
            return
        self._probe = vllm.HealthProbe(
            self.spec.attempt_id,
            port,
            tree=lambda: {process.pid for process in self.children.descendants()},
            interval_s=min(0.5, self.settings.sample_s),
        )
        self._probe_loop = Loop("vllm-health", self._probe.tick)
        self._probe_loop.start()
        self._deadline = now + server.ready_timeout_s
        self.step = Step.SERVER_STARTING

    def _server_starting(self, now: float) -> None:
        server = self.children.exits.get(Role.VLLM)
        if server is not None:
            self._finish(self._server_end(server), now)
        elif self._probe is not None and self._probe.ready:
            self._probe_loop.stop()
            self._report.phase(Phase.VLLM_READY)
            self._report.sample_server(self.spec.placement.port or 0, self._on_server_metrics)
            self._start_trainer(now)
        elif now >= self._deadline:
            self._finish(End(Reason.VLLM_NOT_READY, self._probe.seen if self._probe else ""), now)

    def _start_trainer(self, now: float) -> None:
        self._report.phase(Phase.TRAINER_STARTING)
        environment = commands.trainer_environment(self.spec, self.settings, os.environ, self._secrets)
        if self._start(Role.TRAINER, commands.trainer_argv(self.settings, self.folder.path), environment, now):
            self.step = Step.TRAINING

    def _start(self, role: Role, argv: list[str], environment: dict[str, str], now: float) -> bool:
        try:
            pid = self.children.start(role, argv, environment)
        except OSError as error:
            if error.filename is None:
                raise
            self._finish(End(Reason.LAUNCH_FAILED, f"{error.filename} could not be started: {error.strerror}."), now)
            return False
        self._report.append(EventKind.PROCESS_STARTED, {"role": role, "pid": pid})
        return True

    def _training(self, now: float) -> None:
        trainer = self.children.exits.get(Role.TRAINER)
        server = self.children.exits.get(Role.VLLM)
        if trainer is not None and trainer.code == 0:
            self._finish(self._trainer_end(trainer), now)
        elif server is not None:
            self._finish(self._server_end(server), now)
        elif trainer is not None:
            # A server that dies takes the trainer's next request with it, and may be seen to die a moment later.
            self._settled = self._trainer_end(trainer)
            self._deadline = now + (self.settings.settle_s if self.children.running(Role.VLLM) else 0.0)
            self.step = Step.SETTLING

    def _settling(self, now: float) -> None:
        server = self.children.exits.get(Role.VLLM)
        if server is not None:
            self._finish(self._server_end(server), now)
        elif now >= self._deadline and self._settled is not None:
            self._finish(self._settled, now)

    def _saving(self, now: float) -> None:
        trainer = self.children.exits.get(Role.TRAINER)
        server = self.children.exits.get(Role.VLLM)
        if trainer is not None:
            end = self._trainer_end(trainer)
            good = end.reason in (Reason.STOPPED_BY_USER, Reason.COMPLETED)
            self._finish(end if good else End(Reason.STOPPED_BY_USER, f"It could not save: {end.detail}"), now)
        elif server is not None:
            self._finish(End(Reason.STOPPED_BY_USER, f"It could not save: {self._server_end(server).detail}"), now)
        elif now >= self._deadline:
            seconds = self.settings.save_deadline_s
            self._finish(End(Reason.STOPPED_BY_USER, f"The trainer did not save within {seconds:g} s."), now)

    def _trainer_end(self, exit_: Exit) -> End:
        while not self._metrics.at_end():  # its last words, before they are judged
            self._read_metrics(self._clock())
        log_file = self.folder.log(Role.TRAINER)
        return ends.of_trainer(exit_, self.progress, log=log_file, killed_by_kernel=self._kernel_killed())

    def _server_end(self, exit_: Exit) -> End:
        return ends.of_server(exit_, log=self.folder.log(Role.VLLM), killed_by_kernel=self._kernel_killed())

    def _kernel_killed(self) -> bool:
        return ends.kernel_kills() > self._kernel_kills

    # --- the end ------------------------------------------------------------------------------------------

    def _finish(self, end: End, now: float) -> None:
        """The one door to the end: the reason is written down, then the tree goes."""
        if self.end is not None:
            return
        self.end = end
        log.info("ending: %s %s", end.reason, end.detail)
        self._report.phase(Phase.STOPPING, " ".join(part for part in (end.reason, end.detail) if part))
        self._teardown = Teardown(
            self.children.descendants,
            self.settings,
            now=now,
            baselines=self.children.baselines,
            peaks=self._peaks,
            port=self.spec.placement.port if self.spec.run.hardware.rollout == Rollout.SERVER else None,
            read_gpus=self._read_gpus,
            is_orphan=self.children.is_orphan,
        )
        self.step = Step.ENDING

    def _ending(self, now: float) -> None:
        assert self._teardown is not None  # noqa: S101
        was_verifying = self._teardown.verifying
        receipt = self._teardown.tick(now)
        if self._teardown.verifying and not was_verifying:
            self._report.phase(Phase.VERIFYING)
        if receipt is not None:
            self._report_end(receipt, now)

    def _report_end(self, receipt: Receipt, now: float) -> None:
        assert self.end is not None  # noqa: S101
        self._report.stop_sampling()
        while not self._metrics.at_end():
            self._read_metrics(now)
        for exit_ in self.children.reap():
            self._on_exit(exit_)
        data = {
            "reason": self.end.reason,
            "detail": self.end.detail,
            "exit_codes": {role: exit_.code for role, exit_ in self.children.exits.items()},
            "receipt": to_dict(receipt),
        }
        self._report.append(EventKind.ENDED, data, step=self.progress.step)
        self._report.close()
        self.children.record([])
        self._deadline = now + (SIGTERM_DRAIN_S if self._told_to_end else self.settings.drain_deadline_s)
        self.step = Step.DRAINING

    def _draining(self, now: float) -> None:
        if self._told_to_end:
            self._deadline = min(self._deadline, now + SIGTERM_DRAIN_S)
        if self._report.handed_over():
            self.step = Step.DONE
        elif now >= self._deadline:
            log.error("the control plane did not confirm everything in time; the reaper finds the rest in the outbox")
            self.step = Step.DONE


def _not_prepared(error: Exception) -> End:
    if isinstance(error, claim.GpusBusy):
        return End(Reason.GPUS_BUSY, str(error))
    if isinstance(error, claim.PathRefused):
        return End(Reason.SPEC_REFUSED, str(error))
    if isinstance(error, OSError):
        return ends.of_error(error)
    return End(Reason.LAUNCH_FAILED, str(error))
