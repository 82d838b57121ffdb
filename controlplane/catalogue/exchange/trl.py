"""TRL's YAML, and the options of command lines that start GRPO training or its vLLM server."""

from collections.abc import Mapping
from typing import Any

from controlplane.catalogue.exchange import reporting, sampling
from controlplane.catalogue.exchange.commands import ALIASES
from controlplane.catalogue.exchange.keys import (
    DEFAULTS,
    UNSET,
    Format,
    Lead,
    Leave,
    Rule,
    Take,
    flag,
    integer,
    names,
    number,
    one_of,
    text,
    typed,
    unchanged,
)
from controlplane.catalogue.exchange.reading import DocumentKind, KeyVerdict, Reading, WrongValue
from workers.contract.run.hardware import Optimizer, Rollout, Strategy, WeightSync
from workers.contract.stack.training_rules import RESERVED

CHOOSE_DATA = "Choose the dataset under Data; its rows and mapping are stored there."
CHOOSE_REWARDS = "Choose a reward config, which contains components, weights and code."
IN_MAPPING = "This belongs to the dataset's mapping, where a system prompt and the columns are chosen."
CHOOSE_TOOLS = "Choose an environment, which contains tools, games and their code."
SET_BY_CONTROL_PLANE = "The control plane sets this; it manages files, logging, devices and credentials."
OWN_SERVER = "The run starts its own server on a free port. For an external one, use a profile with its address."
BRIDGE = "How weights reach vLLM is a setting of the hardware profile."
GONE = "TRL no longer has this option."
PASTE = "A file on your machine can't be read from here; import its content, too."
BITS = ("4bit", "8bit")
OPTIMIZERS = {
    **dict.fromkeys(("adamw_torch", "adamw_torch_fused", "adamw", "adamw_hf"), Optimizer.ADAMW),
    **dict.fromkeys(("adamw_8bit", "adamw_bnb_8bit", "paged_adamw_8bit"), Optimizer.ADAMW_8BIT),
    "adafactor": Optimizer.ADAFACTOR,
}
OPTIM_NAMES = {Optimizer.ADAMW: "adamw_torch", Optimizer.ADAMW_8BIT: "adamw_8bit", Optimizer.ADAFACTOR: "adafactor"}
MULTI_TURN = ("mt_grpo", "mt_grpo_env", "multi_turn_grpo")
PRESETS = {
    "single_gpu": Strategy.NONE,
    "multi_gpu": Strategy.DDP,
    "fsdp2": Strategy.FSDP2,
    "fsdp1": Strategy.FSDP2,
    "zero1": Strategy.ZERO1,
    "zero2": Strategy.ZERO2,
    "zero3": Strategy.ZERO3,
}
"""Strategies of the accelerate configs that TRL provides, by name."""
BASIC_SETTINGS = {
    **dict.fromkeys(
        ("learning_rate", "beta", "temperature", "top_p", "epsilon", "epsilon_high", "max_grad_norm"), "float"
    ),
    **dict.fromkeys(("num_train_epochs", "warmup_steps", "weight_decay"), "float"),
    **dict.fromkeys(("repetition_penalty", "min_p", "delta", "ref_model_mixup_alpha", "entropy_coef"), "float"),
    **dict.fromkeys(("mask_truncated_completions", "sync_ref_model", "tf32"), "bool"),
    **{"ref_model_sync_steps": "int", "importance_sampling_level": "str", "generation_kwargs": "json"},
    **dict.fromkeys(("max_steps", "num_generations", "per_device_train_batch_size", "num_iterations", "seed"), "int"),
    **dict.fromkeys(("gradient_accumulation_steps", "max_completion_length", "per_device_eval_batch_size"), "int"),
    **dict.fromkeys(("eval_steps", "save_steps", "save_total_limit", "top_k"), "int"),
    **dict.fromkeys(("lr_scheduler_type", "loss_type", "scale_rewards"), "str"),
    **{"ddp_find_unused_parameters": "bool", "gradient_checkpointing_kwargs": "json", "torch_compile": "bool"},
}
"""Types of those GRPOConfig arguments that are known before any host has reported them all."""


def fields_of(schema: Mapping[str, Any] | None) -> dict[str, str]:
    entries = [entry for entry in (schema or {}).get("fields") or () if isinstance(entry, dict)]
    return BASIC_SETTINGS | {str(entry["name"]): str(entry.get("type")) for entry in entries if entry.get("name")}


