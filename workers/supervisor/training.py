"""While the trainer runs: its end, a server's end, and a stop that lets it save."""

from __future__ import annotations

from workers.contract.run import jobs
from workers.contract.wire.names import SAVING, EndReason, EventKind, FileName, Phase
from workers.supervisor.ends import End
from workers.supervisor.hangs import HangWatch
from workers.supervisor.processes.child import TRAINER, ChildExit
from workers.supervisor.sinks import Sinks
from workers.supervisor.starting import start_trainer
from workers.supervisor.steps import Outcome, Shared, Step, Work


class Pair:
    """The trainer and its servers, as far as they have ended."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self.settled: End | None = None
        """The trainer's own end, while waiting to see whether a server was its cause."""
        self.asked = End(EndReason.STOPPED_BY_USER, "")
        """The end of a run that saves: a stop, or a limit."""

    @property
    def trainer(self) -> ChildExit | None:
        return self._shared.children.exits.get(TRAINER)

    def lost(self, *, after_s: float) -> End | None:
        """The end when an attached server is lost, whose process can't be watched."""
        words = self._shared.servers.lost(after_s=after_s)
        return End(EndReason.VLLM_EXITED, words) if words else None

    def waits_for_servers(self) -> bool:
        """Whether a live server may turn out to be the cause."""
        servers = self._shared.servers
        running = self._shared.children.running()
        return bool(servers.attached) or any(place.role in running for place in servers.own)


class Training(Work):
    def __init__(self, shared: Shared, pair: Pair) -> None:
        self._shared = shared
        self._pair = pair
        self._hangs = HangWatch(shared)
        self._sinks = Sinks(shared)
        self._is_job = shared.spec.run.kind in jobs.KINDS  # it has no steps that could fail to end

    def begin(self, now: float) -> Outcome:
        shared = self._shared
        shared.trainer.heard_at = now
        shared.report.phase(Phase.TRAINER_STARTING)
        self._sinks.begin(now)
        return None if TRAINER in shared.children.running() else start_trainer(shared, waits=False)

    def on_exits(self, now: float) -> Outcome:
        trainer, server = self._pair.trainer, self._shared.server_end()
        if trainer is not None and trainer.code == 0:
            return self._shared.trainer_end(trainer)
        if server is not None:
            return server
        return Step.SETTLING if trainer is not None else None

    def tick(self, now: float) -> Outcome:
        shared = self._shared
        self._sinks.tick(now)
        lost = self._pair.lost(after_s=shared.settings.attached_silence_s)
        if lost is not None:
            return lost
        hung = shared.servers.hung(heard_at=shared.trainer.heard_at, after_s=shared.settings.server_silence_s)
        if hung:
            return End(EndReason.VLLM_HUNG, hung)
        return (None if self._is_job else self._hangs.tick(now)) or self._limit(now)

    def _limit(self, now: float) -> Outcome:
        shared = self._shared
        if text := shared.limits.unseen():
            shared.report.note(text, level="warning")
        reached = shared.limits.reached(now)
        if reached is None:
            return None
        data = {"text": reached.text, "reason": reached.reason, "recommended": reached.recommended}
        shared.report.append(EventKind.LIMIT, data, step=shared.trainer.progress.step)
        self._pair.asked = End(reached.reason, reached.text)
        return Step.SAVING


class Settling(Work):
    """A server's death fails the trainer's next request, and may be noticed a moment after it."""

    def __init__(self, shared: Shared, pair: Pair) -> None:
        self._shared = shared
        self._pair = pair
        self._deadline = 0.0

    def begin(self, now: float) -> Outcome:
        trainer = self._pair.trainer
        self._pair.settled = self._shared.trainer_end(trainer) if trainer else None
        self._deadline = now + (self._shared.settings.settle_s if self._pair.waits_for_servers() else 0.0)
        self._shared.servers.look_again()
        return None

    def on_exits(self, now: float) -> Outcome:
        return self._shared.server_end()

    def tick(self, now: float) -> Outcome:
        lost = self._pair.lost(after_s=0.0)
        if lost is not None:
            return lost
        return self._pair.settled if now >= self._deadline else None


class Saving(Work):
    """STOP is in the folder: the trainer saves and ends by itself, or the deadline passes."""

    def __init__(self, shared: Shared, pair: Pair) -> None:
        self._shared = shared
        self._pair = pair
        self._deadline = 0.0

    def begin(self, now: float) -> Outcome:
        self._deadline = now + self._shared.settings.save_deadline_s
        saves = self._shared.spec.run.kind not in jobs.KINDS
        self._shared.report.phase(Phase.STOPPING, SAVING if saves else "")
        self._shared.folder.write(FileName.STOP, "")
        return None

    def on_exits(self, now: float) -> Outcome:
        if self._pair.trainer is not None:
            end = self._shared.trainer_end(self._pair.trainer)
            if end.reason == EndReason.STOPPED_BY_USER and self._pair.asked.detail:
                return self._pair.asked
            good = end.reason in (EndReason.STOPPED_BY_USER, EndReason.COMPLETED)
            return end if good else self._could_not_save(end)
        server = self._shared.server_end()
        return self._could_not_save(server) if server else None

    def tick(self, now: float) -> Outcome:
        goes_at = self._shared.host_goes_at
        if goes_at is not None and goes_at <= now < self._deadline:
            return self._ended("The trainer did not save in the time that the host had left.")
        if now < self._deadline:
            return None
        seconds = self._shared.settings.save_deadline_s
        return self._ended(f"The trainer did not save within {seconds:g} s.")

    def _could_not_save(self, end: End) -> End:
        return self._ended(f"It could not save: {end.detail}")

    def _ended(self, problem: str) -> End:
        asked = self._pair.asked
        return End(asked.reason, f"{asked.detail} {problem}".strip())
