"""Axolotl's YAML for GRPO."""

import math
from collections.abc import Mapping
from typing import Any

from controlplane.catalogue.exchange import reporting, sampling, trl
from controlplane.catalogue.exchange.keys import (
    DEFAULTS,
    UNSET,
    Format,
    Leave,
    Rule,
    Take,
    flag,
    integer,
    names,
    number,
    text,
    typed,
    unchanged,
)
from controlplane.catalogue.exchange.reading import DocumentKind, KeyVerdict, Reading, WrongValue
from workers.contract.run import overlapping
from workers.contract.run.hardware import Rollout

CACHE = "Datasets are prepared once, when they are imported."
MODEL = "The files in the model's folder determine this."


def grpo(raw: Any) -> Any:
    if str(raw).lower() != "grpo":
        raise WrongValue("Only GRPO is supported")
    return UNSET


def adapter(raw: Any) -> str:
    name = str(raw).lower()
    if name not in ("lora", "qlora"):
        raise WrongValue("Expected lora or qlora")
    return name


def all_linear(raw: Any) -> Any:
    return ("all-linear",) if flag(raw) else UNSET


def liger(raw: Any) -> Any:
    return True if any("liger" in str(name).lower() for name in names(raw)) else UNSET


def on(raw: Any) -> Any:
    return True if flag(raw) else UNSET


