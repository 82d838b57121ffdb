"""Converting a model to GGUF by llama.cpp's own script: whether its host can, and the job."""

from __future__ import annotations

from controlplane.catalogue.hardware import inventory
from controlplane.catalogue.hardware.models import Host
from controlplane.platform.accounts.models import User
from runs.engine.checkpoints import Checkpoint
from runs.engine.jobs import archives, starting
from runs.engine.models import Run
from runs.engine.scheduling import checkpoint_hosts
from workers.contract.run.gguf import SCRIPT, TYPES
from workers.contract.run.jobs import GGUF, GgufSettings
from workers.contract.wire.documents import ContractError

MERGE_FIRST = (
    "This model is an adapter, and a GGUF file holds all weights: merge it first, then convert the merged model."
)


def is_offered(checkpoint: Checkpoint) -> bool:
    """Whether a host that can have the model has announced that it converts models."""
    return bool(checkpoint_hosts.hosts_for(checkpoint, _converts))


def start(checkpoint: Checkpoint, user: User, *, kind: str) -> Run:
    """The conversion of this model to this type that is under way already, or a new one.

    Raises ContractError with words for people, and QueueFull.
    """
    if kind not in TYPES:
        raise ContractError(f"{kind!r} is not among the types of a GGUF file")
    if not is_offered(checkpoint):
        raise ContractError(f"its host names no folder of llama.cpp with {SCRIPT} (GRPO_LLAMA_CPP_DIR)")
    if checkpoint.is_adapter:
        raise ContractError(MERGE_FIRST)
    settings = GgufSettings(f"{archives.name_of(checkpoint)}-{kind}", kind)
    [host, *_] = checkpoint_hosts.hosts_for(checkpoint, _converts)
    job = starting.start_once(checkpoint, GGUF, user, settings=settings, host=host)
    if job.spec["job"]["type"] != kind:
        raise ContractError(f"a conversion of this model to {job.spec['job']['type']} is under way: wait for its end")
    return job


def _converts(host: Host) -> bool:
    return bool(inventory.clean(host.inventory).get("converts_to_gguf"))
