"""The fields of a hardware profile: labels, help texts, and when they apply. The form is built from this data.

Names are those in the contract: HardwareSpec's without a prefix, ServerSpec's with `server_`, LoraSpec's with `lora_`,
and for the batch GRPOConfig's.
"""

from dataclasses import dataclass
from enum import StrEnum

from workers.contract.run.hardware import (
    BATCH_FIELDS,
    Offload,
    Optimizer,
    Precision,
    Quantization,
    Rollout,
    Strategy,
    WeightSync,
)
from workers.contract.stack.commands import ENVIRONMENT
from workers.contract.wire.names import MAX_SERVERS

ATTACHED = "attached"
"""Additional rollout choice of the form: mode `server` with external servers."""


class When(StrEnum):
    """Conditions under which a group of fields applies; otherwise it is collapsed and ignored."""

    ALWAYS = "always"
    COLOCATE = "colocate"
    OWN = "own"  # the run's own vLLM servers
    ATTACHED = "attached"
    SERVERS = "servers"  # own or attached
    LORA = "lora"
    ZERO = "zero"  # one of DeepSpeed's strategies


@dataclass(frozen=True)
class FieldGroup:
    """Fields that are shown or hidden together."""

    when: When
    names: tuple[str, ...]
    title: str = ""


@dataclass(frozen=True)
class Section:
    title: str
    about: str
    parts: tuple[FieldGroup, ...]


def _group(when: When, *names: str, title: str = "") -> FieldGroup:
    return FieldGroup(when, names, title)


def _server(*names: str) -> tuple[str, ...]:
    return tuple(f"server_{name}" for name in names)


def _section(title: str, about: str, *parts: FieldGroup) -> Section:
    return Section(title, about, parts)


SECTIONS: tuple[Section, ...] = (
    _section(
        "Rollouts",
        "where completions are generated",
        _group(When.ALWAYS, "rollout"),
        _group(
            When.COLOCATE,
            *("colocate_memory_utilization", "colocate_max_model_len", "colocate_tensor_parallel", "colocate_sleep"),
        ),
        _group(
            When.OWN,
            *_server("count", "gpus", "tensor_parallel", "data_parallel", "gpu_ids", "port", "shared"),
            title="Servers",
        ),
        _group(When.ATTACHED, "server_attached"),
        _group(
            When.OWN,
            *_server("gpu_memory_utilization", "kv_cache_gib", "max_model_len", "dtype", "ready_timeout_s"),
            *_server("prefix_caching", "enforce_eager", "all_graphs", "keep_warm_minutes", "tuned_lora"),
            title="Engine",
        ),
        _group(When.SERVERS, *_server("weight_sync", "request_timeout_s"), title="Weight updates and requests"),
    ),
    _section(
        "Training",
        "GPUs and processes",
        _group(
            When.ALWAYS,
            *("trainer_gpus", "processes", "strategy", "offload", "trainer_gpu_ids", "cpu_slots", "threads"),
            "precision",
        ),
        _group(When.ZERO, "deepspeed"),
    ),
    _section(
        "Memory",
        "what the trainer keeps on its GPUs",
        _group(When.ALWAYS, "optimizer", "gradient_checkpointing", "memory_cap_gib", "liger_kernels"),
    ),
    _section(
        "LoRA and QLoRA",
        "train an adapter instead of all weights",
        _group(When.ALWAYS, "use_lora"),
        _group(When.LORA, "lora_r", "lora_alpha", "lora_dropout", "lora_targets"),
        _group(When.ALWAYS, "quantization"),
    ),
    _section("Batch", "defaults for new runs; leave empty for none", _group(When.ALWAYS, *BATCH_FIELDS)),
    _section("Environment variables", "for the trainer and the servers it starts", _group(When.ALWAYS, "environment")),
)

