"""Jobs that merge, convert, push or benchmark a model: their checks and starts. Each start returns the job of its kind
that is already in progress, if there is one. It raises QueueFull, or ContractError with a message for users, in most
cases also if that job has other settings."""

import re

from controlplane.catalogue.hardware import inventory
from controlplane.catalogue.hardware.models import Host
from controlplane.platform.accounts import vault
from controlplane.platform.accounts.models import User
from runs.engine.checkpoints import Checkpoint
from runs.engine.jobs import archives, starting
from runs.engine.models import Run
from runs.engine.scheduling import checkpoint_hosts
from workers.contract.run.hardware import HardwareSpec, Quantization
from workers.contract.run.jobs import (
    BENCHMARK,
    BENCHMARK_TASKS,
    FLOAT32,
    GGUF,
    GGUF_SCRIPT,
    GGUF_TYPES,
    MAX_BENCHMARK_EXAMPLES,
    MERGE,
    PUSH,
    BenchmarkSettings,
    GgufSettings,
    MergeSettings,
    PushSettings,
)
from workers.contract.wire.documents import ContractError, to_dict

DTYPES = (("", "Same as the base model"), (FLOAT32, "float32: nothing is rounded"))
"""Data types of the merged weights, with their labels."""
MERGE_FIRST = (
    "This model is an adapter, but a GGUF file needs full weights. Merge it first, then convert the merged model."
)
MAX_CARD_BYTES = 64 * 1024
_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,94}[A-Za-z0-9_])?")


def merge(checkpoint: Checkpoint, user: User, *, dtype: str) -> Run:
    if dtype not in dict(DTYPES):
        raise ContractError(f"{dtype!r} is not one of the data types offered for the merged weights")
    if problem := merge_problem(checkpoint):
        raise ContractError(problem)
    return starting.start_once(checkpoint, MERGE, user, settings=MergeSettings(dtype))


def merge_problem(checkpoint: Checkpoint) -> str:
    """Explain why a checkpoint can't be merged and what to do instead, or return "" if it can be merged."""
    if not checkpoint.is_adapter:
        return "This model already has full weights, so there is nothing to merge. Download it, or train from it."
    bits = (checkpoint.run.spec.get("hardware") or {}).get("quantization") or Quantization.NONE
    if bits != Quantization.NONE:
        return (
            f"This adapter was trained on a base model quantized to {bits}, so merging it into the full weights would "
            "give a different model. Serve it as an adapter, or train without quantization."
        )
    return ""


def convert(checkpoint: Checkpoint, user: User, *, kind: str) -> Run:
    """Start the conversion of a model to a GGUF file of this type, with llama.cpp's own script."""
    if kind not in GGUF_TYPES:
        raise ContractError(f"{kind!r} is not one of the GGUF types: {', '.join(GGUF_TYPES)}")
    hosts = converting_hosts(checkpoint)
    if not hosts:
        raise ContractError(f"its host has no llama.cpp folder with {GGUF_SCRIPT} (set GRPO_LLAMA_CPP_DIR there)")
    if checkpoint.is_adapter:
        raise ContractError(MERGE_FIRST)
    settings = GgufSettings(f"{archives.name_of(checkpoint)}-{kind}", kind)
    job = starting.start_once(checkpoint, GGUF, user, settings=settings, host=hosts[0])
    if job.spec["job"]["type"] != kind:
        raise ContractError(
            f"a conversion of this model to {job.spec['job']['type']} is in progress; wait until it ends"
        )
    return job


def converting_hosts(checkpoint: Checkpoint) -> list[Host]:
    """List the hosts that can use the model and have announced that they can convert models."""
    return checkpoint_hosts.hosts_for(
        checkpoint, lambda host: bool(inventory.clean(host.inventory).get("converts_to_gguf"))
    )


def push(checkpoint: Checkpoint, user: User, settings: PushSettings) -> Run:
    if problem := repository_problem(settings.repository) or vault.hub_token_problem():
        raise ContractError(problem)
    job = starting.start_once(checkpoint, PUSH, user, settings=settings)
    current_repository = job.spec["job"]["repository"]
    if current_repository != settings.repository:
        raise ContractError(f"a push of this model to {current_repository} is in progress; wait until it ends")
    return job


def repository_problem(name: str) -> str:
    """Explain why the hub would reject a repository name, or return "" if it is valid."""
    owner, slash, repository = name.partition("/")
    if not slash or "/" in repository:
        return "A repository name has two parts: owner/name. The owner is the token's account or an organization."
    if not (_NAME.fullmatch(owner) and _NAME.fullmatch(repository)):
        return (
            "Each part may have up to 96 letters, digits, dots, dashes and underscores, and must not begin or end with "
            "a dot or a dash."
        )
    if "--" in name or ".." in name:
        return "The hub doesn't allow names with two dashes or two dots in a row."
    return "The hub doesn't allow names that end with .git." if repository.endswith(".git") else ""


def benchmark(checkpoint: Checkpoint, user: User, *, tasks: list[str], limit: int) -> Run:
    """Start benchmarks of a model, on a GPU if the run trained on one. `limit` is the number of examples per task; 0
    means all."""
    if not tasks:
        raise ContractError("choose at least one task")
    if unknown_tasks := [task for task in tasks if task not in BENCHMARK_TASKS]:
        raise ContractError(f"{unknown_tasks[0]!r} is not one of the benchmarks: {', '.join(BENCHMARK_TASKS)}")
    if not 0 <= limit <= MAX_BENCHMARK_EXAMPLES:
        raise ContractError(f"use 1 to {MAX_BENCHMARK_EXAMPLES:,} examples per task, or 0 for all of them")
    gpus = (checkpoint.run.spec.get("hardware") or {}).get("trainer_gpus")
    settings = BenchmarkSettings(tuple(tasks), limit)
    hardware = HardwareSpec("", trainer_gpus=1) if gpus else starting.ON_THE_CPU
    job = starting.start_once(checkpoint, BENCHMARK, user, settings=settings, hardware=hardware)
    if job.spec["job"] != to_dict(settings):
        raise ContractError("another benchmark of this model is in progress; wait until it ends")
    return job
