"""Export of a run's settings in the formats of other tools.

Settings without a key in the format follow in `#!` comment lines, so that an import here restores all of them. A
DeepSpeed JSON has no comments, so it contains only the sharding, the offload and the tuned part of a profile.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from controlplane.catalogue.exchange import accelerate, axolotl, documents, own, trl
from controlplane.catalogue.exchange.keys import Format, Rule, TableReader, Take, build_document, put
from controlplane.platform import safe_yaml
from workers.contract.run.hardware import ZERO, HardwareSpec, Offload, Quantization, Rollout, Strategy, precision_of
from workers.contract.run.spec import RunSpec
from workers.contract.stack import deepspeed

MAX_DEPTH = 4
"""Maximum nesting depth of arguments; deeper ones, which the YAML reader would refuse, are written as comments."""
AXOLOTL_SECTION = frozenset(
    {
        *("beta", "num_generations", "max_completion_length", "temperature", "top_p", "top_k", "min_p"),
        *("repetition_penalty", "num_iterations", "epsilon", "epsilon_high", "loss_type", "scale_rewards"),
        *("mask_truncated_completions", "sync_ref_model", "ref_model_mixup_alpha", "ref_model_sync_steps"),
    }
)
"""GRPOConfig's arguments that Axolotl has in its `trl` section."""


@dataclass(frozen=True)
class ExportFormat:
    name: str
    label: str
    write: Callable[[RunSpec], str]


def formats(hardware: HardwareSpec) -> list[ExportFormat]:
    yaml = [
        ExportFormat("trl.yaml", "TRL YAML", trl_yaml),
        ExportFormat("axolotl.yaml", "Axolotl YAML", axolotl_yaml),
        ExportFormat("accelerate.yaml", "accelerate YAML", accelerate_yaml),
    ]
    zero = ExportFormat("deepspeed.json", "DeepSpeed JSON", lambda spec: deepspeed_json(spec.hardware))
    return [*yaml, zero] if hardware.strategy in ZERO else yaml


def trl_yaml(spec: RunSpec) -> str:
    values, hardware = own.values_of(spec), spec.hardware
    tree = build_document(trl.TABLE, values)
    _arguments(tree, trl.TABLE, values, lambda name: name)
    _training(tree, spec, optimizer_key="optim")
    tree["use_peft"] = spec.lora is not None
    tree["num_processes"] = hardware.processes
    if (preset := _preset(hardware)) != "single_gpu":
        tree["accelerate_config"] = preset
    tree["use_vllm"] = hardware.rollout != Rollout.TRANSFORMERS
    if tree["use_vllm"]:
        tree["vllm_mode"] = hardware.rollout
    if hardware.rollout == Rollout.COLOCATE:
        tree["vllm_gpu_memory_utilization"] = hardware.colocate_memory_utilization
        tree["vllm_tensor_parallel_size"] = hardware.colocate_tensor_parallel
        if hardware.colocate_max_model_len:
            tree["vllm_max_model_length"] = hardware.colocate_max_model_len
    title = "For `trl grpo --config trl.yaml`: add dataset_name and reward_funcs, which are stored here."
    return _document(title, tree, trl.YAML, values)


def axolotl_yaml(spec: RunSpec) -> str:
    values, hardware = own.values_of(spec), spec.hardware
    tree = {"rl": "grpo", **build_document(axolotl.TABLE, values)}
    _arguments(tree, axolotl.TABLE, values, lambda name: f"trl.{name}" if name in AXOLOTL_SECTION else name)
    _training(tree, spec, optimizer_key="optimizer")
    if spec.lora is not None:
        tree["adapter"] = "qlora" if hardware.quantization == Quantization.NF4 else "lora"
    if hardware.strategy in ZERO:
        tree["deepspeed"] = f"deepspeed_configs/{_preset(hardware)}.json"
    put(tree, "trl.use_vllm", hardware.rollout != Rollout.TRANSFORMERS)
    if hardware.rollout != Rollout.TRANSFORMERS:
        put(tree, "trl.vllm_mode", hardware.rollout)
    if (server := hardware.vllm_server) is not None:
        put(tree, "vllm.gpu_memory_utilization", server.gpu_memory_utilization)
        put(tree, "vllm.tensor_parallel_size", server.tensor_parallel)
        if server.max_model_len:
            put(tree, "vllm.max_model_len", server.max_model_len)
    title = "For `axolotl train axolotl.yaml`: add datasets and trl.reward_funcs, which are stored here."
    return _document(title, tree, axolotl.FORMAT, values)


