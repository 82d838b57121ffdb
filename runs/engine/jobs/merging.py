"""Merging an adapter into its base: whether that makes sense, and the job."""

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
"""What the merged weights can be saved in."""


def refusal(checkpoint: Checkpoint) -> str:
    """Why it can't be merged, with what to do instead; "" if it can."""
    if not checkpoint.is_adapter:
        return "This model holds all weights already: there is nothing to merge. Download it, or train on from it."
    bits = (checkpoint.run.spec.get("hardware") or {}).get("quantization") or Quantization.NONE
    if bits != Quantization.NONE:
        return (
            f"This adapter was trained on a base quantized to {bits}, and corrects that rounded base: merged into the "
            "full weights it would be another model. Serve it as an adapter, or train without quantization."
        )
    return ""


def start(checkpoint: Checkpoint, user: User, *, dtype: str) -> Run:
    """The merge of this adapter that is under way already, or a new one.

    Raises ContractError with words for people, and QueueFull.
    """
    if dtype not in dict(CHOICES):
        raise ContractError(f"{dtype!r} is not among the choices for its weights")
    if why := refusal(checkpoint):
        raise ContractError(why)
    return starting.start_once(checkpoint, MERGE, user, settings=MergeSettings(dtype))


def merged_by(job: Run) -> RunEvent | None:
    """The model that a merge has saved."""
    return job.events.filter(kind=EventKind.CHECKPOINT).order_by("-id").first()
