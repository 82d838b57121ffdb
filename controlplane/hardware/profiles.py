"""Hardware profiles: the shipped ones, each field's help, and what makes a profile inconsistent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from workers.contract import HardwareSpec, Rollout, WeightSync

SHIPPED: tuple[tuple[str, str, dict[str, Any]], ...] = (
    (
        "CPU",
        "Everything on one CPU slot: for tiny models, and to try a setup before it takes a GPU.",
        {"rollout": "transformers", "trainer_gpus": 0, "processes": 1, "cpu_slots": 1},
    ),
    (
        "One GPU, vLLM colocated",
        "Trainer and vLLM share one GPU; vLLM sleeps while the weights are updated.",
        {
            "rollout": "colocate",
            "trainer_gpus": 1,
            "processes": 1,
            "colocate_memory_utilization": 0.3,
            "colocate_sleep": True,
        },
    ),
    (
        "One GPU + one GPU with a vLLM server",
        "The trainer on one GPU, completions from a vLLM server on another; weights travel by NCCL.",
        {
            "rollout": "server",
            "trainer_gpus": 1,
            "processes": 1,
            "server": {"gpus": 1, "tensor_parallel": 1, "gpu_memory_utilization": 0.9, "weight_sync": "nccl"},
        },
    ),
    (
        "One GPU + one GPU, LoRA hot-swap",
        "The same two GPUs; only the LoRA adapter travels to the server, under a new name each time.",
        {
            "rollout": "server",
            "trainer_gpus": 1,
            "processes": 1,
            "server": {"gpus": 1, "tensor_parallel": 1, "gpu_memory_utilization": 0.9, "weight_sync": "lora"},
        },
    ),
)
"""(name, description, HardwareSpec without its name); laid into the database by a migration."""

HELP: dict[str, str] = {
    "rollout": "Where completions come from: the trainer itself, vLLM inside it, or a vLLM server of its own.",
    "trainer_gpus": "GPUs that train. 0 trains on the CPU.",
    "processes": "Trainer processes (ranks). On GPUs one for each GPU.",
    "cpu_slots": "CPU slots to lease when nothing trains on a GPU. The Hardware page shows what each host offers.",
    "threads": "Torch threads of each process on the CPU. Empty leaves torch's choice.",
    "colocate_memory_utilization": "Share of each GPU's memory that a colocated vLLM may take, between 0 and 1.",
    "colocate_sleep": "Free vLLM's memory while the weights are updated. Slower, and fits larger models.",
    "server_gpus": "GPUs of the vLLM server, on top of the trainer's.",
    "server_tensor_parallel": "Over how many GPUs each layer is split. Must divide the server's GPUs.",
    "server_gpu_memory_utilization": "Share of each server GPU that vLLM may take, between 0 and 1.",
    "server_max_model_len": "Longest prompt and completion together. Empty takes the model's own context.",
    "server_dtype": "Number format of the server's weights; auto takes the model's.",
    "server_enforce_eager": "No CUDA graphs: starts sooner, answers 5 to 10 times slower.",
    "server_prefix_caching": "Reuse what prompts have in common.",
    "server_ready_timeout_s": "How long the server may take until it answers. A cold start takes 1 to 2 minutes.",
    "server_request_timeout_s": "How long the trainer waits for one step's completions before it gives up.",
    "server_weight_sync": "NCCL streams all weights to the server's GPUs; LoRA sends the adapter over HTTP.",
}


def problems(spec: HardwareSpec) -> list[tuple[str, str]]:
    """(form field, what is wrong) for everything that could not run."""
    return [*_training(spec), *_rollout(spec)]


def _training(spec: HardwareSpec) -> Iterator[tuple[str, str]]:
    if spec.trainer_gpus < 0:
        yield "trainer_gpus", "The number of GPUs can't be negative."
    if spec.processes < 1:
        yield "processes", "There must be at least one trainer process."
    elif spec.trainer_gpus > 0 and spec.processes != spec.trainer_gpus:
        yield "processes", f"With {spec.trainer_gpus} trainer GPUs there must be {spec.trainer_gpus} processes."
    if spec.trainer_gpus == 0 and spec.cpu_slots < 1:
        yield "cpu_slots", "Training on the CPU takes at least one CPU slot."
    if spec.cpu_slots < 0:
        yield "cpu_slots", "The number of slots can't be negative."
    if spec.threads is not None and spec.threads < 1:
        yield "threads", "There must be at least one thread."


def _rollout(spec: HardwareSpec) -> Iterator[tuple[str, str]]:
    if spec.rollout == Rollout.COLOCATE:
        if spec.trainer_gpus == 0:
            yield "rollout", "A colocated vLLM needs a GPU to train on."
        if not 0 < spec.colocate_memory_utilization < 1:
            yield "colocate_memory_utilization", "The share must be above 0 and below 1: the trainer needs some too."
    if spec.rollout != Rollout.SERVER:
        return
    server = spec.server
    if server is None:
        yield "rollout", "A vLLM server needs its own settings."
        return
    if server.gpus < 0:
        yield "server_gpus", "The number of GPUs can't be negative."
    if server.tensor_parallel < 1 or server.gpus % server.tensor_parallel:
        yield "server_tensor_parallel", f"{server.gpus} GPUs can't be split into groups of {server.tensor_parallel}."
    if not 0 < server.gpu_memory_utilization <= 1:
        yield "server_gpu_memory_utilization", "The share must be above 0 and at most 1."
    if server.max_model_len is not None and server.max_model_len < 1:
        yield "server_max_model_len", "The length must be at least 1."
    if server.ready_timeout_s < 1:
        yield "server_ready_timeout_s", "The server needs some time to start."
    if server.request_timeout_s < 1:
        yield "server_request_timeout_s", "The server needs some time to answer."
    if server.weight_sync == WeightSync.NCCL and (server.gpus < 1 or spec.trainer_gpus < 1):
        yield (
            "server_weight_sync",
            "NCCL needs a GPU for the server and another for the trainer: it refuses two ranks on one device.",
        )
