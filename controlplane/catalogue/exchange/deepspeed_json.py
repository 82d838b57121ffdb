"""DeepSpeed JSON: sharding and sizes become settings, and other tuned values are kept as the profile's config."""

from collections.abc import Mapping
from typing import Any

from controlplane.catalogue.exchange.keys import (
    Format,
    Leave,
    Rule,
    Take,
    auto,
    flag,
    integer,
    number,
    put,
    text,
    unchanged,
)
from controlplane.catalogue.exchange.reading import DocumentKind, KeyVerdict, Reading
from workers.contract.run.hardware import HardwareSpec, Offload, Strategy
from workers.contract.stack import deepspeed

ACTIVATIONS = (
    *("partition_activations", "cpu_checkpointing", "contiguous_memory_optimization", "number_checkpoints"),
    *("synchronize_checkpoint_boundary", "profile"),
)
SCHEDULERS = {"WarmupLR": "constant_with_warmup", "WarmupDecayLR": "linear", "WarmupCosineLR": "cosine"}
TUNED_PREFIX = "_tuned."
"""Prefix of the paths of values that are kept as a DeepSpeed config."""
TABLE: dict[str, Rule] = {
    "train_micro_batch_size_per_gpu": Take("grpo.per_device_train_batch_size", auto(integer)),
    "gradient_accumulation_steps": Take("grpo.gradient_accumulation_steps", auto(integer)),
    "train_batch_size": Take("_train_batch_size", auto(integer)),
    "gradient_clipping": Take("grpo.max_grad_norm", auto(number)),
    "optimizer.type": Take("_optimizer", text),
    "optimizer.params.lr": Take("grpo.learning_rate", auto(number)),
    "optimizer.params.weight_decay": Take("grpo.weight_decay", auto(number)),
    "optimizer.params.eps": Take("grpo.adam_epsilon", auto(number)),
    "optimizer.params.betas": Take("_betas", auto(unchanged)),
    "optimizer.params.torch_adam": Leave("The offloaded optimizer is DeepSpeed's own."),
    "optimizer.params.adam_w_mode": Leave("The optimizer is AdamW."),
    "scheduler.type": Take("_scheduler", text),
    "scheduler.params.warmup_num_steps": Take("grpo.warmup_steps", auto(integer)),
    "scheduler.params.total_num_steps": Leave("This follows from the run's steps."),
    "scheduler.params.warmup_min_lr": Leave("The warm-up starts at 0."),
    "scheduler.params.warmup_max_lr": Leave("This is the learning rate."),
    "scheduler.params.warmup_type": Leave("The warm-up is linear."),
    "fp16.enabled": Take("_fp16", auto(flag)),
    "bf16.enabled": Take("_bf16", auto(flag)),
    "zero_optimization.stage": Take("_stage", integer),
    **{f"checkpoint.{name}": Take(f"{TUNED_PREFIX}activation_checkpointing.{name}", unchanged) for name in ACTIVATIONS},
}
SECTIONS = frozenset(
    {
        *("optimizer", "optimizer.params", "scheduler", "scheduler.params"),
        *("fp16", "bf16", "zero_optimization", "checkpoint", "activation_checkpointing"),
    }
)
SIGNS = frozenset({"zero_optimization", "train_micro_batch_size_per_gpu", "train_batch_size"})


def otherwise(key: str, _fields: Mapping[str, str]) -> Rule | None:
    top = key.partition(".")[0]
    if top in deepspeed.REFUSED_KEYS:
        return Leave(deepspeed.REFUSED_KEYS[top])
    return (
        Take(TUNED_PREFIX + key, unchanged)
        if top in deepspeed.ALLOWED_KEYS and not key.startswith("optimizer.")
        else None
    )


def finish(reading: Reading) -> None:
    tuned_config = _pop_tuned_config(reading)
    stage = reading.pop("_stage")
    if stage is None and "zero_optimization" not in tuned_config:
        message = "The document has no zero_optimization; choose one of the ZeRO strategies."
        reading.note(KeyVerdict.ASSUMED, "zero_optimization", message, path="hardware.strategy")
        _training(reading, Offload.OPTIMIZER)
        if tuned_config:
            reading.put("hardware.deepspeed", tuned_config, "the whole document")
        return
    if stage not in (1, 2, 3):
        message = f"ZeRO stage {stage or 0} shards nothing: choose ZeRO-1, 2 or 3, or a strategy without DeepSpeed."
        reading.note(KeyVerdict.CONTRADICTION, "zero_optimization.stage", message, path="hardware.strategy")
        for path in ("_optimizer", "_betas", "_fp16", "_bf16", "_scheduler", "_train_batch_size"):
            reading.pop(path)
        return
    strategy = Strategy(f"zero{stage}")
    tuned_config.setdefault("zero_optimization", {})["stage"] = stage
    offload = deepspeed.offload_in(tuned_config["zero_optimization"])
    reading.put("hardware.strategy", strategy, "zero_optimization.stage")
    if offload != Offload.NONE:
        reading.put("hardware.offload", offload, "zero_optimization.offload_optimizer")
    _training(reading, offload)
    if tuned_config.get("steps_per_print") == deepspeed.STEPS_PER_PRINT:
        del tuned_config["steps_per_print"]
    hardware = HardwareSpec("", trainer_gpus=1, strategy=strategy, offload=offload, deepspeed=tuned_config)
    if any(deepspeed.deepspeed_problems(hardware)) or deepspeed.config_of(hardware) != deepspeed.usual_config(hardware):
        reading.put("hardware.deepspeed", tuned_config, "the whole document")


