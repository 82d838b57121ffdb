"""A DeepSpeed JSON: its sharding and numbers become settings, and its tuned rest is kept as a part of the profile."""

from collections.abc import Mapping
from typing import Any

from controlplane.catalogue.exchange.keys import Format, Leave, Rule, Take, auto, flag, number, put, same, text, whole
from controlplane.catalogue.exchange.reading import DocumentKind, KeyVerdict, Reading
from workers.contract.run.hardware import HardwareSpec, Offload, Strategy
from workers.contract.stack import deepspeed

ACTIVATIONS = (
    *("partition_activations", "cpu_checkpointing", "contiguous_memory_optimization", "number_checkpoints"),
    *("synchronize_checkpoint_boundary", "profile"),
)
SCHEDULERS = {"WarmupLR": "constant_with_warmup", "WarmupDecayLR": "linear", "WarmupCosineLR": "cosine"}
KEEP = "_tuned."
"""The start of the paths of keys that stay a DeepSpeed config."""
TABLE: dict[str, Rule] = {
    "train_micro_batch_size_per_gpu": Take("grpo.per_device_train_batch_size", auto(whole)),
    "gradient_accumulation_steps": Take("grpo.gradient_accumulation_steps", auto(whole)),
    "train_batch_size": Take("_train_batch_size", auto(whole)),
    "gradient_clipping": Take("grpo.max_grad_norm", auto(number)),
    "optimizer.type": Take("_optimizer", text),
    "optimizer.params.lr": Take("grpo.learning_rate", auto(number)),
    "optimizer.params.weight_decay": Take("grpo.weight_decay", auto(number)),
    "optimizer.params.eps": Take("grpo.adam_epsilon", auto(number)),
    "optimizer.params.betas": Take("_betas", auto(same)),
    "optimizer.params.torch_adam": Leave("The offloaded optimizer is DeepSpeed's own."),
    "optimizer.params.adam_w_mode": Leave("The optimizer is AdamW."),
    "scheduler.type": Take("_scheduler", text),
    "scheduler.params.warmup_num_steps": Take("grpo.warmup_steps", auto(whole)),
    "scheduler.params.total_num_steps": Leave("It follows from the run's steps."),
    "scheduler.params.warmup_min_lr": Leave("The warm-up starts at 0."),
    "scheduler.params.warmup_max_lr": Leave("It is the learning rate."),
    "scheduler.params.warmup_type": Leave("The warm-up is linear."),
    "fp16.enabled": Take("_fp16", auto(flag)),
    "bf16.enabled": Take("_bf16", auto(flag)),
    "zero_optimization.stage": Take("_stage", whole),
    **{f"checkpoint.{name}": Take(f"{KEEP}activation_checkpointing.{name}", same) for name in ACTIVATIONS},
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
    return Take(KEEP + key, same) if top in deepspeed.ALLOWED_KEYS and not key.startswith("optimizer.") else None


def finish(reading: Reading) -> None:
    tuned = _tuned(reading)
    stage = reading.pop("_stage")
    if stage is None and "zero_optimization" not in tuned:
        text = "It has no zero_optimization: choose one of the ZeRO strategies for it."
        reading.note(KeyVerdict.ASSUMED, "zero_optimization", text, path="hardware.strategy")
        _training(reading, Offload.OPTIMIZER)
        if tuned:
            reading.put("hardware.deepspeed", tuned, "the whole document")
        return
    if stage not in (1, 2, 3):
        text = f"ZeRO stage {stage or 0} shards nothing: choose ZeRO-1, 2 or 3, or leave DeepSpeed out."
        reading.note(KeyVerdict.CONTRADICTION, "zero_optimization.stage", text, path="hardware.strategy")
        for path in ("_optimizer", "_betas", "_fp16", "_bf16", "_scheduler", "_train_batch_size"):
            reading.pop(path)
        return
    strategy = Strategy(f"zero{stage}")
    tuned.setdefault("zero_optimization", {})["stage"] = stage
    offload = deepspeed.offload_in(tuned["zero_optimization"])
    reading.put("hardware.strategy", strategy, "zero_optimization.stage")
    if offload != Offload.NONE:
        reading.put("hardware.offload", offload, "zero_optimization.offload_optimizer")
    _training(reading, offload)
    if tuned.get("steps_per_print") == deepspeed.STEPS_PER_PRINT:
        del tuned["steps_per_print"]
    hardware = HardwareSpec("", trainer_gpus=1, strategy=strategy, offload=offload, deepspeed=tuned)
    if any(deepspeed.deepspeed_problems(hardware)) or deepspeed.config_of(hardware) != deepspeed.usual_config(hardware):
        reading.put("hardware.deepspeed", tuned, "the whole document")


def _training(reading: Reading, offload: Offload) -> None:
    _precision(reading)
    _optimizer(reading, offload)
    _scheduler(reading)
    _batch(reading)


def _tuned(reading: Reading) -> dict[str, Any]:
    """Take out the tuned part: keys that are neither settings here nor refused."""
    tuned: dict[str, Any] = {}
    moved = []
    for path in [path for path in reading.values if path.startswith(KEEP)]:
        key = reading.sources.get(path, "")
        name = path.removeprefix(KEEP)
        if key.startswith("checkpoint.") and name.startswith("activation_checkpointing."):
            moved.append(name.rpartition(".")[2])
        put(tuned, name, reading.pop(path))
    if moved:
        text = f"DeepSpeed reads {', '.join(moved)} under activation_checkpointing: moved there."
        reading.note(KeyVerdict.ASSUMED, "checkpoint", text)
    if "activation_checkpointing" in tuned:
        text = "Kept. It acts on layers that checkpoint by DeepSpeed; transformers' models checkpoint by torch instead."
        reading.note(KeyVerdict.ASSUMED, "activation_checkpointing", text, path="hardware.deepspeed")
    return tuned


def _precision(reading: Reading) -> None:
    flags = {name: reading.pop(f"_{name}") for name in ("bf16", "fp16")}
    if all(flags.values()):
        text = "bf16 and fp16 are both on; bf16 is kept."
        reading.note(KeyVerdict.CONTRADICTION, "fp16.enabled", text, path="hardware.precision")
    on = next((name for name, enabled in flags.items() if enabled), None)
    if on:
        reading.put("hardware.precision", on, f"{on}.enabled")


def _optimizer(reading: Reading, offload: Offload) -> None:
    kind, betas = reading.pop("_optimizer"), reading.pop("_betas")
    if isinstance(betas, list) and len(betas) == 2 and all(isinstance(beta, float) for beta in betas):
        reading.put("grpo.adam_beta1", betas[0], "optimizer.params.betas")
        reading.put("grpo.adam_beta2", betas[1], "optimizer.params.betas")
    if kind is None:
        return
    if kind.lower() not in ("adamw", "adam"):
        text = f"DeepSpeed's {kind[:40]} isn't offered; the trainer's AdamW is used."
        reading.note(KeyVerdict.LEFT_OUT, "optimizer.type", text)
    elif offload == Offload.NONE:
        text = "Without offload the trainer's own AdamW is used, with these numbers."
        reading.note(KeyVerdict.ASSUMED, "optimizer", text)


def _scheduler(reading: Reading) -> None:
    kind = reading.pop("_scheduler")
    if kind in SCHEDULERS:
        reading.put("grpo.lr_scheduler_type", SCHEDULERS[kind], "scheduler.type")
        text = f"{kind} is the run's own scheduler {SCHEDULERS[kind]}."
        reading.note(KeyVerdict.ASSUMED, "scheduler.type", text, path="grpo.lr_scheduler_type")
    elif kind:
        reading.note(KeyVerdict.LEFT_OUT, "scheduler.type", deepspeed.REFUSED_KEYS["scheduler"])


def _batch(reading: Reading) -> None:
    """Derive the processes: train_batch_size = micro batch × accumulation × processes."""
    total, sizes = reading.values.get("_train_batch_size"), reading.sizes
    if total is None or sizes is None:
        return
    reading.pop("_train_batch_size")
    part = max(sizes[0] * sizes[1], 1)
    if total < 1 or total % part:
        text = f"{total} is not micro batch {sizes[0]} × accumulation {sizes[1]} × a number of processes."
        reading.note(KeyVerdict.CONTRADICTION, "train_batch_size", text, path="grpo.per_device_train_batch_size")
        return
    reading.put("hardware.processes", total // part, "train_batch_size")
    reading.put("hardware.trainer_gpus", total // part, "train_batch_size")
    text = f"{total} ÷ ({sizes[0]} × {sizes[1]}): processes are {total // part}."
    reading.note(KeyVerdict.ASSUMED, "train_batch_size", text, path="hardware.processes")


FORMAT = Format(DocumentKind.DEEPSPEED, TABLE, SECTIONS, otherwise, finish, SIGNS)
