"""The hang watch: notices that no training step is ending, and explains which process is waiting for which."""

import logging
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from workers.contract.wire.names import STACKS, EndReason, EventKind, StepPart
from workers.supervisor.end_reasons import End
from workers.supervisor.processes import witnesses
from workers.supervisor.processes.loops import BackgroundCall
from workers.supervisor.processes.witnesses import Witness
from workers.supervisor.servers.fleet import ServerState
from workers.supervisor.steps import StepContext
from workers.supervisor.watching import Stall

log = logging.getLogger(__name__)

STATES = {"R": "running", "S": "sleeping", "D": "waiting in the kernel, for a disk or a driver", "T": "stopped"}
COMPUTING_PERCENT = 50.0
"""CPU use, in percent of a core, from which a process is considered to be computing."""


@dataclass(frozen=True)
class Scene:
    """Snapshot of an attempt's processes, servers and GPUs during a hang."""

    processes: Sequence[Witness]
    servers: Sequence[ServerState] = ()
    gpus: Mapping[int, float] | None = None
    missing: str = ""
    """Reason why stacks are missing; empty if none are."""


class HangWatch:
    """The watch that reports each hang once, and ends the attempt if the run's settings say so."""

    def __init__(self, context: StepContext) -> None:
        self._context = context
        self._stall: Stall | None = None
        self._examination: BackgroundCall[Scene] | None = None

    def tick(self, now: float) -> End | None:
        """Report a new hang; return the attempt's end if the run's settings end it on a hang."""
        stall = self._context.trainer.stall(now)
        if stall is not None and self._examination is None:
            self._stall, self._examination = stall, self._examine()
        if self._stall is None or self._examination is None or not self._examination.done:
            return None
        stall, examination, self._stall, self._examination = self._stall, self._examination, None, None
        if self._context.trainer.progress.step != stall.step:
            return None  # training continued during the examination
        return self._report(stall, examination)

    def _examine(self) -> BackgroundCall[Scene]:
        context = self._context
        trees = context.children.trees()
        heard_at = context.trainer.heard_at

        def examine() -> Scene:
            ranks = witnesses.activities(context.folder)
            processes, problem = witnesses.examine(trees, ranks)
            if problem:
                witnesses.request_stacks(ranks, trees)
            return Scene(processes, context.servers.states(heard_at=heard_at), dict(context.figures.use), problem)

        return BackgroundCall("hang", examine)

    def _report(self, stall: Stall, examination: BackgroundCall[Scene]) -> End | None:
        try:
            scene = examination.value()
        except Exception:  # the hang is reported even if its examination failed
            log.exception("the processes of a hang could not be examined")
            scene = Scene(())
        explanation = explain(scene, time.monotonic())
        sentence = f"{stall} {explanation}".strip()
        try:
            _write(self._context.folder.log(STACKS), stall, explanation, scene)
        except OSError as error:
            log.warning("the stacks could not be written: %s", error)
        data = {"text": sentence, "who": explanation, "seconds": round(stall.seconds, 1), "usual_s": stall.usual_s}
        self._context.report.append(EventKind.HANG, data, step=stall.step)
        return End(EndReason.HUNG, sentence) if self._context.spec.run.hang.stop and stall.usual_s is not None else None


# --- sentences ------------------------------------------------------------------------------------------------


def explain(scene: Scene, now: float) -> str:
    """Explain which process is waiting for which; return "" if nothing is known."""
    stopped_processes = [process for process in scene.processes if process.state in "Tt"]
    if stopped_processes:
        effect = " The rest of the run is waiting for it." if len(scene.processes) > 1 else ""
        return f"{_name(stopped_processes[0], scene)} is stopped, perhaps by SIGSTOP or a debugger.{effect}"
    ranks = [process for process in scene.processes if process.activity is not None]
    late_ranks = [rank for rank in ranks if rank.collective is None]
    if len(ranks) > 1 and not late_ranks:
        operations = "; ".join(f"rank {rank.activity.rank} in {rank.collective}" for rank in ranks if rank.activity)
        return f"All ranks are waiting for each other, perhaps in different collective operations: {operations}."
    culprit = min(late_ranks or ranks, key=lambda rank: rank.activity.since if rank.activity else now, default=None)
    if culprit is None:
        culprit = next((process for process in scene.processes if process.role == "trainer"), None)
    if culprit is None:
        return ""
    waiting = len(ranks) - len(late_ranks) if late_ranks else 0
    effect = {0: "", 1: "The other rank is waiting for it."}.get(waiting, f"{waiting} other ranks are waiting for it.")
    return " ".join(part for part in (_explain_process(culprit, scene, now), effect) if part)