LABELS: dict[str, str] = {
    "rollout": "Rollout backend",
    "trainer_gpus": "Trainer GPUs",
    "processes": "Processes",
    "cpu_slots": "CPU slots",
    "threads": "Threads",
    "colocate_memory_utilization": "vLLM's share of GPU memory",
    "colocate_sleep": "vLLM sleeps between generations",
    "colocate_tensor_parallel": "Tensor parallel",
    "colocate_max_model_len": "Longest sequence",
    "trainer_gpu_ids": "Pin trainer to GPUs",
    "strategy": "Strategy",
    "offload": "Offload to the CPU",
    "precision": "Precision",
    "deepspeed": "DeepSpeed config",
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
    "server_gpu_ids": "Pin servers to GPUs",
    "server_port": "First port",
    "server_attached": "Addresses",
    "server_gpu_memory_utilization": "Share of GPU memory",
    "server_max_model_len": "Longest sequence",
    "server_dtype": "Number format",
    "server_enforce_eager": "Eager mode",
    "server_all_graphs": "CUDA graphs for all batch sizes",
    "server_keep_warm_minutes": "Keep warm, minutes",
    "server_kv_cache_gib": "KV cache, GiB",
    "server_tuned_lora": "Tuned LoRA kernels",
    "server_prefix_caching": "Prefix caching",
    "server_ready_timeout_s": "Startup timeout, seconds",
    "server_request_timeout_s": "Response timeout, seconds",
    "server_weight_sync": "Weight updates",
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
    "rollout": "Whether the trainer, vLLM inside the trainer, or separate vLLM servers generate completions.",
    "trainer_gpus": "Number of GPUs for training; 0 to train on the CPU.",
    "processes": "Trainer processes (ranks). On GPUs, one per GPU.",
    "cpu_slots": "CPU slots to lease if the run uses no GPU. The Hardware page shows how many each host has.",
    "threads": "Torch threads of each process on the CPU. Leave empty for torch's default.",
    "colocate_memory_utilization": "Share of each GPU's memory that vLLM may use; the trainer gets the rest.",
    "colocate_sleep": "Frees vLLM's memory for the trainer while weights are updated. Slower, but larger models fit.",
    "colocate_tensor_parallel": "Processes over which vLLM splits each layer; must divide the trainer processes.",
    "colocate_max_model_len": "Maximum tokens of prompt and completion. Leave empty for the model's context length.",
    "trainer_gpu_ids": "By index, such as 0, 1. Leave empty for any free GPUs, which shortens queueing.",
    "strategy": "How processes divide the training: full copies (DDP) or sharded model state.",
    "offload": "Keeps state in the host's memory: slower steps, but larger models fit.",
    "deepspeed": 'A custom JSON, used as is; values that the run sets must be "auto". Leave empty for the default.',
    "precision": "Precision of the training. Auto is bf16 on GPUs and fp32 on the CPU.",
    "quantization": "Quantizes the frozen base model under a LoRA to half or a quarter of its memory.",
    "optimizer": (
        "AdamW: 8 bytes per trained weight, the usual choice. 8-bit AdamW: 2 bytes at the same speed, with slightly "
        "noisier steps, if AdamW doesn't fit. Adafactor: almost none, but slower to converge, if nothing else fits."
    ),
    "gradient_checkpointing": "Recomputes activations instead of storing them: less memory, slower. Auto: on for GPUs.",
    "liger_kernels": "Fused Triton kernels that need less memory for logits and norms. They run on GPUs only.",
    "memory_cap_gib": "GPU memory limit of each trainer process, to simulate a smaller card. Leave empty for no limit.",
    "environment": f"One NAME=VALUE per line. Allowed names: {', '.join(ENVIRONMENT)}.",
    "server_count": f"Number of vLLM servers that share each step's prompts; at most {MAX_SERVERS}.",
    "server_gpus": "Tensor parallel × data parallel, on top of the trainer's GPUs unless they are shared.",
    "server_tensor_parallel": "Number of GPUs that each layer is split over; must divide the attention heads.",
    "server_data_parallel": "Copies of the model in one server. Only useful for mixture-of-experts models.",
    "server_shared": "Server and trainer share GPUs. The policy is sent as a LoRA: NCCL rejects two ranks on one GPU.",
    "server_gpu_ids": "By index, in the order of the servers. Leave empty for any free GPUs, which shortens queueing.",
    "server_port": "On loopback; other servers use the next ports. Leave empty for free ports in the host's range.",
    "server_attached": "One http://host:port per line, as seen from the host. The run doesn't start or check them.",
    "server_gpu_memory_utilization": "Share of each GPU's memory for vLLM, above 0 and at most 1.",
    "server_max_model_len": "Maximum tokens of prompt and completion. Leave empty for the model's context length.",
    "server_dtype": "Precision of the server's weights; auto uses the model's.",
    "server_enforce_eager": "No CUDA graphs: starts sooner, generates 5 to 10 times slower.",
    "server_all_graphs": "Also for batches larger than the run's: startup takes 3 to 15 s longer, without any benefit.",
    "server_keep_warm_minutes": (
        "How long servers stay up for your next run with the same model and settings, unless another run needs their "
        "GPUs. LoRA hot-swap only; 15 is usual, 0 stops them at once."
    ),
    "server_kv_cache_gib": (
        "Size on each GPU; replaces vLLM's own estimate. With too large a cache, the GPU runs out of memory."
    ),
    "server_tuned_lora": "Uses kernel configs tuned for the GPU if available, otherwise vLLM’s defaults.",
    "server_prefix_caching": "Computes the shared beginning of prompts only once.",
    "server_ready_timeout_s": "How long a server may take to become ready. A cold start takes 1 to 2 minutes.",
    "server_request_timeout_s": "How long the trainer waits for one step's completions.",
    "server_weight_sync": "NCCL streams all weights to one server; LoRA hot-swap sends an adapter to each server.",
    "use_lora": "Trains small matrices added to frozen weights, in a tenth of the memory. LoRA hot-swap needs it.",
    "lora_r": "Size of the matrices; larger ones can learn more. 8 to 64 is usual.",
    "lora_alpha": "The adapter is scaled by α / r. Usually twice the rank.",
    "lora_dropout": "Dropout on the adapter's input during training.",
    "lora_targets": "Modules that get an adapter, by the end of their names; or all-linear.",
    "per_device_train_batch_size": "Completions per pass on each process. Lower it if memory runs out.",
    "gradient_accumulation_steps": "Passes accumulated before each optimizer step.",
    "num_generations": "Group size: completions per prompt that are compared with each other; at least 2.",
    "max_completion_length": "Maximum tokens per completion.",
    "num_iterations": "Optimizer passes over each batch of completions.",
}

CHOICES: dict[str, tuple[tuple[str, str], ...]] = {
    "rollout": (
        (Rollout.TRANSFORMERS, "In the trainer, without vLLM"),
        (Rollout.COLOCATE, "vLLM inside the trainer, on its GPUs"),
        (Rollout.SERVER, "vLLM servers started by the run"),
        (ATTACHED, "External vLLM servers"),
    ),
    "strategy": (
        (Strategy.NONE, "One process"),
        (Strategy.DDP, "DDP: full copies"),
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
        (Quantization.NONE, "Unquantized"),
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