def _training(reading: Reading, offload: Offload) -> None:
    _precision(reading)
    _optimizer(reading, offload)
    _scheduler(reading)
    _batch(reading)


def _pop_tuned_config(reading: Reading) -> dict[str, Any]:
    """Remove and return the tuned config: the keys that are neither settings here nor refused."""
    tuned_config: dict[str, Any] = {}
    moved_keys = []
    for path in [path for path in reading.values if path.startswith(TUNED_PREFIX)]:
        key = reading.sources.get(path, "")
        name = path.removeprefix(TUNED_PREFIX)
        if key.startswith("checkpoint.") and name.startswith("activation_checkpointing."):
            moved_keys.append(name.rpartition(".")[2])
        put(tuned_config, name, reading.pop(path))
    if moved_keys:
        message = f"DeepSpeed reads {', '.join(moved_keys)} under activation_checkpointing; moved there."
        reading.note(KeyVerdict.ASSUMED, "checkpoint", message)
    if "activation_checkpointing" in tuned_config:
        message = (
            "Kept, but it affects only layers that use DeepSpeed's checkpointing; transformers' models use torch's."
        )
        reading.note(KeyVerdict.ASSUMED, "activation_checkpointing", message, path="hardware.deepspeed")
    return tuned_config


def _precision(reading: Reading) -> None:
    flags = {name: reading.pop(f"_{name}") for name in ("bf16", "fp16")}
    if all(flags.values()):
        message = "bf16 and fp16 are both on; bf16 is kept."
        reading.note(KeyVerdict.CONTRADICTION, "fp16.enabled", message, path="hardware.precision")
    precision = next((name for name, enabled in flags.items() if enabled), None)
    if precision:
        reading.put("hardware.precision", precision, f"{precision}.enabled")


def _optimizer(reading: Reading, offload: Offload) -> None:
    kind, betas = reading.pop("_optimizer"), reading.pop("_betas")
    if isinstance(betas, list) and len(betas) == 2 and all(isinstance(beta, float) for beta in betas):
        reading.put("grpo.adam_beta1", betas[0], "optimizer.params.betas")
        reading.put("grpo.adam_beta2", betas[1], "optimizer.params.betas")
    if kind is None:
        return
    if kind.lower() not in ("adamw", "adam"):
        message = f"DeepSpeed's {kind[:40]} isn't supported; the trainer's AdamW is used."
        reading.note(KeyVerdict.LEFT_OUT, "optimizer.type", message)
    elif offload == Offload.NONE:
        message = "Without offloading, the trainer's own AdamW is used with these values."
        reading.note(KeyVerdict.ASSUMED, "optimizer", message)


def _scheduler(reading: Reading) -> None:
    kind = reading.pop("_scheduler")
    if kind in SCHEDULERS:
        reading.put("grpo.lr_scheduler_type", SCHEDULERS[kind], "scheduler.type")
        message = f"{kind} becomes the run's scheduler {SCHEDULERS[kind]}."
        reading.note(KeyVerdict.ASSUMED, "scheduler.type", message, path="grpo.lr_scheduler_type")
    elif kind:
        reading.note(KeyVerdict.LEFT_OUT, "scheduler.type", deepspeed.REFUSED_KEYS["scheduler"])


def _batch(reading: Reading) -> None:
    train_batch_size, sizes = reading.values.get("_train_batch_size"), reading.sizes
    if train_batch_size is None or sizes is None:
        return
    reading.pop("_train_batch_size")
    per_process = max(sizes[0] * sizes[1], 1)
    if train_batch_size < 1 or train_batch_size % per_process:
        message = f"{train_batch_size} is not micro batch {sizes[0]} × accumulation {sizes[1]} × a number of processes."
        reading.note(KeyVerdict.CONTRADICTION, "train_batch_size", message, path="grpo.per_device_train_batch_size")
        return
    processes = train_batch_size // per_process
    reading.put("hardware.processes", processes, "train_batch_size")
    reading.put("hardware.trainer_gpus", processes, "train_batch_size")
    message = f"The number of processes is {train_batch_size} ÷ ({sizes[0]} × {sizes[1]}) = {processes}."
    reading.note(KeyVerdict.ASSUMED, "train_batch_size", message, path="hardware.processes")


FORMAT = Format(DocumentKind.DEEPSPEED, TABLE, SECTIONS, otherwise, finish, SIGNS)
