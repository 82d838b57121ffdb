"""Python scripts for TRL, peft and Unsloth: the defaults that apply to a script, and what Unsloth itself changes."""

import re
from dataclasses import replace

from controlplane.catalogue.exchange import trl
from controlplane.catalogue.exchange.keys import DEFAULTS, Format, Lead, Leave, Rule, Take, integer, unchanged
from controlplane.catalogue.exchange.reading import DocumentKind, KeyVerdict, Reading

CONFIG = re.compile(r"\bGRPOConfig\s*\(")
PEFT = re.compile(r"\bLoraConfig\s*\(")
UNSLOTH = re.compile(r"\bFast\w{0,20}Model\.from_pretrained\s*\(")
UNSLOTH_LORA = re.compile(r"\bFast\w{0,20}Model\.get_peft_model\s*\(")
NOT_4BIT = re.compile(r"\b(?:load_in_8bit|load_in_16bit|full_finetuning|load_in_fp8)\s*=\s*True\b")
IN_VLLM = re.compile(r"\bfast_inference\s*=\s*True\b")
SAME_FOR_ALL = {
    "seed": "With one seed for every request, all completions of a group would be the same.",
    "n": "The number of completions is num_generations.",
}
"""Arguments of SamplingParams that a run can't take, with the reason."""

TABLE: dict[str, Rule] = {
    **trl.TABLE,
    **trl.COMMAND,
    "top_k": Take("grpo.top_k", lambda raw: max(integer(raw), 0)),
    "vllm_sampling_params": Take("_sampling", unchanged),
    "max_lora_rank": Leave("A server takes the rank of the run's LoRA."),
    "device_map": Leave("The hardware profile decides on devices, memory and processes."),
    "data_files": Lead(trl.CHOOSE_DATA, "dataset"),
    "logging_steps": Leave("Every step is logged."),
}


def form_of(script: str) -> Format:
    """Return the format of a script, with the defaults of the tools that it calls."""
    has_config, has_unsloth = CONFIG.search(script), UNSLOTH.search(script)
    sets = {
        "trl": has_config,
        "peft": PEFT.search(script),
        "unsloth_model": has_unsloth,
        "unsloth_4bit": has_unsloth and not NOT_4BIT.search(script),
        "unsloth_vllm": has_unsloth and IN_VLLM.search(script),
        "unsloth_lora": UNSLOTH_LORA.search(script),
        "unsloth_config": has_unsloth and has_config,
    }
    defaults = {key: value for name, applies in sets.items() if applies for key, value in DEFAULTS[name].items()}
    return replace(SCRIPT, defaults=defaults, finish=_finish_unsloth if has_unsloth else _finish)


def _finish(reading: Reading) -> None:
    """Join the arguments of SamplingParams with those of generation_kwargs, and do what TRL's documents need."""
    key, arguments = reading.take("_sampling")
    if isinstance(arguments, dict):
        for name in SAME_FOR_ALL.keys() & arguments.keys():
            reading.note(KeyVerdict.LEFT_OUT, f"{key}.{name}", SAME_FOR_ALL[name])
        taken = {name: value for name, value in arguments.items() if name not in SAME_FOR_ALL}
        earlier = reading.values.get("grpo.generation_kwargs")
        if taken:
            reading.put("grpo.generation_kwargs", {**taken, **(earlier if isinstance(earlier, dict) else {})}, key)
    elif key:
        reading.note(KeyVerdict.LEFT_OUT, key, "Only a SamplingParams(…) with literals can be read.")
    trl.finish(reading)


def _finish_unsloth(reading: Reading) -> None:
    _finish(reading)
    _raise_batch(reading)
    loss = reading.values.get("grpo.loss_type")
    if loss == "dapo":
        _change(reading, "mask_truncated_completions", True, "loss_type dapo")
        _change(reading, "epsilon_high", 0.28, "loss_type dapo")
    elif loss == "dr_grpo":
        _change(reading, "scale_rewards", "none", "loss_type dr_grpo")


def _raise_batch(reading: Reading) -> None:
    values = reading.values
    batch, group = values.get("grpo.per_device_train_batch_size"), values.get("grpo.num_generations")
    if not batch or not group or "grpo.generation_batch_size" in values or "grpo.steps_per_generation" in values:
        return
    at_once = batch * values.get("grpo.gradient_accumulation_steps", 1) * values.get("hardware.processes", 1)
    if at_once % group:
        _change(
            reading,
            "per_device_train_batch_size",
            group,
            f"{at_once} completions a step, which {group} generations don't divide",
        )


def _change(reading: Reading, name: str, value: object, cause: str) -> None:
    path = f"grpo.{name}"
    if reading.values.get(path) != value:
        before = f" instead of {reading.values[path]}" if path in reading.values else ""
        reading.put(path, value, reading.sources.get(path, name))
        message = f"Unsloth uses {value}{before} with {cause}; so does this import."
        reading.note(KeyVerdict.ASSUMED, name, message, path=path)


SCRIPT = Format(DocumentKind.PYTHON, TABLE, otherwise=trl.command_rule, finish=_finish)
