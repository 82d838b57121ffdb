"""What TRL would import with itself although the run has no use for it: vLLM, which takes as long as torch and TRL."""

from __future__ import annotations

from workers.contract import Rollout, RunSpec, WeightSync


def leave_vllm_out(run: RunSpec) -> None:
    """To be called before TRL's trainer is imported. A trainer that generates itself, or sends adapters over HTTP, has
    no use for vLLM's Python package; TRL imports it wherever it is installed."""
    if needs_vllm(run):
        return
    from trl import import_utils

    import_utils.is_vllm_available = lambda min_version=None: False


def needs_vllm(run: RunSpec) -> bool:
    """Whether the trainer itself runs vLLM, or sends weights with its NCCL communicator."""
    server = run.hardware.vllm_server
    streams = server is not None and server.weight_sync is WeightSync.NCCL
    return run.hardware.rollout is Rollout.COLOCATE or streams
