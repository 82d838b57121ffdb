"""Run statuses, their transitions, the final status of each end reason, and ways to wait. Imports no Django. There are
few statuses and many end reasons. Each reason has exactly one final status and one sentence."""

from enum import StrEnum

from workers.contract.wire.names import EndReason


class RunStatus(StrEnum):
    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"


class Waits(StrEnum):
    """Ways in which another run blocks a queued attempt."""

    HELD = "held"
    QUARANTINED = "quarantined"
    """The resource is not proved free after that run. An operator or a reboot of the host releases it."""
    KEPT = "kept"
    """The resource is free, but reserved for that run, which is ahead in the queue."""


S = RunStatus
FINAL = frozenset({S.SUCCEEDED, S.FAILED, S.STOPPED})
ACTIVE = frozenset(S) - FINAL
ON_HOST = frozenset({S.STARTING, S.RUNNING, S.STOPPING})

EDGES: dict[RunStatus, frozenset[RunStatus]] = {
    S.QUEUED: frozenset({S.STARTING, S.STOPPED, S.FAILED}),
    S.STARTING: frozenset({S.RUNNING, S.STOPPING, S.FAILED, S.STOPPED}),
    S.RUNNING: frozenset({S.STOPPING, S.SUCCEEDED, S.FAILED, S.STOPPED}),
    S.STOPPING: frozenset({S.SUCCEEDED, S.FAILED, S.STOPPED}),
    S.SUCCEEDED: frozenset(),
    S.FAILED: frozenset(),
    S.STOPPED: frozenset(),
}


R = EndReason
_ENDS: dict[EndReason, tuple[RunStatus, str]] = {
    R.COMPLETED: (S.SUCCEEDED, "Finished all steps."),
    R.LIMIT_REACHED: (S.SUCCEEDED, "The run reached its limit."),
    R.EARLY_STOPPED: (S.SUCCEEDED, "A rule ended the run early."),
    R.STOPPED_BY_USER: (S.STOPPED, "Stopped manually."),
    R.PREEMPTED: (S.STOPPED, "The host ended the run before its last step."),
    R.HOST_SHUTDOWN: (S.STOPPED, "The host was shut down while the run was on it."),
    R.HOST_PREEMPTED: (S.STOPPED, "The cluster took the machine back while the run was on it."),
    R.CANCELLED: (S.STOPPED, "Canceled before it started."),
    R.TRAINER_EXITED: (S.FAILED, "The trainer exited before its last step."),
    R.NO_STEPS: (S.FAILED, "The trainer exited without training a step: there were too few prompts for one batch."),
    R.SPEC_REFUSED: (S.FAILED, "The trainer refused the configuration."),
    R.CHECKPOINT_UNUSABLE: (S.FAILED, "The checkpoint to resume from is incomplete or doesn't fit the run."),
    R.MODEL_UNAVAILABLE: (S.FAILED, "The model could not be downloaded from the hub."),
    R.VLLM_EXITED: (S.FAILED, "The vLLM server exited while the run needed it."),
    R.VLLM_NOT_READY: (S.FAILED, "The vLLM server did not become ready in time."),
    R.VLLM_HUNG: (S.FAILED, "The vLLM server stopped responding to the run."),
    R.HUNG: (S.FAILED, "The run hung: a step took far longer than usual."),
    R.PORT_IN_USE: (S.FAILED, "The vLLM server's port was in use by another program."),
    R.GPUS_BUSY: (S.FAILED, "A leased GPU was in use by another program."),
    R.REWARD_FAILED: (S.FAILED, "A reward failed on more rows than the run allows."),
    R.ATROPOS_UNREACHABLE: (S.FAILED, "Atropos' API, which collects the scored groups, was unreachable."),
    R.OOM: (S.FAILED, "Out of memory."),
    R.DISK_FULL: (S.FAILED, "The host's disk is full."),
    R.FOLDER_LOST: (S.FAILED, "The run's folder was removed on the host."),
    R.SUPERVISOR_LOST: (S.FAILED, "The supervisor died; its leftovers were cleaned up."),
    R.SUPERVISOR_ERROR: (S.FAILED, "The supervisor hit an internal error and stopped the run."),
    R.HOST_LOST: (S.FAILED, "The host restarted or was marked as lost."),
    R.LAUNCH_FAILED: (S.FAILED, "The host never started the run."),
}


def final_status(reason: EndReason) -> RunStatus:
    return _ENDS[reason][0]


def sentence(reason: str) -> str:
    """Describe a stored end reason in a sentence. After a downgrade, only the newer version may know the reason."""
    if reason in _ENDS:
        return _ENDS[EndReason(reason)][1]
    return f"This version doesn't know the reason “{reason.replace('_', ' ')}”." if reason else ""


def may_move(old: RunStatus, new: RunStatus) -> bool:
    return new in EDGES[old]


def previous_statuses(new: RunStatus) -> frozenset[RunStatus]:
    """Return the statuses from which an attempt may move to `new`."""
    return frozenset(old for old in RunStatus if new in EDGES[old])
