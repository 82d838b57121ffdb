"""The steps of a claimed attempt, their interface, and what they share.

    PREPARING -> (FETCHING ->) (SERVERS_STARTING ->) TRAINING -> (SAVING | SETTLING ->) ENDING -> DRAINING -> DONE

The trainer starts in SERVERS_STARTING already, if it can do so beside the servers.

Any step before ENDING may go there. A step returns the next step and never waits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from workers.contract.run.spec import AttemptSpec
from workers.contract.wire.names import EndReason, EventKind
from workers.settings import HostSettings
from workers.supervisor.ends import End, Judge
from workers.supervisor.limits import LimitWatch
from workers.supervisor.processes.child import ChildExit, Children
from workers.supervisor.processes.folder import AttemptFolder
from workers.supervisor.processes.gpus import GpuReading
from workers.supervisor.reports.reporting import Reporting
from workers.supervisor.servers.fleet import Servers
from workers.supervisor.storage import Storage
from workers.supervisor.watching import HostFigures, TrainerWatch


class Step(StrEnum):
    PREPARING = "preparing"
    FETCHING = "fetching"
    SERVERS_STARTING = "servers_starting"
    TRAINING = "training"
    SAVING = "saving"
    SETTLING = "settling"
    ENDING = "ending"
    DRAINING = "draining"
    DONE = "done"


STARTED = frozenset({Step.FETCHING, Step.SERVERS_STARTING, Step.TRAINING, Step.SAVING, Step.SETTLING})
BEFORE_END = STARTED | {Step.PREPARING}

Outcome = Step | End | None
"""The next step, an end with its reason, or None to stay."""


class Work:
    """The work of one step."""

    def begin(self, now: float) -> Outcome:
        """Called on entering the step."""
        return None

    def on_exits(self, now: float) -> Outcome:
        """Interpret the exits so far. Called before a stop is accepted: the stop was not their cause."""
        return None

    def tick(self, now: float) -> Outcome:
        return None


@dataclass
class Shared:
    """One attempt's folder, spec, processes and reports."""

    folder: AttemptFolder
    spec: AttemptSpec
    settings: HostSettings
    secrets: Mapping[str, str] = field(repr=False)
    children: Children
    report: Reporting
    trainer: TrainerWatch
    figures: HostFigures
    servers: Servers
    judge: Judge
    limits: LimitWatch
    storage: Storage
    read_gpus: Callable[[], list[GpuReading]]
    host_goes_at: float | None = None
    """The host stops: until when runs may save and upload, so that there is time to hand over. inf: it hasn't said.
    None: it stays."""
    caches: dict[str, str] = field(default_factory=dict)
    """Variables of the trainer and the servers: where what they compile is kept."""

    def server_end(self) -> End | None:
        """The end of the first own server that has exited."""
        exit_ = self.servers.first_exit(self.children.exits)
        return self.judge.server(exit_, among=len(self.servers.places)) if exit_ else None

    def trainer_end(self, exit_: ChildExit) -> End:
        self.trainer.read_to_the_end()
        return self.judge.trainer(exit_, self.trainer.progress)

    def start(self, role: str, argv: Sequence[str], environment: Mapping[str, str]) -> End | None:
        """Start a child; returns the attempt's end if the program doesn't exist."""
        try:
            pid = self.children.start(role, argv, environment)
        except OSError as error:
            if error.filename is None:
                raise
            return End(EndReason.LAUNCH_FAILED, f"{error.filename} could not be started: {error.strerror}.")
        self.report.append(EventKind.PROCESS_STARTED, {"role": role, "pid": pid})
        return None