def grpo_rule(key: str, fields: Mapping[str, str]) -> Rule | None:
    """Return the rule for an argument of GRPOConfig, or None for any other key."""
    if key in RESERVED:
        return Leave(SET_BY_CONTROL_PLANE)
    if key in fields:
        return Take(f"grpo.{key}", typed(fields[key]), unchanged)
    return None


def positive(raw: Any) -> Any:
    """Return a number of steps or a limit; UNSET for -1 and 0, which mean none."""
    steps = integer(raw)
    return UNSET if steps < 1 else steps


def iterations(raw: Any) -> Any:
    """Convert a limit on tool calls to a limit on turns, which includes the model's final turn."""
    count = positive(raw)
    return count if count is UNSET else count + 1


def atropos(raw: Any) -> str:
    return "atropos" if text(raw) else ""


def optimizer(raw: Any) -> Any:
    """Return the Optimizer of this name or, if a profile has none, the name, for the run's own argument."""
    name = text(raw).lower().removeprefix("optimizernames.")
    return OPTIMIZERS.get(name, name)


def attention(raw: Any) -> str:
    return {"flash_attn": "flash_attention_2", "kernels-community/flash-attn2": "flash_attention_2"}.get(raw, text(raw))


def scale(raw: Any) -> str:
    return {"true": "group", "false": "none"}.get(str(raw).lower(), str(raw))


def precision(raw: Any) -> Any:
    return UNSET if str(raw).lower() == "auto" else flag(raw)


def saving(raw: Any) -> str:
    word = str(raw).lower()
    if word not in ("steps", "epoch"):
        raise WrongValue("A run saves every N steps or every epoch, and its last step. Expected steps or epoch")
    return word


TABLE: dict[str, Rule] = {
    "model_name_or_path": Take("model.path", text, unchanged),
    "model_revision": Take("model.revision", text, unchanged),
    "attn_implementation": Take("attn_implementation", attention, unchanged),
    **reporting.TABLE,
    **sampling.TABLE,
    "use_peft": Take("_use_peft", flag),
    "lora_r": Take("lora.r", integer, unchanged),
    "lora_alpha": Take("lora.alpha", integer, unchanged),
    "lora_dropout": Take("lora.dropout", number, unchanged),
    "lora_target_modules": Take("lora.target_modules", names, list),
    "load_in_4bit": Take("_4bit", flag),
    "load_in_8bit": Take("_8bit", flag),
    "bf16": Take("grpo.bf16", precision, unchanged),
    "fp16": Take("grpo.fp16", precision, unchanged),
    "optim": Take("_optim", optimizer),
    "gradient_checkpointing": Take("hardware.gradient_checkpointing", flag, unchanged),
    "use_liger_kernel": Take("hardware.liger_kernels", flag, unchanged),
    "max_steps": Take("grpo.max_steps", positive, unchanged),
    "save_strategy": Take("grpo.save_strategy", saving, unchanged),
    "save_total_limit": Take("grpo.save_total_limit", positive, unchanged),
    "scale_rewards": Take("grpo.scale_rewards", scale, unchanged),
    "warmup_ratio": Take("grpo.warmup_steps", number),
    "eval_strategy": Leave("Evaluation is on when evaluation rows are chosen under Data."),
    "use_vllm": Take("_use_vllm", flag),
    "vllm_mode": Take("_vllm_mode", one_of(server=Rollout.SERVER, colocate=Rollout.COLOCATE)),
    "vllm_gpu_memory_utilization": Take("_share", number),
    "vllm_tensor_parallel_size": Take("_tensor_parallel", integer),
    "vllm_max_model_length": Take("_max_model_len", integer),
    "vllm_max_model_len": Take("_max_model_len", integer),
    "vllm_enable_sleep_mode": Take("hardware.colocate_sleep", flag, unchanged),
    "vllm_server_timeout": Take("hardware.server.ready_timeout_s", integer, unchanged),
    "vllm_server_base_url": Leave(OWN_SERVER),
    "vllm_server_host": Leave(OWN_SERVER),
    "vllm_server_port": Leave(OWN_SERVER),
    "vllm_device": Leave(f"{GONE} To run a server on separate GPUs, choose such a hardware profile."),
    "max_prompt_length": Leave(f"{GONE} To leave out long prompts, filter the dataset."),
    "num_processes": Take("hardware.processes", integer, unchanged),
    "accelerate_config": Take("_preset", text),
    "deepspeed": Take("_deepspeed", unchanged),
    "fsdp": Take("_fsdp", unchanged),
    "fsdp_config": Leave("The trainer sets up FSDP2 from the profile's strategy."),
    "env": Take("hardware.environment", unchanged, unchanged),
    "config": Leave(PASTE),
    "config_file": Leave(PASTE),
    "lora_task_type": Leave("The adapter is always a trainable one for a causal language model."),
    "reward_funcs": Lead(CHOOSE_REWARDS, "rewards"),
    "train_dataset": Lead(CHOOSE_DATA, "dataset"),
    **dict.fromkeys(("system_prompt", "dataset_prompt_column", "chat_template"), Leave(IN_MAPPING)),
    "reward_weights": Lead(CHOOSE_REWARDS, "weights"),
    "reward_model_name_or_path": Leave(CHOOSE_REWARDS),
    "datasets": Lead(CHOOSE_DATA, "dataset"),
    "dataset_name": Lead(CHOOSE_DATA, "dataset"),
    "turn_advantage_coef": Take("episodes.turn_advantage_coef", number, unchanged),
    "max_tool_calling_iterations": Take("episodes.limits.turns", iterations),
    "trainer": Take("_trainer", text),
    "tools": Leave(CHOOSE_TOOLS),
    "environment_factory": Leave(CHOOSE_TOOLS),
    "rollout_func": Leave(CHOOSE_TOOLS),
    "dtype": Leave("The trainer loads the weights in the precision that its profile needs."),
    "torch_dtype": Leave("The trainer loads the weights in the precision that its profile needs."),
    "trust_remote_code": Leave("Models can't run custom code here."),
    **dict.fromkeys(
        ("dataset_config", "dataset_mixture", "dataset_train_split", "dataset_test_split", "dataset_streaming"),
        Leave(CHOOSE_DATA),
    ),
    **dict.fromkeys(
        ("bnb_4bit_quant_type", "use_bnb_nested_quant", "bnb_4bit_quant_storage"),
        Leave("4-bit weights are NF4 with nested quantization."),
    ),
    **dict.fromkeys(
        ("lora_modules_to_save", "lora_target_parameters", "use_rslora", "use_dora", "lora_bias"),
        Leave("Only plain LoRA is supported, because vLLM can load it while serving."),
    ),
    **dict.fromkeys(
        ("overwrite_output_dir", "save_safetensors", "logging_dir", "no_cuda", "use_liger_loss", "evaluation_strategy"),
        Leave(GONE),
    ),
}

