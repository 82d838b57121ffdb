"""Why an attempt ended: what supervisors report and what the control plane knows besides."""

from __future__ import annotations

from enum import StrEnum


class EndReason(StrEnum):
    """Each leads to one final status and has one sentence for people: runs.states."""

    COMPLETED = "completed"
    STOPPED_BY_USER = "stopped_by_user"
    CANCELLED = "cancelled"
    TRAINER_EXITED = "trainer_exited"
    NO_STEPS = "no_steps"
    SPEC_REFUSED = "spec_refused"
    MODEL_UNAVAILABLE = "model_unavailable"
    VLLM_EXITED = "vllm_exited"
    VLLM_NOT_READY = "vllm_not_ready"
    VLLM_HUNG = "vllm_hung"
    PORT_IN_USE = "port_in_use"
    GPUS_BUSY = "gpus_busy"
    REWARD_FAILED = "reward_failed"
    OOM = "oom"
    DISK_FULL = "disk_full"
    FOLDER_LOST = "folder_lost"
    SUPERVISOR_LOST = "supervisor_lost"
    SUPERVISOR_ERROR = "supervisor_error"
    HOST_LOST = "host_lost"
    LAUNCH_FAILED = "launch_failed"