LIGER = (
    *("liger_rope", "liger_rms_norm", "liger_glu_activation", "liger_swiglu", "liger_layer_norm"),
    *("liger_cross_entropy", "liger_fused_linear_cross_entropy"),
)
PEFT = (
    "peft_use_rslora",
    "peft_use_dora",
    "peft_init_lora_weights",
    "lora_modules_to_save",
    "peft_layers_to_transform",
)
AHEAD = tuple(
    f"trl.{name}"
    for name in (
        *("use_data_producer", "prefetch_depth", "vllm_sync_interval", "streaming_partial_batch"),
        *("streaming_min_groups", "replay_buffer_size", "replay_recompute_logps", "reroll_max_groups"),
        "reroll_start_fraction",
    )
)
TABLE: dict[str, Rule] = {
    "base_model": Take("model.path", text, unchanged),
    "revision_of_model": Take("model.revision", text, unchanged),
    "rl": Take("_rl", grpo),
    "micro_batch_size": Take("grpo.per_device_train_batch_size", integer, unchanged),
    "gradient_accumulation_steps": Take("grpo.gradient_accumulation_steps", integer, unchanged),
    "eval_batch_size": Take("grpo.per_device_eval_batch_size", integer, unchanged),
    "batch_size": Take("_batch_size", integer),
    "num_epochs": Take("grpo.num_train_epochs", number, unchanged),
    "max_steps": Take("grpo.max_steps", trl.positive, unchanged),
    "learning_rate": Take("grpo.learning_rate", number, unchanged),
    "lr_scheduler": Take("grpo.lr_scheduler_type", text, unchanged),
    "optimizer": Take("_optim", trl.optimizer),
    "warmup_steps": Take("grpo.warmup_steps", number, unchanged),
    "warmup_ratio": Take("grpo.warmup_steps", number),
    "save_strategy": Take("grpo.save_strategy", trl.saving, unchanged),
    "saves_per_epoch": Take("_saves", number),
    "save_total_limit": Take("grpo.save_total_limit", trl.positive, unchanged),
    "sequence_len": Take("_sequence_len", integer),
    "adapter": Take("_adapter", adapter),
    "lora_r": Take("lora.r", integer, unchanged),
    "lora_alpha": Take("lora.alpha", integer, unchanged),
    "lora_dropout": Take("lora.dropout", number, unchanged),
    "lora_target_modules": Take("lora.target_modules", names, list),
    "lora_target_linear": Take("lora.target_modules", all_linear),
    "load_in_4bit": Take("_4bit", flag),
    "load_in_8bit": Take("_8bit", flag),
    "bf16": Take("grpo.bf16", trl.precision, unchanged),
    "fp16": Take("grpo.fp16", trl.precision, unchanged),
    "gradient_checkpointing": Take("hardware.gradient_checkpointing", flag, unchanged),
    "attn_implementation": Take("attn_implementation", trl.attention, unchanged),
    "flash_attention": Take("_flash", flag),
    "sdp_attention": Take("_sdpa", flag),
    "plugins": Take("hardware.liger_kernels", liger),
    **dict.fromkeys(LIGER, Take("hardware.liger_kernels", on)),
    "trl.vllm_lora_sync": Take("_serves_lora", flag),
    "trl.async_prefetch": Take(overlapping.AHEAD_FIELD, on),
    **dict.fromkeys(AHEAD, Leave("To generate one step ahead of the trainer, turn on asynchronous generation.")),
    "trl.rollout_func": trl.TABLE["rollout_func"],
    "trl.vllm_guided_decoding_regex": Take("grpo.vllm_structured_outputs_regex", text),
    "trl.vllm_importance_sampling_cap": Take("grpo.vllm_importance_sampling_clip_max", number),
    "trl.skip_zero_advantage_batches": Leave("A batch without spread has no gradient here either."),
    "trl.reward_num_workers": Leave("The control plane already scores rewards in parallel."),
    "context_parallel_size": Leave("A sequence isn't split over GPUs here."),
    "deepspeed": Take("_deepspeed", unchanged),
    "fsdp": Take("_fsdp", unchanged),
    "fsdp_config": Take("_fsdp", unchanged),
    **dict.fromkeys(PEFT, trl.TABLE["use_rslora"]),
    "fsdp_version": Leave("The trainer sets up FSDP2 from the profile's strategy."),
    "vllm.gpu_memory_utilization": Take("_share", number),
    "vllm.tensor_parallel_size": Take("_tensor_parallel", integer),
    "vllm.data_parallel_size": Take("hardware.server.data_parallel", integer, unchanged),
    "vllm.max_model_len": Take("_max_model_len", integer),
    "vllm.dtype": Take("hardware.server.dtype", text, unchanged),
    "vllm.enforce_eager": Take("hardware.server.enforce_eager", flag, unchanged),
    "vllm.enable_prefix_caching": Take("hardware.server.prefix_caching", flag, unchanged),
    "vllm.host": Take("_host", text),
    "vllm.port": Take("_port", integer),
    "trl.use_vllm": Take("_use_vllm", flag),
    "trl.vllm_mode": trl.TABLE["vllm_mode"],
    "trl.vllm_server_host": Take("_server_host", text),
    "trl.vllm_server_port": Take("_server_port", integer),
    "trl.vllm_server_timeout": trl.TABLE["vllm_server_timeout"],
    "trl.vllm_enable_sleep_mode": trl.TABLE["vllm_enable_sleep_mode"],
    "trl.scale_rewards": trl.TABLE["scale_rewards"],
    "trl.reward_funcs": trl.TABLE["reward_funcs"],
    "trl.reward_weights": trl.TABLE["reward_weights"],
    "datasets": trl.TABLE["datasets"],
    "test_datasets": Leave(trl.CHOOSE_DATA),
    "val_set_size": Leave("Evaluation rows are chosen under Data, from the version's validation split."),
    "evals_per_epoch": Leave("The interval of evaluations is set in steps, under Evaluate every."),
    "logging_steps": Leave("Every step is logged."),
    "chat_template": Leave("The model's own chat template is used; the dataset page shows it."),
    **dict.fromkeys(
        ("dataset_prepared_path", "dataset_processes", "skip_prepare_dataset", "sample_packing", "pad_to_sequence_len"),
        Leave(CACHE),
    ),
    **dict.fromkeys(
        (
            *("model_type", "tokenizer_type", "tokenizer_config", "base_model_config", "special_tokens"),
            "is_llama_derived_model",
        ),
        Leave(MODEL),
    ),
    **reporting.KEYS,
    "trust_remote_code": trl.TABLE["trust_remote_code"],
    **sampling.TABLE,
}