COMMAND: dict[str, Rule] = {
    "mixed_precision": Take("hardware.precision", one_of(bf16="bf16", fp16="fp16", no="fp32")),
    "num_machines": Take("_machines", integer),
    "nnodes": Take("_machines", integer),
    "multi_gpu": Take("_multi_gpu", flag),
    "enforce_eager": Take("hardware.server.enforce_eager", flag),
    "data_parallel_size": Take("hardware.server.data_parallel", integer),
    "zero_stage": Take("_zero", integer),
    "enable_lora": Take("_serves_lora", flag),
    "save_path": Leave(SET_BY_CONTROL_PLANE),
    "weight_bridge_mode": Leave(BRIDGE),
    "vllm_restart_interval": Leave("vLLM gets each version of the weights without a restart."),
    "atropos_url": Take("episodes.gateway.kind", atropos),
    **dict.fromkeys(
        (
            *("machine_rank", "main_process_port", "main_process_ip", "rdzv_backend", "rdzv_endpoint", "module"),
            *("standalone", "dynamo_backend", "host", "port", "vllm_port", "vllm_config_path", "node_rank"),
            *("master_addr", "master_port", "num_cpu_threads_per_process", "gpu_ids", "include"),
        ),
        Leave("Each run gets its processes, ports and devices when it starts."),
    ),
}


def finish(reading: Reading) -> None:
    """Convert the temporary values to those of the spec, and note contradictions."""
    reporting.finish(reading)
    sampling.finish(reading)
    _rollout(reading)
    _lora(reading)
    place_optimizer(reading)
    _credit(reading)
    strategy(reading)
    check(reading)


def _rollout(reading: Reading) -> None:
    mode, uses_vllm, source_key = reading.pop("_vllm_mode"), reading.pop("_use_vllm"), "vllm_mode"
    has_server_keys = any(path.startswith("hardware.server.") for path in reading.values)
    if mode is None and uses_vllm is not False and (uses_vllm or has_server_keys or "_share" in reading.values):
        mode = Rollout.SERVER if has_server_keys else Rollout.COLOCATE
        reading.note(KeyVerdict.ASSUMED, "use_vllm", f"The document sets no vLLM mode; {mode} is used, as in TRL.")
    if uses_vllm is False:
        mode, source_key = Rollout.TRANSFORMERS, "use_vllm"
    place_engine(reading, mode, source_key)


