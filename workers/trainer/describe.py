"""GRPOConfig as data for forms, read from the installed class: `python -m workers.trainer.describe`.

`--check FILE` builds the real GRPOConfig of {"grpo": {...}, "processes": n} and prints {"ok": bool, "error": str}.
"""

import argparse
import dataclasses
import enum
import json
import os
import sys
import tempfile
import types
import typing
from importlib import metadata
from pathlib import Path
from typing import Any

from workers.contract.run.hardware import HardwareSpec
from workers.contract.run.spec import DataSpec, ModelSpec, RunSpec
from workers.contract.stack.training_rules import CHOICES, RESERVED
from workers.trainer.configuration import imports

GROUPS: dict[str, tuple[str, ...]] = {
    # A field belongs to the first group with a matching prefix.
    "vLLM": ("vllm_",),
    "Importance sampling": ("importance_sampling", "off_policy"),
    "Evaluation": ("eval_", "per_device_eval", "num_generations_eval", "bf16_full_eval", "fp16_full_eval",
                   "prediction_"),
    "Saving": ("save_", "load_best"),
    "Generation": ("num_generations", "max_completion", "temperature", "top_p", "top_k", "min_p", "generation_kwargs",
                   "repetition", "cache_impl", "chat_template", "use_transformers_cont", "transformers_cont",
                   "max_tool", "use_cache", "mask_truncated"),
    "Batch": ("per_device_train", "gradient_accumulation", "generation_batch", "steps_per_generation", "max_steps",
              "num_train_epochs", "num_iterations"),
    "Optimizer": ("learning_rate", "lr_", "warmup", "optim", "weight_decay", "adam_", "max_grad_norm", "neftune",
                  "label_smoothing"),
    "Loss": ("loss_type", "beta", "epsilon", "delta", "sapo_", "vespo_", "top_entropy", "entropy_", "use_adaptive",
             "use_bias", "router_aux"),
    "Reference model": ("sync_ref", "ref_model", "disable_dropout"),
    "Rewards": ("scale_rewards", "multi_objective", "reward"),
    "Precision and memory": ("bf16", "fp16", "tf32", "gradient_check", "torch_", "cast_lm", "use_liger", "liger_",
                             "ds3_", "skip_memory"),
    "Data": ("dataloader_", "shuffle", "pad_to", "data_seed", "train_sampling", "length_column"),
    "Distributed": ("ddp_", "average_tokens"),
    "Reproducibility": ("seed", "full_determinism"),
}  # fmt: skip
OTHER = "Other"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m workers.trainer.describe", description=__doc__.splitlines()[0])
    parser.add_argument("--check", type=Path, metavar="FILE", help='JSON: {"grpo": {...}, "processes": n}')
    options = parser.parse_args(argv)
    os.environ.update(HF_HUB_OFFLINE="1", HF_HUB_DISABLE_TELEMETRY="1", CUDA_VISIBLE_DEVICES="")
    with imports.speed_up():  # its own work is little
        print(json.dumps(describe() if options.check is None else check(json.loads(options.check.read_bytes()))))
    return 0


def describe() -> dict[str, Any]:
    from trl import GRPOConfig

    hints = typing.get_type_hints(GRPOConfig)
    fields = [
        _field(field, hints[field.name]) for field in dataclasses.fields(GRPOConfig) if field.name not in RESERVED
    ]
    return {
        **{name: metadata.version(name) for name in ("trl", "transformers", "torch")},
        "fields": fields,
        "defaults": {field["name"]: field["default"] for field in fields},
    }


def check(request: dict[str, Any]) -> dict[str, Any]:
    """Check whether the installed TRL accepts these settings with this number of ranks; return {"ok", "error"}."""
    from trl import GRPOConfig

    from workers.trainer.configuration import config, hardware
    from workers.trainer.configuration.spec import SpecError

    processes = int(request.get("processes", 1))

    class PlannedConfig(GRPOConfig):  # type: ignore[misc]
        """Config that reports the planned number of ranks, although they have not been started."""

        world_size = property(lambda self: processes)

    run = RunSpec("", "", "train", ModelSpec(""), DataSpec("", 1, "", 0, 1), (), HardwareSpec(""), request["grpo"])
    with tempfile.TemporaryDirectory() as folder:
        try:
            config.check(run)
            settings = (
                hardware.CPU_SETTINGS | run.grpo | config.FIXED_SETTINGS | {"use_cpu": True, "output_dir": folder}
            )
            config.construct(PlannedConfig, settings)
        except SpecError as error:
            return {"ok": False, "error": " ".join(str(error).split())}
    return {"ok": True, "error": ""}


def _field(field: dataclasses.Field[Any], hint: Any) -> dict[str, Any]:
    kind, optional, members = _kind(hint)
    choices = CHOICES.get(field.name) or field.metadata.get("choices") or members
    default = field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
    return {
        "name": field.name,
        "type": kind,
        "optional": optional or default is None,
        "default": default.value if isinstance(default, enum.Enum) else default,
        "choices": list(choices) if choices else None,
        "help": " ".join(str(field.metadata.get("help", "")).replace("%%", "%").split()),
        "group": next((group for group, prefixes in GROUPS.items() if field.name.startswith(prefixes)), OTHER),
    }


def _kind(hint: Any) -> tuple[str, bool, list[str] | None]:
    """Return the type for the form, whether None is allowed, and the members of an enum or None."""
    members = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    optional = type(None) in members
    for member in members:
        if isinstance(member, type) and issubclass(member, enum.Enum):
            return "str", optional, [str(item.value) for item in member]
    value_types = [member for member in members if member is not type(None)]
    if len(value_types) == 1 and value_types[0] in (int, float, bool, str):
        return value_types[0].__name__, optional, None
    if set(value_types) <= {int, str}:  # "auto" or a number
        return "str", optional, None
    return "json", optional, None


if __name__ == "__main__":
    sys.exit(main())
