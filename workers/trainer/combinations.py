"""What a hardware profile asks for and the stack can't do, as sentences, before anything slow is imported.

A second line behind the profile form: a spec may be written by hand, and a run's own settings (LoRA or not) decide too.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

from workers.contract import (
    ZERO,
    AttemptSpec,
    HardwareSpec,
    Offload,
    Optimizer,
    Precision,
    Quantization,
    Rollout,
    RunSpec,
    ServerSpec,
    Strategy,
    WeightSync,
    commands,
    is_address,
)


def problem(spec: AttemptSpec) -> str | None:
    """The first one found."""
    run = spec.run
    checks = (_processes, _strategy, _offload, _numbers, _quantization, _colocate, _environment)
    found = [sentence for check in checks for sentence in check(run)]
    if run.hardware.rollout is Rollout.SERVER:
        found += _server(run, ports=len(spec.placement.ports))
    found += _packages(run)
    return found[0] if found else None


def _processes(run: RunSpec) -> Iterator[str]:
    hardware = run.hardware
    if hardware.processes < 1:
        yield f"hardware.processes must be at least 1, not {hardware.processes}."
    if hardware.trainer_gpus and hardware.trainer_gpus != hardware.processes:
        yield (
            f"Each trainer process takes one GPU: {hardware.processes} can't share the training on "
            f"{hardware.trainer_gpus} GPUs. Set both to the same number."
        )


def _strategy(run: RunSpec) -> Iterator[str]:
    hardware = run.hardware
    if hardware.strategy is Strategy.FSDP2 and hardware.trainer_gpus == 0:
        yield "FSDP2 needs GPUs: on the CPU it would silently be plain DDP."
    if hardware.strategy is Strategy.FSDP2 and hardware.processes < 2:
        yield "FSDP2 shards over processes, and there is one. Use more GPUs, or ZeRO, which can offload with one too."
    if hardware.strategy is Strategy.FSDP2 and hardware.optimizer is Optimizer.ADAMW_8BIT:
        yield "adamw_8bit can't hold the sharded parameters of FSDP2. Use adamw, or ZeRO-1 or 2."


def _offload(run: RunSpec) -> Iterator[str]:
    offload, strategy = run.hardware.offload, run.hardware.strategy
    if offload is Offload.OPTIMIZER and strategy not in ZERO:
        yield f"Only DeepSpeed ZeRO keeps the optimizer alone in the host's memory; the strategy is {strategy}."
    if offload is Offload.PARAMETERS and strategy not in (Strategy.ZERO3, Strategy.FSDP2):
        yield f"Only ZeRO-3 and FSDP2 keep parameters in the host's memory; the strategy is {strategy}."
    if strategy in ZERO and offload is not Offload.NONE:
        if run.hardware.optimizer is not Optimizer.ADAMW:
            yield f"ZeRO's offloaded optimizer is DeepSpeed's own CPU Adam, which {run.hardware.optimizer} is not."
        if "optim" in run.grpo:
            yield "grpo.optim can't be set here: ZeRO's offloaded optimizer is DeepSpeed's own CPU Adam."


def _numbers(run: RunSpec) -> Iterator[str]:
    hardware = run.hardware
    if hardware.trainer_gpus == 0:
        if hardware.precision is Precision.FP16:
            yield "fp16 needs a GPU: its loss scaling isn't there on the CPU. Use fp32 or bf16."
        if hardware.liger_kernels:
            yield "Liger's kernels run on GPUs only; this profile trains on the CPU."
        if hardware.memory_cap_gib is not None:
            yield "A cap on GPU memory needs a GPU; this profile trains on the CPU."
    if hardware.memory_cap_gib is not None and hardware.memory_cap_gib <= 0:
        yield f"The cap on GPU memory must be above 0 GiB, not {hardware.memory_cap_gib:g}."


def _quantization(run: RunSpec) -> Iterator[str]:
    hardware, bits = run.hardware, run.hardware.quantization
    if bits is Quantization.NONE:
        return
    if run.lora is None:
        yield f"A {bits} model is frozen: it can only be trained through a LoRA, and the run has none."
    if hardware.strategy in (Strategy.ZERO3, Strategy.FSDP2):
        yield f"{hardware.strategy} can't shard the packed weights of a {bits} model. Use ddp, zero1 or zero2."
    if hardware.rollout is Rollout.COLOCATE and bits is Quantization.INT8:
        yield "vLLM inside the trainer can't take 8-bit weights. Use 4bit, a server with LoRA hot-swap, or no vLLM."
    if hardware.rollout is Rollout.COLOCATE and hardware.colocate_sleep:
        yield "vLLM's sleep mode drops what it needs to read 4-bit weights again. Turn sleep mode off."
    if hardware.vllm_server and hardware.vllm_server.weight_sync is WeightSync.NCCL:
        yield f"The packed weights of a {bits} model can't be streamed to a server over NCCL. Use the LoRA hot-swap."


def _colocate(run: RunSpec) -> Iterator[str]:
    hardware = run.hardware
    if hardware.rollout is not Rollout.COLOCATE:
        return
    if hardware.trainer_gpus == 0:
        yield "vLLM inside the trainer (colocate) needs a GPU; this profile gives the trainer none."
    width = hardware.colocate_tensor_parallel
    if width < 1 or hardware.processes % width:
        yield f"colocate_tensor_parallel ({width}) must divide the number of trainer processes ({hardware.processes})."
    share = hardware.colocate_memory_utilization
    if not 0 < share <= 1:
        yield f"colocate_memory_utilization must be above 0 and at most 1, not {share:g}."
    allocator = hardware.environment.get("PYTORCH_CUDA_ALLOC_CONF", "")
    if hardware.colocate_sleep and "expandable_segments:True" in allocator:
        yield "vLLM's sleep mode can't be combined with expandable_segments:True in PYTORCH_CUDA_ALLOC_CONF."


def _environment(run: RunSpec) -> Iterator[str]:
    for name, value in run.hardware.environment.items():
        if wrong := commands.environment_problem(name, value):
            yield wrong


def _server(run: RunSpec, *, ports: int) -> Iterator[str]:
    server = run.hardware.server
    if server is None or (not server.attached and not ports):
        yield "Rollouts come from a vLLM server, but the spec has no server or no port for it."
        return
    for address in server.attached:
        if not is_address(address):
            yield f"{address!r} is no address of a vLLM server: it must be http://host:port."
    if not server.attached and ports < server.count:
        yield f"The spec has {server.count} vLLM servers, but ports for {ports}."
    if server.weight_sync is WeightSync.LORA and run.lora is None:
        yield "The server gets the policy as a LoRA adapter, but the run trains no LoRA."
    if server.weight_sync is WeightSync.NCCL:
        yield from _over_nccl(run.hardware, server)


def _over_nccl(hardware: HardwareSpec, server: ServerSpec) -> Iterator[str]:
    if server.servers > 1:
        yield f"TRL sends weights over NCCL to one server, and there are {server.servers}. Use the LoRA hot-swap."
    if server.shared and not server.attached:
        yield "NCCL refuses a server on the trainer's own GPU. Use the LoRA hot-swap, or colocate."
    if hardware.trainer_gpus == 0 and _installed("vllm"):
        yield "Weights go to the server over NCCL, which needs a GPU on the trainer's side. Use the LoRA hot-swap."


def _packages(run: RunSpec) -> Iterator[str]:
    hardware, server = run.hardware, run.hardware.vllm_server
    if server is not None and server.weight_sync is WeightSync.NCCL and not _installed("vllm"):
        yield "Weights go to the server over NCCL, but vllm is not installed beside the trainer for it."
    if hardware.rollout is Rollout.COLOCATE and not _installed("vllm"):
        yield "vLLM shall run inside the trainer (colocate), but it is not installed in the trainer's interpreter."
    if hardware.strategy in ZERO and not _installed("deepspeed"):
        yield f"{hardware.strategy} needs DeepSpeed, which is not installed in the trainer's interpreter."
    bits = hardware.quantization is not Quantization.NONE or hardware.optimizer is Optimizer.ADAMW_8BIT
    if bits and not _installed("bitsandbytes"):
        yield "8- and 4-bit training needs bitsandbytes, which is not installed in the trainer's interpreter."
    if hardware.liger_kernels and not _installed("liger_kernel"):
        yield "Liger's kernels need liger-kernel, which is not installed in the trainer's interpreter."


def _installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None
