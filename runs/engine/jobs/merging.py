"""Merging an adapter into its base model: the obstacles, and the job."""

from __future__ import annotations

from controlplane.platform.accounts.models import User
from runs.engine.checkpoints import Checkpoint
from runs.engine.jobs import starting
from runs.engine.models import Run
from runs.engine.records import RunEvent
from workers.contract.run.hardware import Quantization
from workers.contract.run.jobs import FLOAT32, MERGE, MergeSettings
from workers.contract.wire.documents import ContractError
from workers.contract.wire.names import EventKind

CHOICES = (("", "As the base model"), (FLOAT32, "float32: nothing is rounded"))
"""Data types of the merged weights, with their labels."""


def refusal(checkpoint: Checkpoint) -> str:
    """Explain why a checkpoint can't be merged, with an alternative; empty if it can."""
    if not checkpoint.is_adapter:
        return "This model already holds all weights, so there is nothing to merge. Download it, or train from it."
    bits = (checkpoint.run.spec.get("hardware") or {}).get("quantization") or Quantization.NONE
    if bits != Quantization.NONE:
        return (
            f"This adapter was trained on a base model quantized to {bits}, so merging it into the full weights would "
            "give a different model. Serve it as an adapter, or train without quantization."
        )
    return ""


def start(checkpoint: Checkpoint, user: User, *, dtype: str) -> Run:
    """Start the merge of an adapter, or return the one that is under way.

    Raises ContractError with words for people, and QueueFull.
    """
    if dtype not in dict(CHOICES):
        raise ContractError(f"{dtype!r} is not among the choices for its weights")
    if why := refusal(checkpoint):
        raise ContractError(why)
    return starting.start_once(checkpoint, MERGE, user, settings=MergeSettings(dtype))


def merged_by(job: Run) -> RunEvent | None:
    """The checkpoint event of the model that a merge saved."""
    return job.events.filter(kind=EventKind.CHECKPOINT).order_by("-id").first()
