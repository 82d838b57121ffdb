"""accelerate's YAML: processes, precision, and sharding by DeepSpeed or FSDP."""

from collections.abc import Mapping
from typing import Any

from controlplane.catalogue.exchange.keys import (
    UNSET,
    Format,
    Leave,
    Rule,
    Take,
    auto,
    flag,
    integer,
    number,
    one_of,
    text,
)
from controlplane.catalogue.exchange.reading import DocumentKind, KeyVerdict, Reading, WrongValue
from controlplane.catalogue.exchange.trl import PASTE
from workers.contract.run.hardware import ZERO, Offload, Precision, Strategy

STARTED = "Each run gets its processes, ports and devices when it starts."
SHARDED = "The trainer sets this up from the profile's strategy."
DEVICES = {"none": "none", "cpu": "cpu", "nvme": "cpu"}


def gpu_ids(raw: Any) -> Any:
    indexes = str(raw).replace(" ", "").split(",")
    if indexes == ["all"]:
        return UNSET
    if not all(index.isdigit() and len(index) < 5 for index in indexes):
        raise WrongValue("Expected GPU indexes such as 0,1")
    return tuple(map(int, indexes))


TABLE: dict[str, Rule] = {
    "distributed_type": Take("_type", lambda raw: text(raw).upper()),
    "mixed_precision": Take("hardware.precision", one_of(bf16="bf16", fp16="fp16", no="fp32", false="fp32")),
    "num_processes": Take("hardware.processes", integer),
    "num_machines": Take("_machines", integer),
    "use_cpu": Take("_cpu", flag),
    "gpu_ids": Take("hardware.trainer_gpu_ids", gpu_ids),
    "deepspeed_config.zero_stage": Take("_stage", integer),
    "deepspeed_config.offload_optimizer_device": Take("_offload_optimizer", one_of(**DEVICES)),
    "deepspeed_config.offload_param_device": Take("_offload_param", one_of(**DEVICES)),
    "deepspeed_config.gradient_accumulation_steps": Take("grpo.gradient_accumulation_steps", auto(integer)),
    "deepspeed_config.gradient_clipping": Take("grpo.max_grad_norm", auto(number)),
    "deepspeed_config.deepspeed_config_file": Leave(PASTE),
    "fsdp_config.fsdp_version": Take("_fsdp_version", integer),
    "fsdp_config.fsdp_offload_params": Take("_fsdp_offload", flag),
    "fsdp_config.fsdp_activation_checkpointing": Take("hardware.gradient_checkpointing", flag),
    "compute_environment": Leave(STARTED),
    "dynamo_config": Leave("Compilation isn't supported for GRPO."),
    **dict.fromkeys(
        (
            *("debug", "downcast_bf16", "enable_cpu_affinity", "machine_rank", "main_process_ip", "main_process_port"),
            *("main_training_function", "rdzv_backend", "same_network", "tpu_env", "tpu_use_cluster", "tpu_use_sudo"),
            *("ipex_config", "mpirun_config", "command_file", "commands"),
        ),
        Leave(STARTED),
    ),
}


def otherwise(key: str, _fields: Mapping[str, str]) -> Rule | None:
    section, _, name = key.partition(".")
    prefixes = {"fsdp_config": ("fsdp_",), "deepspeed_config": ("zero3_", "deepspeed_")}.get(section, ())
    return Leave(SHARDED) if name.startswith(prefixes) else None


def finish(reading: Reading) -> None:
    sharding_kind, machines = reading.pop("_type"), reading.pop("_machines", 1)
    processes = reading.values.get("hardware.processes")
    on_cpu = bool(reading.pop("_cpu")) or sharding_kind == "MULTI_CPU"
    if machines > 1:
        message = f"The document uses {machines} machines, but a run trains on one host."
        reading.note(KeyVerdict.CONTRADICTION, "num_machines", message)
    if processes is not None or on_cpu:
        reading.put("hardware.trainer_gpus", 0 if on_cpu else processes, "use_cpu" if on_cpu else "num_processes")
    if on_cpu:
        reading.put("hardware.cpu_slots", 1, "use_cpu")
    strategy = _strategy(reading, sharding_kind, processes or 1)
    if strategy is not None:
        reading.put("hardware.strategy", strategy, "distributed_type")
    _offload(reading, strategy)
    if sharding_kind == "NO" and processes and processes > 1:
        message = f"The type means one process, but num_processes is {processes}; DDP is used."
        reading.note(KeyVerdict.CONTRADICTION, "distributed_type", message, path="hardware.strategy")
    if on_cpu and reading.values.get("hardware.precision") == Precision.FP16:
        reading.note(KeyVerdict.CONTRADICTION, "mixed_precision", "fp16 needs a GPU.", path="hardware.precision")


def _strategy(reading: Reading, kind: str | None, processes: int) -> Strategy | None:
    stage, version = reading.pop("_stage"), reading.pop("_fsdp_version", 2)
    if kind == "DEEPSPEED":
        if stage is None:
            reading.note(KeyVerdict.ASSUMED, "deepspeed_config", "No ZeRO stage is given; 2 is used, as in accelerate.")
        elif stage not in (1, 2, 3):
            message = f"ZeRO stage {stage} shards nothing: choose ZeRO-1, 2 or 3."
            reading.note(KeyVerdict.CONTRADICTION, "deepspeed_config.zero_stage", message, path="hardware.strategy")
            return None
        return Strategy(f"zero{2 if stage is None else stage}")
    if stage is not None:
        message = f"A ZeRO stage is given, but the type is {kind or 'missing'}."
        reading.note(KeyVerdict.CONTRADICTION, "deepspeed_config", message, path="hardware.strategy")
    if kind == "FSDP":
        if version == 1:
            reading.note(KeyVerdict.ASSUMED, "fsdp_config.fsdp_version", "FSDP2 is used instead of FSDP 1.")
        return Strategy.FSDP2
    if kind in (None, "NO", "MULTI_GPU", "MULTI_CPU"):
        return Strategy.DDP if processes > 1 else Strategy.NONE
    reading.note(KeyVerdict.LEFT_OUT, "distributed_type", f"{kind[:40]} isn't supported.")
    return None


def _offload(reading: Reading, strategy: Strategy | None) -> None:
    optimizer, parameters = reading.pop("_offload_optimizer"), reading.pop("_offload_param")
    fsdp = reading.pop("_fsdp_offload")
    if strategy == Strategy.FSDP2 and fsdp:
        reading.put("hardware.offload", Offload.PARAMETERS, "fsdp_config.fsdp_offload_params")
    elif strategy in ZERO and "cpu" in (optimizer, parameters):
        offload = Offload.PARAMETERS if parameters == "cpu" else Offload.OPTIMIZER
        reading.put("hardware.offload", offload, "deepspeed_config.offload_optimizer_device")


SECTIONS = frozenset({"deepspeed_config", "fsdp_config"})
SIGNS = frozenset({"distributed_type", "compute_environment", "main_training_function", "fsdp_config"})
FORMAT = Format(DocumentKind.ACCELERATE, TABLE, SECTIONS, otherwise, finish, SIGNS)
