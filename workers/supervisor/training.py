"""The steps while the trainer runs and just after: training, settling after a failure, and saving before a stop."""

from workers.contract.run import jobs
from workers.contract.wire.names import SAVING, EndReason, EventKind, FileName, Phase
from workers.supervisor.end_reasons import End
from workers.supervisor.hangs import HangWatch
from workers.supervisor.processes.child import TRAINER
from workers.supervisor.sinks import Sinks
from workers.supervisor.starting import start_trainer
from workers.supervisor.steps import AttemptStep, Outcome, StepContext, StepWork


class Training(StepWork):
    """The step that starts the trainer and watches it, its servers, its limits and hangs."""

    def __init__(self, context: StepContext) -> None:
        super().__init__(context)
        self._hangs = HangWatch(context)
        self._sinks = Sinks(context)
        self._is_job = context.spec.run.kind in jobs.KINDS  # jobs have no training steps that could hang

    def begin(self, now: float) -> Outcome:
        context = self._context
        context.trainer.heard_at = now
        context.report.phase(Phase.TRAINER_STARTING)
        self._sinks.begin(now)
        return None if TRAINER in context.children.running() else start_trainer(context, waits=False)

    def on_exits(self, now: float) -> Outcome:
        trainer, server = self._context.trainer_exit, self._context.server_end()
        if trainer is not None and trainer.code == 0:
            return self._context.trainer_end(trainer)
        if server is not None:
            return server
        return AttemptStep.SETTLING if trainer is not None else None

    def tick(self, now: float) -> Outcome:
        context = self._context
        self._sinks.tick(now)
        lost_end = self._context.lost_server(after_s=context.settings.attached_silence_s)
        if lost_end is not None:
            return lost_end
        hung = context.servers.describe_hung(
            heard_at=context.trainer.heard_at, after_s=context.settings.server_silence_s
        )
        if hung:
            return End(EndReason.VLLM_HUNG, hung)
        return (None if self._is_job else self._hangs.tick(now)) or self._enforce_limits(now)

    def _enforce_limits(self, now: float) -> Outcome:
        context = self._context
        if warning := context.limits.unseen():
            context.report.note(warning, level="warning")
        reached_limit = context.limits.reached(now)
        if reached_limit is None:
            return None
        data = {"text": reached_limit.text, "reason": reached_limit.reason, "recommended": reached_limit.recommended}
        context.report.append(EventKind.LIMIT, data, step=context.trainer.progress.step)
        self._context.requested_end = End(reached_limit.reason, reached_limit.text)
        return AttemptStep.SAVING


class Settling(StepWork):
    """The step that waits after a trainer's failure, since the death of a server that caused it may be noticed
    later."""

    _deadline = 0.0

    def begin(self, now: float) -> Outcome:
        trainer = self._context.trainer_exit
        self._context.settled = self._context.trainer_end(trainer) if trainer else None
        self._deadline = now + (self._context.settings.settle_s if self._context.waits_for_servers() else 0.0)
        self._context.servers.probe_now()
        return None

    def on_exits(self, now: float) -> Outcome:
        return self._context.server_end()

    def tick(self, now: float) -> Outcome:
        lost_end = self._context.lost_server(after_s=0.0)
        if lost_end is not None:
            return lost_end
        return self._context.settled if now >= self._deadline else None


class Saving(StepWork):
    """The step that writes STOP, so that the trainer saves and exits; at the deadline, the attempt ends."""

    _deadline = 0.0

    def begin(self, now: float) -> Outcome:
        self._deadline = now + self._context.settings.save_deadline_s
        saves = self._context.spec.run.kind not in jobs.KINDS
        self._context.report.phase(Phase.STOPPING, SAVING if saves else "")
        self._context.folder.write(FileName.STOP, "")
        return None

    def on_exits(self, now: float) -> Outcome:
        if self._context.trainer_exit is not None:
            end = self._context.trainer_end(self._context.trainer_exit)
            if end.reason == EndReason.STOPPED_BY_USER and self._context.requested_end.detail:
                return self._context.requested_end
            is_saved = end.reason in (EndReason.STOPPED_BY_USER, EndReason.COMPLETED)
            return end if is_saved else self._could_not_save(end)
        server = self._context.server_end()
        return self._could_not_save(server) if server else None

    def tick(self, now: float) -> Outcome:
        host_deadline = self._context.host_deadline
        if host_deadline is not None and host_deadline <= now < self._deadline:
            return self._unsaved("The trainer did not save in the time left before the host shut down.")
        if now < self._deadline:
            return None
        seconds = self._context.settings.save_deadline_s
        return self._unsaved(f"The trainer did not save within {seconds:g} s.")

    def _could_not_save(self, end: End) -> End:
        return self._unsaved(f"The trainer could not save: {end.detail}")

    def _unsaved(self, problem: str) -> End:
        requested_end = self._context.requested_end
        return End(requested_end.reason, f"{requested_end.detail} {problem}".strip())
