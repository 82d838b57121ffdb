"""The hang watch: no step ends any more, and who waits for whom."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from workers.contract.wire.names import STACKS, EndReason, EventKind, StepPart
from workers.supervisor.ends import End
from workers.supervisor.processes import witnesses
from workers.supervisor.processes.loops import BackgroundCall
from workers.supervisor.processes.witnesses import Witness
from workers.supervisor.servers.fleet import ServerState
from workers.supervisor.steps import Shared
from workers.supervisor.watching import Stall

log = logging.getLogger(__name__)

STATES = {"R": "running", "S": "sleeping", "D": "waiting in the kernel, for a disk or a driver", "T": "stopped"}
LOADED = 50.0
"""Percent of a core from which a process computes."""


@dataclass(frozen=True)
class Scene:
    """All that was seen of a hang."""

    processes: Sequence[Witness]
    servers: Sequence[ServerState] = ()
    gpus: Mapping[int, float] | None = None
    """GPU -> its use in percent, as last sampled."""
    missing: str = ""
    """Why stacks are missing."""


class HangWatch:
    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._stall: Stall | None = None
        self._looking: BackgroundCall[Scene] | None = None

    def tick(self, now: float) -> End | None:
        """The attempt's end, if the run asks for it."""
        stall = self._shared.trainer.stall(now)
        if stall is not None and self._looking is None:
            self._stall, self._looking = stall, self._look()
        if self._stall is None or self._looking is None or not self._looking.done:
            return None
        stall, looking, self._stall, self._looking = self._stall, self._looking, None, None
        if self._shared.trainer.progress.step != stall.step:
            return None  # it has gone on meanwhile
        return self._report(stall, looking)

    def _look(self) -> BackgroundCall[Scene]:
        shared = self._shared
        trees = shared.children.trees()
        heard_at = shared.trainer.heard_at

        def look() -> Scene:
            ranks = witnesses.activities(shared.folder)
            seen, missing = witnesses.look(trees, ranks)
            if missing:
                witnesses.ask_for_stacks(ranks, trees)
            return Scene(seen, shared.servers.states(heard_at=heard_at), dict(shared.figures.use), missing)

        return BackgroundCall("hang", look)

    def _report(self, stall: Stall, looking: BackgroundCall[Scene]) -> End | None:
        try:
            scene = looking.value()
        except Exception:  # its thread's border: whatever went wrong there, the hang itself is told
            log.exception("the processes of a hang could not be looked at")
            scene = Scene(())
        who = explain(scene, time.monotonic())
        text = f"{stall} {who}".strip()
        try:
            _write(self._shared.folder.log(STACKS), stall, who, scene)
        except OSError as error:
            log.warning("the stacks could not be written: %s", error)
        data = {"text": text, "who": who, "seconds": round(stall.seconds, 1), "usual_s": stall.usual_s}
        self._shared.report.append(EventKind.HANG, data, step=stall.step)
        return End(EndReason.HUNG, text) if self._shared.spec.run.hang.stop and stall.usual_s is not None else None


# --- sentences ------------------------------------------------------------------------------------------------


def explain(scene: Scene, now: float) -> str:
    """Who waits for whom; "" if nothing is known."""
    stopped = [one for one in scene.processes if one.state in "Tt"]
    if stopped:
        others = " The rest of the run waits for it." if len(scene.processes) > 1 else ""
        return f"{_who(stopped[0], scene)} is stopped, as by SIGSTOP or a debugger.{others}"
    ranks = [one for one in scene.processes if one.activity is not None]
    late = [one for one in ranks if one.collective is None]
    if len(ranks) > 1 and not late:
        places = "; ".join(f"rank {one.activity.rank} in {one.collective}" for one in ranks if one.activity)
        return f"All ranks wait for each other in an operation of all ranks, perhaps not the same one: {places}."
    first = min(late or ranks, key=lambda one: one.activity.since if one.activity else now, default=None)
    if first is None:
        first = next((one for one in scene.processes if one.role == "trainer"), None)
    if first is None:
        return ""
    waiting = len(ranks) - len(late) if late else 0
    others = {0: "", 1: " The other rank waits for it."}.get(waiting, f" {waiting} other ranks wait for it.")
    return " ".join(part for part in (_waits(first, scene, now), others.strip()) if part)


