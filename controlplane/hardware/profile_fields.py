"""Every field of a hardware profile: its label, a sentence of help, and when it counts. Data; the form is made of it.

Names are the contract's own: HardwareSpec's bare, ServerSpec's after `server_`, LoraSpec's after `lora_`, and
GRPOConfig's for the batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from workers.contract import MAX_SERVERS, Offload, Optimizer, Precision, Quantization, Rollout, Strategy, WeightSync
from workers.contract.commands import ENVIRONMENT

ATTACHED = "attached"
"""The form's own rollout, beside the contract's: mode `server`, with servers that somebody else runs."""
BATCH_FIELDS = (
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "num_generations",
    "max_completion_length",
    "num_iterations",
)
"""What a profile may say of a run's batch, by GRPOConfig's names."""


class When(StrEnum):
    """What must be chosen for a part of the form to count; it is folded away otherwise, and may hold anything."""

    ALWAYS = "always"
    COLOCATE = "colocate"
    OWN = "own"  # vLLM servers of the run's own
    ATTACHED = "attached"
    SERVERS = "servers"  # own or attached
    LORA = "lora"


@dataclass(frozen=True)
class Part:
    """Fields that are shown, or not, together."""

    when: When
    names: tuple[str, ...]
    title: str = ""


@dataclass(frozen=True)
class Section:
    title: str
    about: str
    parts: tuple[Part, ...]


def _server(*names: str) -> tuple[str, ...]:
    return tuple(f"server_{name}" for name in names)


SECTIONS: tuple[Section, ...] = (
    Section(
        "Rollouts",
        "where completions are made",
        (
            Part(When.ALWAYS, ("rollout",)),
            Part(
                When.COLOCATE,
                (
                    "colocate_memory_utilization",
                    "colocate_max_model_len",
                    "colocate_tensor_parallel",
                    "colocate_sleep",
                ),
            ),
            Part(
                When.OWN,
                _server("count", "gpus", "tensor_parallel", "data_parallel", "gpu_ids", "port", "shared"),
                "Servers",
            ),
            Part(When.ATTACHED, ("server_attached",)),
            Part(
                When.OWN,
                _server(
                    "gpu_memory_utilization",
                    "max_model_len",
                    "dtype",
                    "ready_timeout_s",
                    "prefix_caching",
                    "enforce_eager",
                ),
                "Engine",
            ),
            Part(When.SERVERS, _server("weight_sync", "request_timeout_s"), "Weights and answers"),
        ),
    ),
    Section(
        "Training",
        "GPUs and processes",
        (
            Part(
                When.ALWAYS,
                (
                    "trainer_gpus",
                    "processes",
                    "strategy",
                    "offload",
                    "trainer_gpu_ids",
                    "cpu_slots",
                    "threads",
                    "precision",
                ),
            ),
        ),
    ),
    Section(
        "Memory",
        "what the trainer keeps on its GPUs",
        (Part(When.ALWAYS, ("optimizer", "gradient_checkpointing", "memory_cap_gib", "liger_kernels")),),
    ),
    Section(
        "LoRA and QLoRA",
        "train an adapter instead of all weights",
        (
            Part(When.ALWAYS, ("use_lora",)),
            Part(When.LORA, ("lora_r", "lora_alpha", "lora_dropout", "lora_targets")),
            Part(When.ALWAYS, ("quantization",)),
        ),
    ),
    Section("Batch", "what a launch starts from; empty leaves it open", (Part(When.ALWAYS, BATCH_FIELDS),)),
    Section("Environment variables", "of the trainer and its own servers", (Part(When.ALWAYS, ("environment",)),)),
)

LABELS: dict[str, str] = {
    "rollout": "Completions are made",
    "trainer_gpus": "Trainer GPUs",
    "processes": "Processes",
    "cpu_slots": "CPU slots",
    "threads": "Threads",
    "colocate_memory_utilization": "vLLM's share of GPU memory",
    "colocate_sleep": "vLLM sleeps between generations",
    "colocate_tensor_parallel": "Tensor parallel",
    "colocate_max_model_len": "Longest sequence",
    "trainer_gpu_ids": "Only these trainer GPUs",
    "strategy": "Strategy",
    "offload": "Offload to the CPU",
    "precision": "Precision",
    "quantization": "Base model",
    "optimizer": "Optimizer",
    "gradient_checkpointing": "Gradient checkpointing",
    "liger_kernels": "Liger kernels",
    "memory_cap_gib": "Memory cap, GiB",
    "environment": "Variables",
    "server_count": "Number of servers",
    "server_gpus": "GPUs of each server",
    "server_tensor_parallel": "Tensor parallel",
    "server_data_parallel": "Data parallel",
    "server_shared": "On the trainer's own GPUs",
    "server_gpu_ids": "Only these server GPUs",
    "server_port": "First port",
    "server_attached": "Addresses",
    "server_gpu_memory_utilization": "Share of GPU memory",
    "server_max_model_len": "Longest sequence",
    "server_dtype": "Number format",
    "server_enforce_eager": "Run eagerly",
    "server_prefix_caching": "Cache prefixes",
    "server_ready_timeout_s": "Start-up deadline, seconds",
    "server_request_timeout_s": "Answer deadline, seconds",
    "server_weight_sync": "How the policy reaches them",
    "use_lora": "Train a LoRA",
    "lora_r": "Rank r",
    "lora_alpha": "Alpha (α)",
    "lora_dropout": "Dropout",
    "lora_targets": "Targets",
    "per_device_train_batch_size": "Batch per process",
    "gradient_accumulation_steps": "Gradient accumulation",
    "num_generations": "Generations per prompt",
    "max_completion_length": "Completion length",
    "num_iterations": "Iterations per batch",
}

HELP: dict[str, str] = {
    "rollout": "By the trainer itself, by vLLM inside it, or by vLLM servers beside it.",
    "trainer_gpus": "GPUs that train. 0 trains on the CPU.",
    "processes": "Trainer processes (ranks). On GPUs one for each GPU.",
    "cpu_slots": "CPU slots to lease when nothing runs on a GPU. The Hardware page shows what each host offers.",
    "threads": "Torch threads of each process on the CPU. Empty leaves torch's choice.",
    "colocate_memory_utilization": "Share of each GPU's memory that vLLM may take; the rest is the trainer's.",
    "colocate_sleep": "Gives vLLM's memory to the trainer while weights are updated. Slower, and fits larger models.",
    "colocate_tensor_parallel": "Over how many trainer processes vLLM splits each layer. Must divide them.",
    "colocate_max_model_len": "Longest prompt and completion together. Empty takes the model's own context.",
    "trainer_gpu_ids": "By index, such as 0, 1. Empty takes any that are free, which queues less.",
    "strategy": "How processes share the training: whole copies (DDP), or the model's state cut into shards.",
    "offload": "Keeps state in the host's memory: slower steps, and larger models fit.",
    "precision": "Number format of the training. Auto is bf16 on GPUs and fp32 on the CPU.",
    "quantization": "Loads the frozen base model under a LoRA in fewer bits: a half or a quarter of its memory.",
    "optimizer": "AdamW keeps 8 bytes a trained weight, its 8-bit form 2, Adafactor next to nothing.",
    "gradient_checkpointing": "Computes activations again instead of keeping them: less memory, slower. Auto: on GPUs.",
    "liger_kernels": "Fused Triton kernels that need less memory for logits and norms. They run on GPUs only.",
    "memory_cap_gib": "Most GPU memory of each trainer process, to try a smaller card on a larger one. Empty: no cap.",
    "environment": f"One NAME=VALUE a line. These can be set: {', '.join(ENVIRONMENT)}.",
    "server_count": f"vLLM servers that share out the prompts of a step, up to {MAX_SERVERS}.",
    "server_gpus": "Tensor parallel × data parallel, on top of the trainer's GPUs unless they are shared.",
    "server_tensor_parallel": "Over how many GPUs each layer is split. Must divide the model's attention heads.",
    "server_data_parallel": "Copies of the model in one server. vLLM gains by it with mixtures of experts only.",
    "server_shared": "Server and trainer on the same GPUs. The policy then goes as a LoRA: NCCL refuses one GPU twice.",
    "server_gpu_ids": "By index, the first server's first. Empty takes any that are free, which queues less.",
    "server_port": "On loopback; further servers take the next ones. Empty takes free ones of the host's range.",
    "server_attached": "One http://host:port a line, as the host reaches it. Nothing about it is started or proved.",
    "server_gpu_memory_utilization": "Share of each of its GPUs that vLLM may take, above 0 and at most 1.",
    "server_max_model_len": "Longest prompt and completion together. Empty takes the model's own context.",
    "server_dtype": "Number format of the server's weights; auto takes the model's.",
    "server_enforce_eager": "No CUDA graphs: starts sooner, answers 5 to 10 times slower.",
    "server_prefix_caching": "Reuses what prompts have in common.",
    "server_ready_timeout_s": "How long a server may take until it answers. A cold start takes 1 to 2 minutes.",
    "server_request_timeout_s": "How long the trainer waits for one step's completions before it gives up.",
    "server_weight_sync": "NCCL streams all weights to one server; the LoRA hot-swap sends an adapter to each.",
    "use_lora": "Small matrices beside frozen weights: a tenth of the memory, and what the hot-swap sends to servers.",
    "lora_r": "Size of the matrices: more can learn more. 8 to 64 is usual.",
    "lora_alpha": "The adapter counts α / r times. Usually twice the rank.",
    "lora_dropout": "Share of the adapter's input left out while it trains.",
    "lora_targets": "Modules that get an adapter, by the end of their name, or all-linear.",
    "per_device_train_batch_size": "Completions in one pass on each process. Lower it when memory runs out.",
    "gradient_accumulation_steps": "Passes added up before each optimizer step.",
    "num_generations": "Completions of one prompt that are compared with each other; at least 2.",
    "max_completion_length": "Most tokens that a completion may have.",
    "num_iterations": "How often each batch of completions is learned from.",
}

CHOICES: dict[str, tuple[tuple[str, str], ...]] = {
    "rollout": (
        (Rollout.TRANSFORMERS, "In the trainer, without vLLM"),
        (Rollout.COLOCATE, "By vLLM inside the trainer, on its GPUs"),
        (Rollout.SERVER, "By vLLM servers of the run's own"),
        (ATTACHED, "By vLLM servers that somebody else runs"),
    ),
    "strategy": (
        (Strategy.NONE, "One process"),
        (Strategy.DDP, "DDP: whole copies"),
        (Strategy.FSDP2, "FSDP2: all shards"),
        (Strategy.ZERO1, "ZeRO-1: optimizer shards"),
        (Strategy.ZERO2, "ZeRO-2: + gradient shards"),
        (Strategy.ZERO3, "ZeRO-3: + parameter shards"),
    ),
    "offload": (
        (Offload.NONE, "Nothing"),
        (Offload.OPTIMIZER, "Optimizer states"),
        (Offload.PARAMETERS, "Optimizer states and parameters"),
    ),
    "precision": (
        (Precision.AUTO, "Auto"),
        (Precision.BF16, "bf16"),
        (Precision.FP16, "fp16"),
        (Precision.FP32, "fp32"),
    ),
    "quantization": (
        (Quantization.NONE, "In its own precision"),
        (Quantization.INT8, "8-bit"),
        (Quantization.NF4, "4-bit (NF4)"),
    ),
    "optimizer": (
        (Optimizer.ADAMW, "AdamW"),
        (Optimizer.ADAMW_8BIT, "AdamW, 8-bit states"),
        (Optimizer.ADAFACTOR, "Adafactor"),
    ),
    "server_dtype": tuple((name, name) for name in ("auto", "bfloat16", "float16", "float32")),
    "server_weight_sync": ((WeightSync.NCCL, "All weights by NCCL"), (WeightSync.LORA, "LoRA adapter by HTTP")),
}