def _explain_process(process: Witness, scene: Scene, now: float) -> str:
    activities = process.activity.doing if process.activity else ()
    seconds = now - process.activity.since if process.activity else None
    name, inner = _name(process, scene), activities[-1] if activities else ""
    prefix = "In an evaluation: " if StepPart.EVALUATION in activities[:-1] else ""
    if StepPart.REWARDS in activities[:-1]:
        owner = "" if name == TRAINER_NAME else f" of {name[0].lower()}{name[1:]}"
        return f"{prefix}The reward {inner}{owner} has not returned for {seconds:.0f} s. {_position(process)}".strip()
    if scene.servers and inner in _FROM_SERVERS:
        return f"{prefix}{name} has waited {seconds:.0f} s for {_FROM_SERVERS[inner]}. {_servers(scene)}"
    summary = f"{name} doesn't report its activity."
    if seconds is not None:
        summary = f"{name} has been {_ACTIVITY_WORDS.get(inner, inner)} for {seconds:.0f} s."
    return " ".join(part for part in (prefix + summary, _position(process), _gpus(scene)) if part)


TRAINER_NAME = "The trainer"
_FROM_SERVERS: dict[str, str] = {
    StepPart.GENERATION: "completions from vLLM",
    StepPart.WEIGHT_SYNC: "vLLM to receive its weights",
}
_ACTIVITY_WORDS: dict[str, str] = {
    "": "between two steps",
    StepPart.PREPARING: "preparing a batch",
    StepPart.GENERATION: "generating completions",
    StepPart.WEIGHT_SYNC: "copying its weights to vLLM",
    StepPart.REWARDS: "scoring completions",
    StepPart.LOGPS: "computing log-probabilities",
    StepPart.UPDATE: "computing the update",
    StepPart.AGENTS: "waiting for the programs that drive its episodes",
    StepPart.EVALUATION: "evaluating",
    StepPart.SAVING: "saving a checkpoint",
}


def _servers(scene: Scene) -> str:
    slowest = max(scene.servers, key=lambda server: (server.unanswered_s, server.running + server.waiting))
    name = f"The server {slowest.role}" if len(scene.servers) > 1 else "vLLM"
    of_server = (process for process in scene.processes if process.role == slowest.role)
    engine = next((process for process in of_server if "Engine" in process.name), None)
    engine_position = f" Its engine{_position(engine).removeprefix('It')}" if engine else ""
    if slowest.unanswered_s:
        return f"{name} has not responded for {slowest.unanswered_s:.0f} s.{engine_position}"
    if not slowest.running + slowest.waiting:
        return f"{name} is responding but has no requests: a response was lost, or none was requested.{engine_position}"
    requests = f"{slowest.running} request{'s' * (slowest.running != 1)} running and {slowest.waiting} waiting"
    return f"{name} has {requests}, and has generated no token for {slowest.still_s:.0f} s.{engine_position}"


def _position(process: Witness) -> str:
    """Return a sentence on where a process is in its code and what it is doing there, or "" if nothing is known."""
    parts = [f"at {process.frame}"] if process.frame else []
    computes = process.cpu_percent >= COMPUTING_PERCENT
    activity = f"computing on {process.cpu_percent:.0f} % of a core" if computes else ""
    parts += [activity or STATES.get(process.state, "")]
    parts += [f"connected to {', '.join(process.peers)}"] if process.peers else []
    description = ", ".join(part for part in parts if part)
    return f"It is {description}." if description else ""


def _gpus(scene: Scene) -> str:
    if not scene.gpus:
        return ""
    return f"GPU use: {', '.join(f'{gpu}: {use:.0f} %' for gpu, use in sorted(scene.gpus.items()))}."


def _name(process: Witness, scene: Scene) -> str:
    ranks = sum(peer.activity is not None for peer in scene.processes)
    if process.activity is not None and ranks > 1:
        return f"Rank {process.activity.rank} of the trainer (pid {process.pid})"
    if process.role == "trainer" and (process.activity is not None or not ranks):
        return TRAINER_NAME
    return f"{process.name} of {process.role} (pid {process.pid})"


# --- the log --------------------------------------------------------------------------------------------------


def _write(path: os.PathLike[str], stall: Stall, explanation: str, scene: Scene) -> None:
    lines = [time.strftime("=== %Y-%m-%d %H:%M:%S UTC", time.gmtime()), str(stall), explanation]
    if scene.missing:
        lines.append(f"{scene.missing} The trainer was asked to write its own stacks to its log.")
    for process in scene.processes:
        state = STATES.get(process.state, process.state)
        lines += ["", f"--- {_name(process, scene)}: {state}, {process.cpu_percent:.0f} % of a core"]
        if process.activity is not None:
            lines.append(f"doing: {' > '.join(process.activity.doing) or 'between two steps'}")
        if process.peers:
            lines.append(f"connected to {', '.join(process.peers)}")
        for thread in process.threads:
            lines += [f"Thread {thread.name}", *(f"    {f.function} ({f.file}:{f.line})" for f in thread.frames)]
    with open(path, "a", encoding="utf-8", errors="replace") as file:
        file.write("\n".join(lines) + "\n\n")