def otherwise(key: str, fields: Mapping[str, str]) -> Rule | None:
    """Return TRL's rule for a key, since Axolotl's `trl` section and other training arguments use TRL's names, or None
    if TRL has no rule."""
    name = key.removeprefix("trl.")
    if key.startswith("trl.") and name in trl.TABLE:
        return trl.TABLE[name]
    if "." not in name and name in fields and name not in trl.TABLE:
        return trl.grpo_rule(name, fields) and Take(f"grpo.{name}", typed(fields[name]))
    return trl.grpo_rule(name, fields)


def finish(reading: Reading) -> None:
    reporting.finish(reading)
    sampling.finish(reading)
    _engine(reading)
    _adapter(reading)
    for path, implementation in {"_flash": "flash_attention_2", "_sdpa": "sdpa"}.items():
        key = reading.sources.get(path, "")
        if reading.pop(path):
            reading.put("attn_implementation", implementation, key)
    trl.place_optimizer(reading)
    trl.strategy(reading)
    _saves(reading)
    trl.check(reading)
    _total(reading)


def _engine(reading: Reading) -> None:
    uses_vllm, mode = reading.pop("_use_vllm"), reading.pop("_vllm_mode")
    addresses = [reading.pop(path) for path in ("_host", "_port", "_server_host", "_server_port")]
    is_described = any(value is not None for value in addresses) or "_share" in reading.values
    if uses_vllm is False:
        mode = Rollout.TRANSFORMERS
    elif mode is None and (uses_vllm or is_described):
        mode = Rollout.SERVER
    _, port, _, server_port = addresses
    if port and server_port and port != server_port:
        message = f"The server listens on port {port}, but the trainer connects to port {server_port}."
        reading.note(KeyVerdict.CONTRADICTION, "trl.vllm_server_port", message)
    if any(address is not None for address in addresses):
        reading.note(KeyVerdict.LEFT_OUT, "vllm.host, vllm.port", trl.OWN_SERVER)
    length = reading.pop("_sequence_len")
    if length is not None and "_max_model_len" not in reading.values and mode in (Rollout.SERVER, Rollout.COLOCATE):
        reading.put("_max_model_len", length, "sequence_len")
    trl.place_engine(reading, mode, "trl.use_vllm")


def _adapter(reading: Reading) -> None:
    kind = reading.pop("_adapter")
    if kind is None:
        for name in reading.below("lora"):
            reading.note(KeyVerdict.LEFT_OUT, f"lora_{name}", "No adapter is set, so all weights are trained.")
            reading.pop(f"lora.{name}")
    if kind == "qlora" and "_4bit" not in reading.values:
        reading.put("_4bit", True, "adapter")
    if kind is not None or "model.path" in reading.values:
        reading.put("lora", kind is not None, "adapter" if kind else "no adapter")
    trl.quantize(reading)


def _saves(reading: Reading) -> None:
    times = reading.pop("_saves")
    if times == 1:
        reading.put("grpo.save_strategy", "epoch", "saves_per_epoch")
    elif times and (steps := reading.values.get("grpo.max_steps")):
        # Axolotl saves after this share of all steps, whatever the size of the dataset.
        epochs = reading.values.get("grpo.num_train_epochs", 1)
        reading.put("grpo.save_steps", math.ceil(steps / max(times * epochs, 1)), "saves_per_epoch")
    elif times is not None:
        message = f"A run saves every N steps or once an epoch. Set Save every to the steps of an epoch ÷ {times:g}."
        reading.note(KeyVerdict.LEFT_OUT, "saves_per_epoch", message, path="grpo.save_steps")


def _total(reading: Reading) -> None:
    total, sizes = reading.pop("_batch_size"), reading.sizes
    if total is not None and sizes is not None and total % max(sizes[0] * sizes[1], 1):
        message = f"{total} is not a multiple of {sizes[0]} × {sizes[1]} (micro batch × accumulation), which is kept."
        reading.note(KeyVerdict.CONTRADICTION, "batch_size", message)


SECTIONS = frozenset({"trl", "vllm"}) | sampling.SECTIONS
SIGNS = frozenset({"base_model", "micro_batch_size", "rl", "vllm", "trl", "sequence_len", "adapter"})
FORMAT = Format(DocumentKind.AXOLOTL, TABLE, SECTIONS, otherwise, finish, SIGNS, defaults=DEFAULTS["axolotl"])
