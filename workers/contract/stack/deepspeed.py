"""DeepSpeed's configuration: the one that follows from a hardware profile, or one that a profile stores."""

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from workers.contract.run.hardware import ZERO, HardwareSpec, Offload, Strategy, precision_of
from workers.contract.run.problem import Problem

AUTO = "auto"
STEPS_PER_PRINT = 1_000_000_000
"""Steps between DeepSpeed's own log lines: practically none, since the run logs its metrics itself."""
FIELD = "deepspeed"
STAGES = {Strategy.ZERO1: 1, Strategy.ZERO2: 2, Strategy.ZERO3: 3}
RUN_SETTINGS = {
    "train_micro_batch_size_per_gpu": "per_device_train_batch_size",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "gradient_clipping": "max_grad_norm",
    "optimizer.params.lr": "learning_rate",
    "optimizer.params.eps": "adam_epsilon",
    "optimizer.params.weight_decay": "weight_decay",
}
"""Keys, each with the GRPOConfig argument that it must equal unless it is `auto`, as transformers requires."""
ALLOWED_KEYS = frozenset(
    {
        *("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping"),
        *("optimizer", "fp16", "bf16", "zero_optimization", "activation_checkpointing", "aio", "data_types"),
        *("communication_data_type", "seq_parallel_communication_data_type", "prescale_gradients"),
        *("gradient_predivide_factor", "sparse_gradients", "disable_allgather", "torch_autocast", "compile"),
        *("zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer", "steps_per_print", "wall_clock_breakdown"),
        *("memory_breakdown", "dump_state", "dataloader_drop_last", "comms_logger", "flops_profiler", "checkpoint"),
        *("use_data_before_expert_parallelism", "graph_harvesting"),
    }
)
REFUSED_KEYS = {
    "scheduler": "The run's own scheduler sets the learning rate.",
    "amp": "Apex isn't used; the profile sets the precision.",
    "elasticity": "It would change the batch and therefore the groups.",
    "autotuning": "It starts its own training runs.",
    "hybrid_engine": "Completions come from vLLM or the trainer.",
    "tensor_parallel": "The ranks share the batch, not the layers.",
    "pipeline": "The ranks share the batch, not the layers.",
    "compression_training": "vLLM doesn't support it.",
    "curriculum_learning": "Prompts come in the run's own order.",
    "data_efficiency": "Prompts come in the run's own order.",
    "tensorboard": "Metrics go to the run's page.",
    "wandb": "Metrics go to the run's page.",
    "csv_monitor": "Metrics go to the run's page.",
    "comet": "Metrics go to the run's page.",
    "nebula": "Checkpoints stay in the run's folder.",
    "sparse_attention": "The model's own attention is trained.",
}
"""Known top-level keys that a profile's config can't have, each with the reason."""


def config_of(hardware: HardwareSpec) -> dict[str, Any]:
    """Build the configuration of a launch: the profile's own, completed with defaults, or otherwise the usual one.

    transformers replaces "auto" with GRPOConfig's values.
    """
    usual_settings = usual_config(hardware)
    if not hardware.deepspeed:
        return usual_settings
    config = copy.deepcopy(hardware.deepspeed)
    for name in ("zero_optimization", "train_batch_size", *(key for key in RUN_SETTINGS if "." not in key)):
        config.setdefault(name, usual_settings[name])
    for name in ("bf16", "fp16"):
        config.setdefault(name, {}).setdefault("enabled", AUTO)
    if "optimizer" in usual_settings:
        config.setdefault("optimizer", usual_settings["optimizer"])
    config.setdefault("steps_per_print", usual_settings["steps_per_print"])
    if hardware.strategy is Strategy.ZERO3:
        config["zero_optimization"].setdefault("stage3_gather_16bit_weights_on_model_save", True)
    return config


def usual_config(hardware: HardwareSpec) -> dict[str, Any]:
    stage = STAGES[hardware.strategy]
    zero: dict[str, Any] = {
        "stage": stage,
        "overlap_comm": True,
        "contiguous_gradients": True,
        "reduce_bucket_size": AUTO,
    }
    if stage == 3:
        zero |= {
            "stage3_prefetch_bucket_size": AUTO,
            "stage3_param_persistence_threshold": AUTO,
            # Without it, a checkpoint has only shards, which nothing else could load.
            "stage3_gather_16bit_weights_on_model_save": True,
        }
    else:
        zero["allgather_partitions"] = True
    if hardware.offload is not Offload.NONE:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": hardware.trainer_gpus > 0}
    if hardware.offload is Offload.PARAMETERS:
        zero["offload_param"] = {"device": "cpu", "pin_memory": hardware.trainer_gpus > 0}
    config: dict[str, Any] = {
        "train_batch_size": AUTO,
        "train_micro_batch_size_per_gpu": AUTO,
        "gradient_accumulation_steps": AUTO,
        "gradient_clipping": AUTO,
        "bf16": {"enabled": AUTO},
        "fp16": {"enabled": AUTO},
        "zero_optimization": zero,
        "steps_per_print": STEPS_PER_PRINT,
    }
    if hardware.offload is not Offload.NONE:
        # Offloaded states need DeepSpeed's CPU Adam, which it derives from this one; it refuses others.
        config["optimizer"] = {"type": "AdamW", "params": dict.fromkeys(("lr", "betas", "eps", "weight_decay"), AUTO)}
    return config


