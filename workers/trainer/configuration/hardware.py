"""A hardware profile as GRPOConfig settings: precision, optimizer, checkpointing, DeepSpeed, FSDP2, quantization.

They are plain dictionaries, so that all but the quantization can be tested without those libraries.
"""

from typing import Any

from workers.contract.memory.trainer import merges
from workers.contract.run.hardware import (
    ZERO,
    HardwareSpec,
    Offload,
    Optimizer,
    Precision,
    Quantization,
    Rollout,
    Strategy,
    precision_of,
)
from workers.contract.run.spec import RunSpec
from workers.contract.stack import deepspeed

OPTIMIZERS = {Optimizer.ADAMW_8BIT: "adamw_8bit", Optimizer.ADAFACTOR: "adafactor"}
CPU_SETTINGS: dict[str, Any] = {
    # TRL's defaults are meant for GPUs: on a CPU, bf16 autocast and recomputed activations only cost time.
    "bf16": False,
    "gradient_checkpointing": False,
    "dataloader_pin_memory": False,
}


def settings(run: RunSpec) -> dict[str, Any]:
    """Return the profile's settings as GRPOConfig arguments, with the run's own arguments taking precedence."""
    hardware = run.hardware
    # DeepSpeed steps on its own flat partitions; the fused kernel expects gradients in the model's layout.
    adamw = "adamw_torch" if hardware.strategy in ZERO else "adamw_torch_fused"
    config = {
        **_precision_flags(run),
        "optim": OPTIMIZERS.get(hardware.optimizer, adamw),
        "gradient_checkpointing": hardware.checkpoints_gradients,
        **_rollout_settings(hardware),
        **run.grpo,
    }
    if hardware.liger_kernels:
        config.setdefault("use_liger_kernel", True)
    if hardware.strategy in ZERO:
        config["deepspeed"] = deepspeed.config_of(hardware)
    if hardware.strategy is Strategy.FSDP2:
        # FSDP's own checkpointing doesn't gather each layer's parameters twice in the backward pass. But it wraps the
        # layers, so peft would find no adapter in them and save an empty one.
        uses_fsdp_checkpointing = bool(config["gradient_checkpointing"]) and run.lora is None
        config["fsdp"] = True
        config["fsdp_config"] = {
            "version": 2,
            "reshard_after_forward": True,
            "cpu_offload": hardware.offload is Offload.PARAMETERS,
            "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "state_dict_type": "FULL_STATE_DICT",
            "activation_checkpointing": uses_fsdp_checkpointing,
        }
        config["gradient_checkpointing"] = bool(config["gradient_checkpointing"]) and not uses_fsdp_checkpointing
    return config


def _precision_flags(run: RunSpec) -> dict[str, Any]:
    """Return both precision flags, and without GPUs CPU_SETTINGS, overriding TRL's defaults. If the run sets one flag,
    the profile doesn't set the other."""
    precision = precision_of(run.hardware, run.grpo)
    flags = {"bf16": precision is Precision.BF16, "fp16": precision is Precision.FP16}
    return flags if run.hardware.trainer_gpus else {**CPU_SETTINGS, **flags}


def _rollout_settings(hardware: HardwareSpec) -> dict[str, Any]:
    if hardware.rollout is Rollout.COLOCATE and hardware.colocate_max_model_len is not None:
        return {"vllm_max_model_length": hardware.colocate_max_model_len}
    if hardware.rollout is Rollout.SERVER and hardware.server is not None:
        # The other ranks wait for rank 0, which waits for the servers: its time-out must come before theirs.
        return {"ddp_timeout": max(1800, hardware.server.request_timeout_s + 300)}
    return {}


def loading_dtype(run: RunSpec, *, bf16: bool, fp16: bool) -> str | None:
    """Choose the dtype for loading the weights; return None for TRL's fp32. 16 bits are enough where fp32 weights would
    never be used: DeepSpeed casts them anyway and keeps its own fp32 copy, and a LoRA's frozen base is only read. They
    are not enough where the LoRA is repeatedly merged into the base for vLLM and unmerged: in 16 bits each merge would
    leave a residue."""
    hardware, half = run.hardware, "bfloat16" if bf16 else "float16" if fp16 else None
    if half is None or hardware.strategy is Strategy.FSDP2:  # shards must have one dtype, which is the adapters' fp32
        return None
    if hardware.quantization is not Quantization.NONE or hardware.strategy in ZERO:
        return half
    return half if run.lora is not None and hardware.trainer_gpus and not merges(hardware) else None


def quantization(run: RunSpec) -> Any:
    """Return a BitsAndBytesConfig, or None for a profile without quantization."""
    bits = run.hardware.quantization
    if bits is Quantization.NONE:
        return None
    import torch
    from transformers import BitsAndBytesConfig

    if bits is Quantization.INT8:
        return BitsAndBytesConfig(load_in_8bit=True)
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    )


def restore_rotary_frequencies(model: Any) -> int:
    """Recompute a model's rotary frequencies that aren't fp32; return the number of modules changed. Under ZeRO-3,
    transformers builds the model inside DeepSpeed's zero.Init, where new floating-point tensors get the dtype of the
    weights. In bf16 the frequencies lose sixteen bits, and at positions of a few hundred the angles are off by tenths
    of a radian: the policy differs from the one that vLLM samples from and that is served later. With a 3B model, its
    log-probabilities differed from vLLM's by 0.097 per token, where 0.02 is usual. Call this outside of any context.
    Raises TypeError for a rotary embedding that isn't built from its config as in transformers."""
    import torch

    restored = 0
    for module in model.modules():
        buffers = module.named_buffers(recurse=False)
        rounded = [b for name, b in buffers if name.endswith("inv_freq") and b.dtype != torch.float32]
        if rounded:
            for name, buffer in type(module)(config=module.config).named_buffers(recurse=False):
                module._buffers[name] = buffer.to(rounded[0].device)
            restored += 1
    return restored