def _waits(one: Witness, scene: Scene, now: float) -> str:
    doing = one.activity.doing if one.activity else ()
    seconds = now - one.activity.since if one.activity else None
    who, inner = _who(one, scene), doing[-1] if doing else ""
    during = "In an evaluation: " if StepPart.EVALUATION in doing[:-1] else ""
    if StepPart.REWARDS in doing[:-1]:
        of = "" if who == TRAINER_WORDS else f" of {_lower(who)}"
        return f"{during}The reward {inner}{of} has not returned for {seconds:.0f} s. {_place(one)}".strip()
    if scene.servers and inner in _FROM_SERVERS:
        return f"{during}{who} has waited {seconds:.0f} s for {_FROM_SERVERS[inner]}. {_servers(scene)}"
    what = _DOING.get(inner, inner)
    lead = f"{who} has been {what} for {seconds:.0f} s." if seconds is not None else f"{who} does not say what it does."
    return " ".join(part for part in (during + lead, _place(one), _gpus(scene)) if part)


TRAINER_WORDS = "The trainer"
_FROM_SERVERS: dict[str, str] = {
    StepPart.GENERATION: "completions from vLLM",
    StepPart.WEIGHT_SYNC: "vLLM to take its weights",
}
_DOING: dict[str, str] = {
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
    worst = max(scene.servers, key=lambda server: (server.unanswered_s, server.running + server.waiting))
    name = f"The server {worst.role}" if len(scene.servers) > 1 else "vLLM"
    engine = next((one for one in scene.processes if one.role == worst.role and "Engine" in one.name), None)
    at = f" Its engine{_place(engine).removeprefix('It')}" if engine else ""
    if worst.unanswered_s:
        return f"{name} has not answered for {worst.unanswered_s:.0f} s.{at}"
    if not worst.running + worst.waiting:
        return f"{name} answers and has no request: an answer was lost, or nothing was asked.{at}"
    requests = f"{worst.running} requests running and {worst.waiting} waiting"
    return f"{name} has {requests}, and has made no token for {worst.still_s:.0f} s.{at}"


def _place(one: Witness) -> str:
    """Where it is and what it does there, as a sentence."""
    parts = [f"at {one.frame}"] if one.frame else []
    busy = f"computing on {one.cpu_percent:.0f} % of a core" if one.cpu_percent >= LOADED else ""
    parts += [busy or STATES.get(one.state, "")]
    parts += [f"connected to {', '.join(one.peers)}"] if one.peers else []
    words = ", ".join(part for part in parts if part)
    return f"It is {words}." if words else ""


def _gpus(scene: Scene) -> str:
    if not scene.gpus:
        return ""
    return f"GPU use: {', '.join(f'{gpu}: {use:.0f} %' for gpu, use in sorted(scene.gpus.items()))}."


def _who(one: Witness, scene: Scene) -> str:
    ranks = sum(each.activity is not None for each in scene.processes)
    if one.activity is not None and ranks > 1:
        return f"Rank {one.activity.rank} of the trainer (pid {one.pid})"
    if one.role == "trainer" and (one.activity is not None or not ranks):
        return TRAINER_WORDS
    return f"{one.name} of {one.role} (pid {one.pid})"


def _lower(who: str) -> str:
    return who[0].lower() + who[1:]


# --- the log --------------------------------------------------------------------------------------------------


def _write(path: os.PathLike[str], stall: Stall, who: str, scene: Scene) -> None:
    """Append to the attempt's stacks.log."""
    lines = [time.strftime("=== %Y-%m-%d %H:%M:%S UTC", time.gmtime()), str(stall), who]
    if scene.missing:
        lines.append(f"{scene.missing} The trainer was asked to write its own stacks to its log.")
    for one in scene.processes:
        lines += ["", f"--- {_who(one, scene)}: {STATES.get(one.state, one.state)}, {one.cpu_percent:.0f} % of a core"]
        if one.activity is not None:
            lines.append(f"doing: {' > '.join(one.activity.doing) or 'between two steps'}")
        if one.peers:
            lines.append(f"connected to {', '.join(one.peers)}")
        for thread in one.threads:
            lines += [f"Thread {thread.name}", *(f"    {f.function} ({f.file}:{f.line})" for f in thread.frames)]
    with open(path, "a", encoding="utf-8", errors="replace") as file:
        file.write("\n".join(lines) + "\n\n")
