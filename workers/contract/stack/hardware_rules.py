"""Settings of hardware profiles that the training stack doesn't support."""

import re
from collections.abc import Iterator

from workers.contract.run.hardware import (
    ZERO,
    HardwareSpec,
    Offload,
    Optimizer,
    Precision,
    Quantization,
    Rollout,
    Strategy,
    WeightSync,
)
from workers.contract.run.problem import Problem
from workers.contract.run.spec import LoraSpec, RunSpec
from workers.contract.stack.commands import LORA_RANKS, environment_problem
from workers.contract.stack.deepspeed import deepspeed_problems, number_problems
from workers.contract.stack.server_rules import count, pin_problems, quote, servers
from workers.contract.wire.names import MAX_GPUS


def hardware_problems(spec: HardwareSpec) -> list[Problem]:
    """List the problems of a profile that would make any run fail."""
    problems = [*_processes(spec), *pin_problems(spec), *_sharding(spec), *_numbers(spec), *_environment(spec)]
    problems += deepspeed_problems(spec)
    if spec.rollout == Rollout.COLOCATE:
        problems += _colocate(spec)
    if spec.rollout == Rollout.SERVER:
        no_server = Problem("rollout", "A vLLM server needs its own settings.")
        problems += servers(spec, spec.server) if spec.server else [no_server]
    return problems


def problems_with_lora(spec: HardwareSpec, lora: LoraSpec | None) -> list[Problem]:
    return [*hardware_problems(spec), *lora_problems(spec, lora)]


def run_problems(run: RunSpec) -> list[Problem]:
    """List the problems of a run's hardware, LoRA, own GRPOConfig arguments and start from a checkpoint."""
    own_numbers = number_problems(run.hardware, run.grpo)
    start = start_problems(run.hardware) if run.start_from else ()
    return [*problems_with_lora(run.hardware, run.lora), *_own_optimizer(run), *own_numbers, *start]


def start_problems(spec: HardwareSpec) -> Iterator[Problem]:
    if spec.strategy in (Strategy.ZERO3, Strategy.FSDP2):
        yield Problem(
            "start_from",
            f"With {spec.strategy}, no rank holds the whole model, so it can't start from a checkpoint's weights.",
            "Choose a profile with DDP, ZeRO-1 or ZeRO-2, or use the checkpoint's folder as the model.",
        )


def _own_optimizer(run: RunSpec) -> Iterator[Problem]:
    if "optim" in run.grpo and run.hardware.strategy in ZERO and run.hardware.offload != Offload.NONE:
        yield Problem(
            "optim", "ZeRO's offloaded optimizer is DeepSpeed's own CPU Adam, so optim can't be set.", "Clear it."
        )


def _processes(spec: HardwareSpec) -> Iterator[Problem]:
    if spec.trainer_gpus < 0:
        yield Problem("trainer_gpus", "The number of GPUs can't be negative.")
    elif spec.trainer_gpus > MAX_GPUS:
        yield Problem("trainer_gpus", f"A host has at most {MAX_GPUS} GPUs.")
    if spec.processes < 1:
        yield Problem("processes", "There must be at least one trainer process.")
    elif spec.processes > MAX_GPUS:
        yield Problem("processes", f"There can be at most {MAX_GPUS} trainer processes.")
    elif spec.trainer_gpus > 0 and spec.processes != spec.trainer_gpus:
        yield Problem(
            "processes", f"With {count(spec.trainer_gpus)} there must be as many processes, one for each GPU."
        )
    if spec.cpu_slots < 0:
        yield Problem("cpu_slots", "The number of slots can't be negative.")
    elif spec.trainer_gpus == 0 and spec.cpu_slots < 1:
        yield Problem("cpu_slots", "Training on the CPU needs at least one CPU slot.")
    if spec.threads is not None and spec.threads < 1:
        yield Problem("threads", "There must be at least one thread.")


def _sharding(spec: HardwareSpec) -> Iterator[Problem]:
    strategy, offload = spec.strategy, spec.offload
    if strategy == Strategy.NONE and spec.processes > 1:
        yield Problem("strategy", f"{spec.processes} processes have to share the training. Choose DDP, ZeRO or FSDP2.")
    if strategy == Strategy.FSDP2 and spec.trainer_gpus == 0:
        yield Problem(
            "strategy", "FSDP2 needs GPUs; on the CPU it would silently become plain DDP.", "Choose DDP or ZeRO."
        )
    elif strategy == Strategy.FSDP2 and spec.processes == 1:
        yield Problem("strategy", "FSDP2 shards over processes, but there is only one.", "ZeRO can offload with one.")
    if offload == Offload.NONE:
        return
    if offload == Offload.OPTIMIZER and strategy not in ZERO:
        yield Problem(
            "offload", "Only ZeRO can keep just the optimizer states in the host's memory.", "Choose ZeRO-1, 2 or 3."
        )
    if offload == Offload.PARAMETERS and strategy not in (Strategy.ZERO3, Strategy.FSDP2):
        yield Problem("offload", "Only ZeRO-3 and FSDP2 keep parameters in the host's memory.")
    if offload == Offload.PARAMETERS and spec.trainer_gpus == 0:
        yield Problem("offload", "Training on the CPU already has its parameters in the host's memory.")
    if spec.optimizer != Optimizer.ADAMW:
        yield Problem("optimizer", "Offloaded states must be AdamW's, on the CPU.", "Choose AdamW, or offload nothing.")