def accelerate_yaml(spec: RunSpec) -> str:
    hardware = spec.hardware
    kind = "NO" if hardware.processes == 1 else "MULTI_GPU" if hardware.trainer_gpus else "MULTI_CPU"
    if hardware.strategy in ZERO or hardware.strategy == Strategy.FSDP2:
        kind = "DEEPSPEED" if hardware.strategy in ZERO else "FSDP"
    tree: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": kind,
        "machine_rank": 0,
        "main_training_function": "main",
        "mixed_precision": "no" if (precision := precision_of(hardware, spec.grpo)) == "fp32" else precision,
        "num_machines": 1,
        "num_processes": hardware.processes,
        "use_cpu": hardware.trainer_gpus == 0,
    }
    if hardware.strategy in ZERO:
        tree["deepspeed_config"] = {
            "zero_stage": deepspeed.STAGES[hardware.strategy],
            "offload_optimizer_device": "none" if hardware.offload == Offload.NONE else "cpu",
            "offload_param_device": "cpu" if hardware.offload == Offload.PARAMETERS else "none",
        }
    elif hardware.strategy == Strategy.FSDP2:
        tree["fsdp_config"] = {"fsdp_version": 2, "fsdp_offload_params": hardware.offload == Offload.PARAMETERS}
    title = "For `accelerate launch --config_file accelerate.yaml`."
    return _document(title, tree, accelerate.FORMAT, own.values_of(spec))


def deepspeed_json(hardware: HardwareSpec) -> str:
    return json.dumps(deepspeed.config_of(hardware), indent=2) + "\n"


def _arguments(
    tree: dict[str, Any], table: Mapping[str, Rule], values: Mapping[str, Any], key: Callable[[str], str]
) -> None:
    """Add the arguments of GRPOConfig that the table doesn't write, under the names that both tools share."""
    in_table = {rule.path for rule in table.values() if isinstance(rule, Take) and rule.write}
    for path, value in values.items():
        if path.startswith("grpo.") and path not in {*in_table, "grpo.optim"} and _depth(value) <= MAX_DEPTH:
            put(tree, key(path.removeprefix("grpo.")), value)


def _training(tree: dict[str, Any], spec: RunSpec, *, optimizer_key: str) -> None:
    hardware, precision = spec.hardware, precision_of(spec.hardware, spec.grpo)
    tree |= {name: precision == name for name in ("bf16", "fp16")}
    tree[optimizer_key] = spec.grpo.get("optim") or trl.OPTIM_NAMES[hardware.optimizer]
    tree["gradient_checkpointing"] = hardware.checkpoints_gradients
    if hardware.quantization != Quantization.NONE:
        tree[f"load_in_{hardware.quantization}"] = True


def _preset(hardware: HardwareSpec) -> str:
    names = {strategy: name for name, strategy in reversed(trl.PRESETS.items())}
    return {Strategy.NONE: "single_gpu", Strategy.FSDP2: "fsdp2"}.get(hardware.strategy, names[hardware.strategy])


def _depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return 1 + max((_depth(part) for part in inner), default=0)


def _document(title: str, tree: dict[str, Any], form: Format, values: Mapping[str, Any]) -> str:
    """Return the tree as YAML, followed by the values that reading the YAML alone would miss or change."""
    plain_tree: dict[str, Any] = json.loads(json.dumps(tree))
    reading = TableReader(form, trl.BASIC_SETTINGS).read(plain_tree)
    missing = {path: value for path, value in values.items() if reading.values.get(path, reading) != value}
    surplus = dict.fromkeys(path for path in reading.values if path not in values)
    lines = [f"#! {path}: {json.dumps(value)}" for path, value in {**missing, **surplus}.items()]
    return "\n".join([f"# {title}", safe_yaml.dump(plain_tree, tuple(plain_tree)), documents.HEAD, *lines, ""])