def deepspeed_problems(hardware: HardwareSpec) -> Iterator[Problem]:
    """Yield the problems of a profile's stored configuration that don't depend on the run."""
    config = hardware.deepspeed
    if not config:
        return
    if hardware.strategy not in ZERO:
        yield Problem(FIELD, "A DeepSpeed config needs one of the ZeRO strategies.", "Choose one, or clear the config.")
        return
    for key in config:
        if key in REFUSED_KEYS:
            yield Problem(FIELD, f"{key} can't be set here. {REFUSED_KEYS[key]}", "Remove it.")
        elif key not in ALLOWED_KEYS:
            yield Problem(FIELD, f"DeepSpeed has no top-level key {key[:60]!r} that a profile can set.", "Remove it.")
    for name in ("zero_optimization", "fp16", "bf16", "optimizer"):
        if not isinstance(config.get(name, {}), dict):
            yield Problem(FIELD, f"{name} must be an object.")
            return
    yield from _sharding(hardware, config.get("zero_optimization", {}))
    yield from _precision(hardware, config)
    yield from _optimizer(hardware, config.get("optimizer"))
    for path, value in _strings(config):
        if value.startswith(("/", "~")) or ".." in value.split("/"):
            sentence = f"{path} names a path outside the run's folder: {value[:60]}."
            yield Problem(FIELD, sentence, "Use a relative path.")


def number_problems(hardware: HardwareSpec, settings: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield a problem for each number that transformers would refuse because it differs from a GRPOConfig argument."""
    config = hardware.deepspeed or {}
    values = {name: settings.get(field) for name, field in RUN_SETTINGS.items()}
    batch, accumulation = values["train_micro_batch_size_per_gpu"], values["gradient_accumulation_steps"]
    product = batch * accumulation * hardware.processes if batch and accumulation else None
    for name, value in {**values, "train_batch_size": product}.items():
        number = _value_at(config, name)
        if number is None or number in (AUTO, value):
            continue
        run_value = "the run sets it" if value is None else f"the run has {value:g}"
        yield Problem(FIELD, f"{name} is {str(number)[:40]} but {run_value}.", 'Set it to "auto".')


def _value_at(tree: Mapping[str, Any], path: str) -> Any:
    value: Any = tree
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _strings(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _strings(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            yield from _strings(inner, f"{path}[{number}]")


def offload_in(zero: Mapping[str, Any]) -> Offload:
    """Return what a zero_optimization section keeps outside the GPUs."""
    devices = {name: _value_at(zero, f"{name}.device") for name in ("offload_optimizer", "offload_param")}
    if devices["offload_param"] not in (None, "none"):
        return Offload.PARAMETERS
    return Offload.NONE if devices["offload_optimizer"] in (None, "none") else Offload.OPTIMIZER


def _sharding(hardware: HardwareSpec, zero: Mapping[str, Any]) -> Iterator[Problem]:
    stage = STAGES[hardware.strategy]
    if zero and zero.get("stage") != stage:
        sentence = f"The config's ZeRO stage is {str(zero.get('stage', 0))[:20]}, but the strategy is ZeRO-{stage}."
        yield Problem(FIELD, sentence, "Change one of them.")
    if zero and offload_in(zero) != hardware.offload:
        sentence = f"The config offloads {_parts_of(offload_in(zero))}, but the profile {_parts_of(hardware.offload)}."
        yield Problem(FIELD, sentence, "Change one of them.")
    if stage == 3 and zero.get("stage3_gather_16bit_weights_on_model_save") is False:
        sentence = (
            "Without stage3_gather_16bit_weights_on_model_save, a checkpoint has only shards, which nothing can load."
        )
        yield Problem(FIELD, sentence, "Set it to true.")


def _parts_of(offload: Offload) -> str:
    return {"none": "nothing", "optimizer": "the optimizer states"}.get(offload, "optimizer states and parameters")


def _precision(hardware: HardwareSpec, config: Mapping[str, Any]) -> Iterator[Problem]:
    precision = precision_of(hardware, {})
    for name in ("fp16", "bf16"):
        enabled = config.get(name, {}).get("enabled", AUTO)
        if enabled not in (AUTO, precision == name):
            sentence = f"{name}.enabled is {str(enabled).lower()[:20]}, but the profile trains in {precision}."
            yield Problem(FIELD, sentence, 'Set it to "auto".')


def _optimizer(hardware: HardwareSpec, optimizer: Mapping[str, Any] | None) -> Iterator[Problem]:
    if optimizer is None:
        return
    if hardware.offload is Offload.NONE:
        sentence = "Without offload, the trainer's own optimizer is used, not one of DeepSpeed's."
        yield Problem(FIELD, sentence, "Remove optimizer.")
    elif optimizer.get("type") != "AdamW":
        yield Problem(FIELD, "Offloaded optimizer states must be AdamW's.", "Set optimizer.type to AdamW.")