def place_engine(reading: Reading, mode: Rollout | None, source_key: str) -> None:
    """Move vLLM's settings to the spec's paths for a server, or to those for vLLM inside the trainer."""
    if mode is not None:
        reading.put("hardware.rollout", mode, source_key)
    paths = {
        "_share": ("hardware.server.gpu_memory_utilization", "hardware.colocate_memory_utilization"),
        "_tensor_parallel": ("hardware.server.tensor_parallel", "hardware.colocate_tensor_parallel"),
        "_max_model_len": ("hardware.server.max_model_len", "hardware.colocate_max_model_len"),
    }
    for temporary_path, (server_path, colocate_path) in paths.items():
        key, value = reading.take(temporary_path)
        if value is not None and mode != Rollout.TRANSFORMERS:
            reading.put(colocate_path if mode == Rollout.COLOCATE else server_path, value, key)
        elif value is not None:
            reading.note(KeyVerdict.LEFT_OUT, key, "The trainer generates without vLLM.")
    if mode in (Rollout.COLOCATE, Rollout.TRANSFORMERS):
        for path in [path for path in reading.values if path.startswith("hardware.server.")]:
            key, _ = reading.take(path)
            reading.note(KeyVerdict.LEFT_OUT, key, f"This is a setting of a vLLM server; the rollout is {mode}.")
    gpus = reading.values.get("hardware.server.tensor_parallel", 1)
    gpus *= reading.values.get("hardware.server.data_parallel", 1)
    if gpus > 1:
        reading.put("hardware.server.gpus", gpus, reading.sources.get("hardware.server.tensor_parallel", ""))


def _lora(reading: Reading) -> None:
    uses_peft = reading.pop("_use_peft")
    lora_values = reading.below("lora")
    if uses_peft or (uses_peft is None and lora_values):
        reading.put("lora", True, "use_peft")
        if uses_peft is None and reading.kind in (DocumentKind.TRL, DocumentKind.COMMAND):
            reading.note(KeyVerdict.ASSUMED, "use_peft", "true is assumed because of the LoRA settings; TRL needs it.")
    else:
        for name in lora_values:
            key = reading.sources.get(f"lora.{name}", name)
            reading.note(KeyVerdict.LEFT_OUT, key, "The document switches LoRA off.")
            reading.pop(f"lora.{name}")
        if "model.path" in reading.values:  # otherwise it is a part of a config, which says nothing about the adapter
            reading.put("lora", False, "no adapter")
    quantize(reading)


def quantize(reading: Reading) -> None:
    requested_bits = [name for name in BITS if reading.pop(f"_{name}")]
    if len(requested_bits) > 1:
        message = "4-bit and 8-bit weights are both requested; 4-bit is used."
        reading.note(KeyVerdict.CONTRADICTION, "load_in_8bit", message, path="hardware.quantization")
    if requested_bits:
        reading.put("hardware.quantization", requested_bits[0], f"load_in_{requested_bits[0]}")
        if not reading.values.get("lora"):
            message = "A quantized model is frozen, so only a LoRA on it can be trained."
            reading.note(KeyVerdict.CONTRADICTION, f"load_in_{requested_bits[0]}", message, path="use_lora")


def place_optimizer(reading: Reading) -> None:
    key, value = reading.take("_optim")
    if value is not None:
        reading.put("hardware.optimizer" if isinstance(value, Optimizer) else "grpo.optim", value, key)


def _credit(reading: Reading) -> None:
    """Read the trainer's name. MT-GRPO is GRPO with per-turn advantages in addition to the outcome advantage."""
    name = reading.pop("_trainer", "grpo").lower()
    if name.replace("-", "_") in MULTI_TURN:
        if "episodes.turn_advantage_coef" not in reading.values:
            reading.put("episodes.turn_advantage_coef", 1.0, "trainer")
    elif name != "grpo":
        reading.note(KeyVerdict.LEFT_OUT, "trainer", f"Runs train with GRPO; {name[:80]} isn't supported.")


