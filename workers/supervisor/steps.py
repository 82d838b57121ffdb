"""The steps of a claimed attempt, their interface, and the state that they share.

    PREPARING -> (FETCHING ->) (SERVERS_STARTING ->) TRAINING -> (SAVING | SETTLING ->) ENDING -> DRAINING -> DONE

The trainer starts in SERVERS_STARTING if it can start while the servers do. ENDING can follow any step before it. A
step returns the next step and never waits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from workers.contract.run.spec import AttemptSpec
from workers.contract.wire.names import EndReason, EventKind
from workers.settings import HostSettings
from workers.supervisor.end_reasons import End, Judge
from workers.supervisor.limits import LimitWatch
from workers.supervisor.processes.child import TRAINER, ChildExit, Children
from workers.supervisor.processes.folder import AttemptFolder
from workers.supervisor.processes.gpus import ReadGpus
from workers.supervisor.reports.reporting import Reporting
from workers.supervisor.servers.fleet import ServerFleet
from workers.supervisor.storage import Storage
from workers.supervisor.watching import HostSampler, TrainerWatch


class AttemptStep(StrEnum):
    PREPARING = "preparing"
    FETCHING = "fetching"
    SERVERS_STARTING = "servers_starting"
    TRAINING = "training"
    SAVING = "saving"
    SETTLING = "settling"
    ENDING = "ending"
    DRAINING = "draining"
    DONE = "done"


STARTED = frozenset(
    {AttemptStep.FETCHING, AttemptStep.SERVERS_STARTING, AttemptStep.TRAINING, AttemptStep.SAVING, AttemptStep.SETTLING}
)
BEFORE_END = STARTED | {AttemptStep.PREPARING}

Outcome = AttemptStep | End | None
"""The next step, an end with its reason, or None to stay."""


class StepWork:
    def __init__(self, context: "StepContext") -> None:
        self._context = context

    def begin(self, now: float) -> Outcome:
        return None

    def on_exits(self, now: float) -> Outcome:
        """Judge the exits so far. Called before a stop is accepted, because the stop didn't cause them."""
        return None

    def tick(self, now: float) -> Outcome:
        return None


@dataclass
class StepContext:
    """The state that the steps of one attempt share: its folder, spec, processes and reports."""

    folder: AttemptFolder
    spec: AttemptSpec
    settings: HostSettings
    secrets: Mapping[str, str] = field(repr=False)
    children: Children
    report: Reporting
    trainer: TrainerWatch
    figures: HostSampler
    servers: ServerFleet
    judge: Judge
    limits: LimitWatch
    storage: Storage
    read_gpus: ReadGpus
    host_deadline: float | None = None
    """Time until which a run on a host that is shutting down may save and upload, so that there is time left to hand
    over; inf if unknown, None if the host isn't shutting down."""
    caches: dict[str, str] = field(default_factory=dict)
    """Environment variables with the compile caches of the trainer and the servers."""

    settled: End | None = None
    """End that follows from the trainer's exit, held back while a server may turn out to be the cause."""
    requested_end: End = field(default_factory=lambda: End(EndReason.STOPPED_BY_USER, ""))
    """The end of a run that saves because of a stop or a limit."""

    @property
    def trainer_exit(self) -> ChildExit | None:
        return self.children.exits.get(TRAINER)

    def lost_server(self, *, after_s: float) -> End | None:
        """Return the attempt's end if a warm server has ended or an attached server is no longer responding."""
        problem = self.servers.describe_lost(after_s=after_s)
        return End(EndReason.VLLM_EXITED, problem) if problem else None

    def waits_for_servers(self) -> bool:
        """Return whether a server is still alive that may turn out to be the cause of the trainer's failure."""
        running = self.children.running()
        return bool(self.servers.attached) or any(place.role in running for place in self.servers.own)

    def server_end(self) -> End | None:
        """Return the attempt's end if one of its own servers has exited."""
        exit_ = self.servers.first_exit(self.children.exits)
        return self.judge.server(exit_, among=len(self.servers.places)) if exit_ else None

    def trainer_end(self, exit_: ChildExit) -> End:
        """Read the trainer's last lines and return the attempt's end for its exit."""
        self.trainer.read_to_the_end()
        return self.judge.trainer(exit_, self.trainer.progress)

    def start(self, role: str, argv: Sequence[str], environment: Mapping[str, str]) -> End | None:
        """Start a child; return the attempt's end if the program can't be started."""
        try:
            pid = self.children.start(role, argv, environment)
        except OSError as error:
            if error.filename is None:
                raise
            return End(EndReason.LAUNCH_FAILED, f"{error.filename} could not be started: {error.strerror}.")
        self.report.append(EventKind.PROCESS_STARTED, {"role": role, "pid": pid})
        return None