def _numbers(spec: HardwareSpec) -> Iterator[Problem]:
    if spec.memory_cap_gib is not None and not spec.memory_cap_gib > 0:
        yield Problem("memory_cap_gib", "The cap must be above 0 GiB; leave it empty for none.")
    if spec.trainer_gpus == 0:
        if spec.memory_cap_gib is not None:
            yield Problem("memory_cap_gib", "A cap on GPU memory needs a GPU, but this profile trains on the CPU.")
        if spec.precision == Precision.FP16:
            yield Problem("precision", "fp16 needs a GPU for its loss scaling.", "Choose fp32 or bf16.")
        if spec.liger_kernels:
            yield Problem("liger_kernels", "Liger's kernels need a GPU, but this profile trains on the CPU.")
    if spec.strategy == Strategy.FSDP2 and spec.optimizer == Optimizer.ADAMW_8BIT:
        yield Problem("optimizer", "8-bit AdamW doesn't support FSDP2's shards.", "Choose AdamW or ZeRO.")
    if spec.quantization == Quantization.NONE:
        return
    if spec.strategy in (Strategy.ZERO3, Strategy.FSDP2):
        yield Problem("quantization", "ZeRO-3 and FSDP2 can't shard packed weights.", "Choose DDP, ZeRO-1 or ZeRO-2.")
    if spec.rollout == Rollout.COLOCATE and spec.quantization == Quantization.INT8:
        yield Problem("quantization", "vLLM inside the trainer can't use 8-bit weights.", "Choose 4-bit or a server.")
    if spec.rollout == Rollout.COLOCATE and spec.colocate_sleep:
        yield Problem(
            "colocate_sleep", "A sleeping vLLM discards what it needs to load packed weights again.", "Turn sleep off."
        )
    if spec.vllm_server and spec.vllm_server.weight_sync == WeightSync.NCCL:
        yield Problem(
            "quantization", "Packed weights can't be streamed over NCCL.", "Send the LoRA adapter over HTTP instead."
        )


def _environment(spec: HardwareSpec) -> Iterator[Problem]:
    for name, value in spec.environment.items():
        if not isinstance(value, str):
            yield Problem("environment", f"{name} must be a string, not {value!r}.")
        elif cause := environment_problem(name, value):
            yield Problem("environment", cause)
    threads = spec.environment.get("OMP_NUM_THREADS")
    if spec.threads is not None and threads is not None and threads != str(spec.threads):
        yield Problem(
            "environment", f"OMP_NUM_THREADS={threads} contradicts {spec.threads} threads.", "Remove one of them."
        )
    if "expandable_segments:True" not in str(spec.environment.get("PYTORCH_CUDA_ALLOC_CONF", "")):
        return
    if spec.rollout == Rollout.COLOCATE and spec.colocate_sleep:
        yield Problem(
            "environment",
            "expandable_segments:True can't be combined with vLLM's sleep mode.",
            "Remove one of them.",
        )
    server = spec.vllm_server
    if server and not server.attached and server.tensor_parallel > 1:
        yield Problem(
            "environment",
            "expandable_segments:True crashes a tensor-parallel vLLM server while it captures CUDA graphs, because its "
            "GPUs can't share such memory.",
            "Remove it.",
        )


def _colocate(spec: HardwareSpec) -> Iterator[Problem]:
    if spec.trainer_gpus == 0:
        yield Problem("rollout", "vLLM inside the trainer needs a GPU to train on.")
    if not 0 < spec.colocate_memory_utilization < 1:
        yield Problem(
            "colocate_memory_utilization", "The share must be above 0 and below 1, since the trainer needs some too."
        )
    width = spec.colocate_tensor_parallel
    if width < 1 or spec.processes % width:
        yield Problem(
            "colocate_tensor_parallel", f"{spec.processes} trainer processes can't be split into groups of {width}."
        )
    if spec.colocate_max_model_len is not None and spec.colocate_max_model_len < 1:
        yield Problem("colocate_max_model_len", "The length must be at least 1.")


def lora_problems(spec: HardwareSpec, lora: LoraSpec | None) -> Iterator[Problem]:
    server = spec.vllm_server
    swaps = server is not None and server.weight_sync == WeightSync.LORA
    if lora is None:
        if spec.quantization != Quantization.NONE:
            sentence = f"A base model in {spec.quantization} is frozen, so only a LoRA on it can be trained."
            yield Problem("quantization", sentence, "Train a LoRA, or choose no quantization.")
        if swaps:
            sentence = "The hot-swap sends a LoRA adapter to vLLM, but all weights are trained."
            yield Problem("server_weight_sync", sentence, "Train a LoRA, or send the weights over NCCL.")
        return
    if lora.r < 1:
        yield Problem("lora_r", "The rank must be at least 1.")
    elif swaps and lora.r > LORA_RANKS[-1]:
        yield Problem("lora_r", f"vLLM serves adapters up to rank {LORA_RANKS[-1]}.", "Use a smaller rank.")
    if lora.alpha < 1:
        yield Problem("lora_alpha", "α must be at least 1.")
    if not 0 <= lora.dropout < 1:
        yield Problem("lora_dropout", "The share must be at least 0 and below 1.")
    if not lora.target_modules:
        yield Problem("lora_targets", "No LoRA target is named.", "Enter at least one module, such as q_proj.")
    if "lm_head" in lora.target_modules:
        sentence = (
            "TRL refuses a LoRA on lm_head: it reads that layer's weights directly, so the LoRA would never train."
        )
        yield Problem("lora_targets", sentence, "Remove lm_head.")
    invalid = [name for name in lora.target_modules if not re.fullmatch(r"[A-Za-z0-9_.-]{1,100}", name)]
    if invalid:
        yield Problem("lora_targets", f"{quote(invalid[0])} is not a module's name.")
