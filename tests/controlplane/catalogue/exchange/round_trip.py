"""Checks that exports in every format read back unchanged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from controlplane.catalogue.exchange import documents, own, trl
from controlplane.catalogue.exchange.writing import accelerate_yaml, axolotl_yaml, deepspeed_json, trl_yaml
from controlplane.catalogue.hardware.shipped import SHIPPED_PROFILES
from workers.contract.run.episodes import EpisodeLimits, EpisodeSpec, GatewaySpec, PartSpec
from workers.contract.run.hardware import ZERO, HardwareSpec, Offload
from workers.contract.run.limits import BeyondSpec, LimitsSpec, NoBetterSpec
from workers.contract.run.prompts import PromptsSpec
from workers.contract.run.settings import of_section
from workers.contract.run.sinks import SinkSpec
from workers.contract.run.spec import DataSpec, HangSpec, ModelSpec, RecoverySpec, RewardSpec, RunSpec
from workers.contract.stack import deepspeed
from workers.contract.wire.documents import to_json

LIMITS = LimitsSpec(2.5, 10**9, 40.0, NoBetterSpec("eval_reward", 50, least_gain=0.01), BeyondSpec("kl", 0.5, 5))
EPISODES = EpisodeSpec(
    "search",
    2,
    (PartSpec("find", "calculator", {"digits": 4}),),
    EpisodeLimits(turns=3, count_outputs=False),
    turn_advantage_coef=0.5,
    chat_template="qwen2_5",
    gateway=GatewaySpec("atropos"),
)
DIRECT: dict[str, Any] = {
    setting.name: True if setting.type is bool else f"a/{setting.name}"
    for setting in of_section("")
    if setting.name not in ("name", "attn_implementation")
}
"""Settings of one field each, none with its default."""
SETTINGS: tuple[tuple[dict[str, Any], str | None], ...] = (
    ({}, None),
    ({"max_steps": 200, "learning_rate": 1e-6, "beta": 0.04, "save_steps": 50, "temperature": 1}, "sdpa"),
    ({"num_train_epochs": 1.5, "save_strategy": "epoch", "bf16": True, "fp16": False, "scale_rewards": "none"}, None),
    ({"optim": "sgd", "generation_kwargs": {"a": [{"b": {"c": [1]}}]}, "shuffle_dataset": False}, "eager"),
    ({"bf16": False, "fp16": True, "epsilon_high": 0.28, "eval_strategy": "steps", "warmup_steps": 0.1}, None),
)
"""Cases: GRPOConfig's arguments beside the profile's batch, and the attention implementation."""


def losses(spec: RunSpec) -> list[str]:
    """List what an export and an import change, as `format: path`; empty if all round trips hold."""
    values = own.values_of(spec)
    texts = {
        "spec": to_json(spec),
        "TRL": trl_yaml(spec),
        "Axolotl": axolotl_yaml(spec),
        "accelerate": accelerate_yaml(spec),
    }
    lost = []
    for name, text in texts.items():
        back = documents.read(text.encode(), trl.BASIC_SETTINGS).values
        lost += [f"{name}: {path}" for path in {*values, *back} if values.get(path) != back.get(path)]
    if spec.hardware.strategy in ZERO:
        lost += [f"DeepSpeed: {path}" for path in _sharding_lost(spec.hardware)]
    return sorted(lost)


def hold(specs: Iterable[RunSpec] | None = None) -> bool:
    """Return whether all round trips hold; without `specs`, those of every shipped profile with a few settings."""
    return not any(losses(spec) for spec in (shipped_specs() if specs is None else specs))


SINKS = (SinkSpec("wandb", "sums", "mine", "wb"), SinkSpec("tensorboard", "sums", "mine"))


def shipped_specs() -> Iterator[RunSpec]:
    for profile in SHIPPED_PROFILES:
        for grpo, attention in SETTINGS:
            spec = RunSpec(
                run_id="round-trip",
                name="round trip: #1",
                kind="train",
                model=ModelSpec("Qwen/Qwen2.5-3B-Instruct", revision="main" if attention else None),
                data=DataSpec("sums", 1, "0" * 64, 100, eval_rows=8),
                rewards=(RewardSpec("format", "think_tags", 0.5, {"text": "#! two\nlines: {}"}),),
                hardware=profile.spec,
                grpo={**profile.batch, **grpo},
                lora=profile.lora,
                attn_implementation=attention,
                failed_share=0.25,
                eval_rewards=(RewardSpec("length", "length", 2.0),) if attention else (),
                recovery=RecoverySpec(3, 30) if attention else RecoverySpec(),
                hang=HangSpec(20.0, stop=True) if attention else HangSpec(),
                prompts=PromptsSpec(extra_rounds=3, by_difficulty=True) if attention else PromptsSpec(),
                sinks=SINKS if attention else (),
                limits=LIMITS if attention else LimitsSpec(),
                episodes=EPISODES if attention else None,
                **(DIRECT if attention else {}),
            )
            yield spec
            if profile.spec.strategy in ZERO and not grpo:
                yield replace(spec, hardware=replace(profile.spec, deepspeed=_tuned(profile.spec)))


def _tuned(hardware: HardwareSpec) -> dict[str, Any]:
    usual = deepspeed.usual_config(hardware)["zero_optimization"]
    return {
        "zero_optimization": {**usual, "reduce_bucket_size": 5e7},
        "wall_clock_breakdown": True,
        "aio": {"depth": 8},
    }


def _sharding_lost(hardware: HardwareSpec) -> list[str]:
    """List what a DeepSpeed JSON loses of the sharding and the tuned config that a launch would use."""
    back = documents.read(deepspeed_json(hardware).encode(), trl.BASIC_SETTINGS).values
    offload = back.get("hardware.offload", Offload.NONE)
    if (back.get("hardware.strategy"), offload) != (hardware.strategy, hardware.offload):
        return ["hardware.strategy"]
    again = replace(hardware, deepspeed=back.get("hardware.deepspeed"))
    return [] if deepspeed.config_of(again) == deepspeed.config_of(hardware) else ["hardware.deepspeed"]
