"""The steps while the trainer runs and just after: training, settling after a failure, and saving before a stop."""

from workers.contract.run import jobs
from workers.contract.wire.names import SAVING, EndReason, EventKind, FileName, Phase
from workers.supervisor.end_reasons import End
from workers.supervisor.hangs import HangWatch
from workers.supervisor.processes.child import TRAINER
from workers.supervisor.sinks import Sinks
from workers.supervisor.starting import start_trainer
from workers.supervisor.steps import AttemptStep, Outcome, Shared, StepWork


class Training(StepWork):
    """The step that starts the trainer and watches it, its servers, its limits and hangs."""

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        self._hangs = HangWatch(shared)
        self._sinks = Sinks(shared)
        self._is_job = shared.spec.run.kind in jobs.KINDS  # jobs have no training steps that could hang

    def begin(self, now: float) -> Outcome:
        shared = self._shared
        shared.trainer.heard_at = now
        shared.report.phase(Phase.TRAINER_STARTING)
        self._sinks.begin(now)
        return None if TRAINER in shared.children.running() else start_trainer(shared, waits=False)

    def on_exits(self, now: float) -> Outcome:
        trainer, server = self._shared.trainer_exit, self._shared.server_end()
        if trainer is not None and trainer.code == 0:
            return self._shared.trainer_end(trainer)
        if server is not None:
            return server
        return AttemptStep.SETTLING if trainer is not None else None

    def tick(self, now: float) -> Outcome:
        shared = self._shared
        self._sinks.tick(now)
        lost_end = self._shared.lost_server(after_s=shared.settings.attached_silence_s)
        if lost_end is not None:
            return lost_end
        hung = shared.servers.describe_hung(heard_at=shared.trainer.heard_at, after_s=shared.settings.server_silence_s)
        if hung:
            return End(EndReason.VLLM_HUNG, hung)
        return (None if self._is_job else self._hangs.tick(now)) or self._enforce_limits(now)

    def _enforce_limits(self, now: float) -> Outcome:
        shared = self._shared
        if warning := shared.limits.unseen():
            shared.report.note(warning, level="warning")
        reached_limit = shared.limits.reached(now)
        if reached_limit is None:
            return None
        data = {"text": reached_limit.text, "reason": reached_limit.reason, "recommended": reached_limit.recommended}
        shared.report.append(EventKind.LIMIT, data, step=shared.trainer.progress.step)
        self._shared.requested_end = End(reached_limit.reason, reached_limit.text)
        return AttemptStep.SAVING


class Settling(StepWork):
    """The step that waits after a trainer's failure, since the death of a server that caused it may be noticed
    later."""

    _deadline = 0.0

    def begin(self, now: float) -> Outcome:
        trainer = self._shared.trainer_exit
        self._shared.settled = self._shared.trainer_end(trainer) if trainer else None
        self._deadline = now + (self._shared.settings.settle_s if self._shared.waits_for_servers() else 0.0)
        self._shared.servers.probe_now()
        return None

    def on_exits(self, now: float) -> Outcome:
        return self._shared.server_end()

    def tick(self, now: float) -> Outcome:
        lost_end = self._shared.lost_server(after_s=0.0)
        if lost_end is not None:
            return lost_end
        return self._shared.settled if now >= self._deadline else None


class Saving(StepWork):
    """The step that writes STOP, so that the trainer saves and exits; at the deadline, the attempt ends."""

    _deadline = 0.0

    def begin(self, now: float) -> Outcome:
        self._deadline = now + self._shared.settings.save_deadline_s
        saves = self._shared.spec.run.kind not in jobs.KINDS
        self._shared.report.phase(Phase.STOPPING, SAVING if saves else "")
        self._shared.folder.write(FileName.STOP, "")
        return None

    def on_exits(self, now: float) -> Outcome:
        if self._shared.trainer_exit is not None:
            end = self._shared.trainer_end(self._shared.trainer_exit)
            if end.reason == EndReason.STOPPED_BY_USER and self._shared.requested_end.detail:
                return self._shared.requested_end
            is_saved = end.reason in (EndReason.STOPPED_BY_USER, EndReason.COMPLETED)
            return end if is_saved else self._could_not_save(end)
        server = self._shared.server_end()
        return self._could_not_save(server) if server else None

    def tick(self, now: float) -> Outcome:
        host_deadline = self._shared.host_deadline
        if host_deadline is not None and host_deadline <= now < self._deadline:
            return self._unsaved("The trainer did not save in the time left before the host shut down.")
        if now < self._deadline:
            return None
        seconds = self._shared.settings.save_deadline_s
        return self._unsaved(f"The trainer did not save within {seconds:g} s.")

    def _could_not_save(self, end: End) -> End:
        return self._unsaved(f"The trainer could not save: {end.detail}")

    def _unsaved(self, problem: str) -> End:
        requested_end = self._shared.requested_end
        return End(requested_end.reason, f"{requested_end.detail} {problem}".strip())