def strategy(reading: Reading) -> None:
    """Set the sharding strategy, the number of GPUs, and LoRA hot-swap, and note contradictions."""
    preset, zero_stage, uses_fsdp = reading.pop("_preset"), reading.pop("_zero"), reading.pop("_fsdp")
    for name in uses_fsdp if isinstance(uses_fsdp, Mapping) else ():
        reading.note(
            KeyVerdict.LEFT_OUT, f"fsdp_config.{name}", "The trainer sets up FSDP2 from the profile's strategy."
        )
    deepspeed_file, is_multi_gpu = reading.pop("_deepspeed"), reading.pop("_multi_gpu")
    serves_lora, machines = reading.pop("_serves_lora"), reading.pop("_machines", 1)
    sharding = _preset(reading, preset) or (Strategy.FSDP2 if uses_fsdp else None)
    if deepspeed_file:
        stage = _named_stage(str(deepspeed_file)) or sharding
        reading.note(
            KeyVerdict.LEFT_OUT, "deepspeed", PASTE if stage is None else f"{PASTE} Its name suggests {stage}."
        )
        if uses_fsdp:
            reading.note(KeyVerdict.CONTRADICTION, "fsdp", "DeepSpeed and FSDP can't be combined; DeepSpeed is kept.")
        sharding = stage or sharding
    if zero_stage in (1, 2, 3):
        sharding = Strategy(f"zero{zero_stage}")
    processes = reading.values.get("hardware.processes")
    if sharding is None and processes is not None:
        sharding = Strategy.DDP if processes > 1 else Strategy.NONE
    if sharding is not None and (sharding != Strategy.DDP or is_multi_gpu or processes):
        reading.put("hardware.strategy", sharding, "strategy")
    if serves_lora:
        reading.put("hardware.server.weight_sync", WeightSync.LORA, "enable_lora")
        if reading.values.get("lora") is False:
            reading.pop("lora")
    if machines > 1:
        message = f"The document uses {machines} machines, but a run trains on one host."
        reading.note(KeyVerdict.CONTRADICTION, "num_machines", message)
    if processes is not None and "hardware.trainer_gpus" not in reading.values:
        reading.put("hardware.trainer_gpus", processes, reading.sources["hardware.processes"])


def _preset(reading: Reading, preset: str | None) -> Strategy | None:
    sharding = PRESETS.get((preset or "").rpartition("/")[2].removesuffix(".yaml"))
    if preset is not None and sharding is None:
        reading.note(KeyVerdict.LEFT_OUT, "accelerate_config", PASTE)
    return sharding


def _named_stage(file: str) -> Strategy | None:
    name = file.lower().rpartition("/")[2]
    return next((s for n, s in PRESETS.items() if n.startswith("zero") and n in name.replace("_", "")), None)


def check(reading: Reading) -> None:
    """Note contradictions among a run's own settings, and remove the overridden values."""
    values = reading.values
    if values.get("grpo.bf16") and values.get("grpo.fp16"):
        reading.note(KeyVerdict.CONTRADICTION, "fp16", "bf16 and fp16 are both on; bf16 is kept.", path="precision")
        reading.put("grpo.fp16", False, "fp16")
    if values.get("grpo.max_steps") and "grpo.num_train_epochs" in values:
        message = "Steps and epochs are both set; the steps are used."
        reading.note(KeyVerdict.CONTRADICTION, "num_train_epochs", message, path="grpo.num_train_epochs")
        reading.pop("grpo.num_train_epochs")
    if values.get("grpo.save_strategy") == "epoch" and "grpo.save_steps" in values:
        message = "Checkpoints are set for every epoch and for every N steps; every epoch is used."
        reading.note(KeyVerdict.CONTRADICTION, "save_steps", message, path="grpo.save_steps")
        reading.pop("grpo.save_steps")


def command_rule(key: str, fields: Mapping[str, str]) -> Rule | None:
    name = ALIASES.get(key, key)
    return TABLE.get(name) or COMMAND.get(name) or grpo_rule(name, fields)


SIGNS = frozenset({"model_name_or_path", "num_generations", "reward_funcs", "per_device_train_batch_size"})
OWN_DEFAULTS = DEFAULTS["trl"] | DEFAULTS["trl_lora"]
YAML = Format(DocumentKind.TRL, TABLE, sampling.SECTIONS, grpo_rule, finish, SIGNS, defaults=OWN_DEFAULTS)
OPTIONS = Format(DocumentKind.COMMAND, {**TABLE, **COMMAND}, otherwise=command_rule, finish=finish, dotted=True)
