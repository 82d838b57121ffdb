"""The table fault x state: how a run ends that sits in a state when the fault strikes, or why nothing can be killed.

A cell is made of what the table's parts say, and `test_matrix.py` holds both against the real thing: in each state
exactly the roles of `alive` are there, so a cell is void only where the program doesn't exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Ends:
    status: str
    reason: str
    words: tuple[str, ...] = ()
    """What the detail must say."""


@dataclass(frozen=True)
class Void:
    why: str


@dataclass(frozen=True)
class State:
    says: str
    status: str
    alive: frozenset[str]
    """Roles of the run's own processes that live in this state; nobody else of it does."""
    undisturbed: Ends
    absent: str
    """Why the other roles are not there."""


COMPLETED = Ends("succeeded", "completed")
STOPPED = Ends("stopped", "stopped_by_user")
_WITH_SERVER = frozenset({"supervisor", "vllm", "engine", "trainer"})

STATES: Mapping[str, State] = {
    "queued": State(
        "It waits for a GPU that another run has.",
        "queued",
        frozenset(),
        COMPLETED,
        "nothing of it is on a host before its resources are leased",
    ),
    "sent": State(
        "It is leased, and its launch message lies in the host's queue.",
        "starting",
        frozenset(),
        COMPLETED,
        "a supervisor is started by the launch message, and everything else by the supervisor",
    ),
    "starting": State(
        "Its supervisor has claimed it, and fetches the dataset and the GPUs' baselines.",
        "starting",
        frozenset({"supervisor"}),
        COMPLETED,
        "a supervisor starts nothing before it knows what the GPUs hold",
    ),
    "loading": State(
        "vLLM loads the model; the trainer waits for it.",
        "starting",
        _WITH_SERVER,
        COMPLETED,
        "",
    ),
    "training": State("It trains.", "running", _WITH_SERVER, COMPLETED, ""),
    "saving": State("It was told to save and stop; the trainer saves.", "stopping", _WITH_SERVER, STOPPED, ""),
    "stopping": State(
        "It was told to stop now; its processes have their SIGTERM and are still there.",
        "stopping",
        _WITH_SERVER,
        STOPPED,
        "",
    ),
    "verifying": State(
        "It has trained to its last step and its processes are gone; a GPU's memory isn't free yet.",
        "stopping",
        frozenset({"supervisor"}),
        COMPLETED,
        "its processes were ended and seen to be gone before the GPUs are looked at",
    ),
}

_GONE = "The supervisor was gone."
_STOP_TAKEN_ON = ("stopped", "stopped_by_user")
_COULD_NOT_SAVE = "The trainer could not save:"

OF_THE_RUN: Mapping[str, Mapping[str, Ends]] = {
    "trainer": {
        "loading": Ends("failed", "trainer_exited", ("SIGKILL",)),
        "training": Ends("failed", "trainer_exited", ("SIGKILL",)),
        "saving": Ends(*_STOP_TAKEN_ON, (_COULD_NOT_SAVE, "The trainer was killed by SIGKILL")),
        "stopping": STOPPED,
    },
    "vllm": {
        "loading": Ends("failed", "vllm_exited", ("SIGKILL",)),
        "training": Ends("failed", "vllm_exited", ("SIGKILL",)),
        "saving": Ends(*_STOP_TAKEN_ON, (_COULD_NOT_SAVE, "The vLLM server was killed by SIGKILL")),
        "stopping": STOPPED,
    },
    "engine": {
        "loading": Ends("failed", "vllm_exited", ("exited with code 1", "EngineDeadError")),
        "training": Ends("failed", "vllm_exited", ("exited with code 1", "EngineDeadError")),
        "saving": Ends(*_STOP_TAKEN_ON, (_COULD_NOT_SAVE, "EngineDeadError")),
        "stopping": STOPPED,
    },
    "supervisor": {
        "starting": Ends("failed", "supervisor_lost", (_GONE,)),
        "loading": Ends("failed", "supervisor_lost", (_GONE, "3 processes")),
        "training": Ends("failed", "supervisor_lost", (_GONE, "3 processes")),
        # The supervisor had taken the stop on, or written its reason down, before it died: the first reason stays.
        "saving": Ends(*_STOP_TAKEN_ON, ("It may not have saved:", _GONE, "3 processes")),
        "stopping": Ends(*_STOP_TAKEN_ON, (_GONE,)),
        "verifying": Ends("succeeded", "completed", (_GONE, "0 processes")),
    },
}
"""Faults that strike one run's own process, whose role is the fault's name."""

OF_THE_INSTALLATION: Mapping[str, tuple[str, ...]] = {
    "web": ("web",),
    "control": ("control",),
    "host": ("host",),
    "valkey": ("valkey",),
    "web+valkey": ("web", "valkey"),
    "control+host": ("control", "host"),
}
"""Faults that strike programs of the installation: no run may notice. `control` has the beat inside."""

FORGETFUL = frozenset({"web+valkey"})
"""Redis comes back without what was in it; otherwise it has its append-only file."""

FAULTS = (*OF_THE_RUN, *OF_THE_INSTALLATION)

TOGETHER: Mapping[tuple[str, str], Ends] = {
    (f"supervisor+{fault}", "training"): Ends("failed", "supervisor_lost", (_GONE, "3 processes"))
    for fault in OF_THE_INSTALLATION
}
"""Beside the table: a supervisor dies in the moment in which those are away who would notice, or would clean up."""


def table() -> dict[tuple[str, str], Ends | Void]:
    return {(fault, state): _cell(fault, state) for fault in FAULTS for state in STATES}


def live(faults: Iterable[str]) -> list[tuple[str, str]]:
    """Cells in which there is something to kill."""
    return [cell for cell, what in TABLE.items() if cell[0] in faults and isinstance(what, Ends)]


def _cell(fault: str, state: str) -> Ends | Void:
    if fault in OF_THE_INSTALLATION:
        return STATES[state].undisturbed
    if fault not in STATES[state].alive:
        return Void(f"No {fault} is there: {STATES[state].absent}.")
    return OF_THE_RUN[fault][state]


TABLE = table()
