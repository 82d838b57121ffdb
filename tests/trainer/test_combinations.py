"""What a profile asks for that the stack can't do is refused with a sentence; what it can becomes GRPOConfig."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from controlplane.catalogue.hardware.shipped import SHIPPED_PROFILES, by_slug
from tests.trainer import builders
from workers.contract.run.hardware import (
    Offload,
    Optimizer,
    Precision,
    Quantization,
    Rollout,
    ServerSpec,
    Strategy,
    WeightSync,
)
from workers.contract.run.spec import AttemptSpec, LoraSpec
from workers.contract.wire.documents import from_dict
from workers.contract.wire.names import FileName
from workers.trainer.configuration import combinations, hardware

LORA = {"lora": LoraSpec()}
GPU = {"trainer_gpus": 1, "processes": 1, "cpu_slots": 0}
TWO = {"trainer_gpus": 2, "processes": 2, "cpu_slots": 0}
COLOCATE = {**GPU, "rollout": Rollout.COLOCATE}
BITS4 = {**GPU, "quantization": Quantization.NF4}
BITS8 = {**GPU, "quantization": Quantization.INT8}


def server(**asked: Any) -> dict[str, Any]:
    return {**GPU, "rollout": Rollout.SERVER, "server": ServerSpec(**asked)}


def attempt(folder: Path, profile: dict[str, Any], run: dict[str, Any], ports: int = 1, **grpo: Any) -> AttemptSpec:
    placement = {"ports": list(range(9000, 9000 + ports))}
    builders.attempt_folder(folder, model="a/b", hardware=profile, run=run, placement=placement, grpo=grpo)
    return from_dict(AttemptSpec, json.loads((folder / FileName.SPEC).read_bytes()))


@pytest.fixture
def all_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(combinations, "_is_installed", lambda package: True)


@pytest.mark.usefixtures("all_installed")
@pytest.mark.parametrize(
    ("profile", "run", "words"),
    [
        ({"processes": 2}, {}, "Choose DDP, ZeRO or FSDP2"),
        ({"processes": 0}, {}, "at least one trainer process"),
        ({**TWO, "processes": 3}, {}, "With 2 GPUs there must be as many processes"),
        ({**GPU, "strategy": Strategy.FSDP2}, {}, "FSDP2 shards over processes, but there is only one"),
        ({"processes": 2, "strategy": Strategy.FSDP2}, {}, "FSDP2 needs GPUs"),
        ({**TWO, "strategy": Strategy.FSDP2, "optimizer": Optimizer.ADAMW_8BIT}, {}, "8-bit AdamW doesn't support"),
        ({**TWO, "strategy": Strategy.DDP, "offload": Offload.OPTIMIZER}, {}, "Only ZeRO can keep"),
        ({**TWO, "strategy": Strategy.ZERO2, "offload": Offload.PARAMETERS}, {}, "Only ZeRO-3 and FSDP2"),
        (
            {**TWO, "strategy": Strategy.ZERO2, "offload": Offload.OPTIMIZER, "optimizer": Optimizer.ADAFACTOR},
            {},
            "Offloaded states must be AdamW's",
        ),
        ({"precision": Precision.FP16}, {}, "fp16 needs a GPU"),
        ({"liger_kernels": True}, {}, "Liger's kernels need a GPU"),
        ({"memory_cap_gib": 8.0}, {}, "A cap on GPU memory needs a GPU"),
        ({**GPU, "memory_cap_gib": 0.0}, {}, "above 0 GiB"),
        (BITS4, {}, "only a LoRA on it can be trained"),
        ({**TWO, **BITS4, **TWO, "strategy": Strategy.ZERO3}, LORA, "can't shard packed weights"),
        ({**COLOCATE, **BITS8}, LORA, "can't use 8-bit weights"),
        ({**COLOCATE, **BITS4, "colocate_sleep": True}, LORA, "Turn sleep off"),
        ({**server(), **BITS4}, LORA, "can't be streamed over NCCL"),
        (
            {**COLOCATE, **TWO, "strategy": Strategy.DDP, "colocate_tensor_parallel": 4},
            {},
            "2 trainer processes can't be split into groups of 4",
        ),
        ({**COLOCATE, "colocate_memory_utilization": 1.0}, {}, "above 0 and below 1"),
        (
            {
                **COLOCATE,
                "colocate_sleep": True,
                "environment": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
            },
            {},
            "expandable_segments:True can't be combined with",
        ),
        ({"environment": {"LD_PRELOAD": "x"}}, {}, "LD_PRELOAD can't be set"),
        (server(count=2, weight_sync=WeightSync.LORA), LORA, "2 vLLM servers, but ports for only 1"),
        (server(attached=("http://a:1", "http://b:2")), {}, "NCCL updates one server, but there are 2"),
        (server(attached=("https://a/v1",)), {}, "https://a/v1 is not of the form http://host:port"),
        (
            {**server(), "trainer_gpus": 0, "cpu_slots": 1},
            {},
            "NCCL needs a GPU for the server and another for the trainer",
        ),
        (server(shared=True, gpu_memory_utilization=0.5), {}, "NCCL refuses a server on the trainer's own GPU"),
    ],
)
def test_what_the_stack_cannot_do_is_refused(
    profile: dict[str, Any], run: dict[str, Any], words: str, tmp_path: Path
) -> None:
    assert words in str(combinations.problem(attempt(tmp_path, profile, run)))


@pytest.mark.usefixtures("all_installed")
@pytest.mark.parametrize(
    ("profile", "run"),
    [
        ({}, {}),
        ({**TWO, "strategy": Strategy.FSDP2, "offload": Offload.PARAMETERS}, {}),
        ({**TWO, "strategy": Strategy.ZERO3, "offload": Offload.PARAMETERS, "rollout": Rollout.COLOCATE}, LORA),
        ({**COLOCATE, **BITS4}, LORA),
        ({**server(weight_sync=WeightSync.LORA), **BITS8}, LORA),
        (server(attached=("http://a:1", "http://[::1]:2"), weight_sync=WeightSync.LORA), LORA),
        (server(attached=("http://a:1",), shared=True), {}),
        ({**server(), "strategy": Strategy.ZERO1, "offload": Offload.OPTIMIZER}, {}),
    ],
)
def test_what_it_can_do_is_not(profile: dict[str, Any], run: dict[str, Any], tmp_path: Path) -> None:
    assert combinations.problem(attempt(tmp_path, profile, run)) is None


def test_a_package_that_is_not_there_is_named_before_torch_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(combinations, "_is_installed", lambda package: package == "vllm")
    told = [
        combinations.problem(attempt(tmp_path / str(number), profile, LORA))
        for number, profile in enumerate(({**GPU, "strategy": Strategy.ZERO2}, BITS4, {**GPU, "liger_kernels": True}))
    ]
    assert [words in str(one) for words, one in zip(("DeepSpeed", "bitsandbytes", "liger-kernel"), told, strict=True)]


# --- what it becomes ----------------------------------------------------------------------------------------


def settings(folder: Path, profile: dict[str, Any], run: dict[str, Any] | None = None, **grpo: Any) -> dict[str, Any]:
    return hardware.settings(attempt(folder, profile, run or {}, **grpo).run)


def test_a_gpu_trains_in_bf16_with_checkpointing_and_a_cpu_does_not(tmp_path: Path) -> None:
    on_gpu, on_cpu = settings(tmp_path / "a", GPU), settings(tmp_path / "b", {})
    wanted = ("bf16", "fp16", "gradient_checkpointing", "optim")
    assert [on_gpu[name] for name in wanted] == [True, False, True, "adamw_torch_fused"]
    assert [on_cpu[name] for name in wanted] == [False, False, False, "adamw_torch_fused"]
    assert on_cpu["dataloader_pin_memory"] is False


def test_the_runs_own_settings_go_before_the_profiles(tmp_path: Path) -> None:
    own = {"fp16": True, "optim": "lion_8bit", "gradient_checkpointing": False, "vllm_max_model_length": 512}
    profile = {**COLOCATE, "colocate_max_model_len": 2048, "precision": Precision.BF16}
    merged = settings(tmp_path, profile, **own)
    assert {name: merged[name] for name in own} == own
    assert merged["bf16"] is False


@pytest.mark.parametrize(
    ("asked", "precision", "flags"),
    [
        ({}, Precision.FP16, (False, True)),
        ({}, Precision.FP32, (False, False)),
        ({"bf16": False}, Precision.AUTO, (False, False)),
        ({"bf16": True}, Precision.FP16, (True, False)),
    ],
)
def test_no_more_than_one_precision_is_ever_on(
    asked: dict[str, Any], precision: Precision, flags: tuple[bool, bool], tmp_path: Path
) -> None:
    merged = settings(tmp_path, {**GPU, "precision": precision}, **asked)
    assert (merged["bf16"], merged["fp16"]) == flags


def test_zero_leaves_what_grpo_config_knows_to_transformers(tmp_path: Path) -> None:
    merged = settings(tmp_path, {**TWO, "strategy": Strategy.ZERO2})
    config = merged["deepspeed"]
    assert merged["optim"] == "adamw_torch"
    assert config["zero_optimization"]["stage"] == 2
    assert {config[f"{name}"]["enabled"] for name in ("bf16", "fp16")} == {"auto"}
    assert config["train_batch_size"] == config["gradient_clipping"] == "auto"
    assert "optimizer" not in config
    assert "offload_optimizer" not in config["zero_optimization"]


def test_zero_3_saves_a_model_that_others_can_load(tmp_path: Path) -> None:
    profile = {**TWO, "strategy": Strategy.ZERO3, "offload": Offload.PARAMETERS}
    config = settings(tmp_path, profile)["deepspeed"]
    assert config["zero_optimization"]["stage3_gather_16bit_weights_on_model_save"] is True
    assert config["zero_optimization"]["offload_param"] == {"device": "cpu", "pin_memory": True}
    assert config["optimizer"]["type"] == "AdamW"  # DeepSpeed makes its CPU Adam of it


def test_a_profiles_own_deepspeed_config_is_used_as_it_is(tmp_path: Path) -> None:
    kept = {
        "zero_optimization": {"stage": 2, "reduce_bucket_size": 5e7},
        "activation_checkpointing": {"partition_activations": True, "cpu_checkpointing": True},
    }
    config = settings(tmp_path, {**TWO, "strategy": Strategy.ZERO2, "deepspeed": kept})["deepspeed"]
    assert kept.items() <= config.items()
    assert config["train_batch_size"] == config["gradient_accumulation_steps"] == "auto"


def test_ranks_wait_longer_for_each_other_than_for_the_servers(tmp_path: Path) -> None:
    assert settings(tmp_path, server(request_timeout_s=7200))["ddp_timeout"] > 7200


def test_fsdp2_checkpoints_its_layers_itself_but_not_around_adapters(tmp_path: Path) -> None:
    profile = {**TWO, "strategy": Strategy.FSDP2}
    whole, adapters = settings(tmp_path / "a", profile), settings(tmp_path / "b", profile, LORA)
    assert (whole["fsdp_config"]["activation_checkpointing"], whole["gradient_checkpointing"]) == (True, False)
    assert (adapters["fsdp_config"]["activation_checkpointing"], adapters["gradient_checkpointing"]) == (False, True)


@pytest.mark.parametrize(
    ("profile", "run", "dtype"),
    [
        (GPU, {}, None),  # fp32 weights under bf16 autocast
        (GPU, LORA, "bfloat16"),
        (COLOCATE, LORA, None),  # merged into the base and out again, step by step
        (server(weight_sync=WeightSync.LORA), LORA, "bfloat16"),
        ({**GPU, "strategy": Strategy.ZERO3}, {}, "bfloat16"),
        ({**BITS4, "precision": Precision.FP32}, LORA, None),
        ({**TWO, "strategy": Strategy.FSDP2}, LORA, None),
    ],
)
def test_the_model_is_loaded_no_wider_than_its_weights_are_used(
    profile: dict[str, Any], run: dict[str, Any], dtype: str | None, tmp_path: Path
) -> None:
    asked = attempt(tmp_path, profile, run).run
    merged = hardware.settings(asked)
    assert hardware.loading_dtype(asked, bf16=merged["bf16"], fp16=merged["fp16"]) == dtype


@pytest.mark.usefixtures("all_installed")
@pytest.mark.parametrize("slug", [profile.slug for profile in SHIPPED_PROFILES])
def test_no_shipped_profile_is_refused(slug: str, tmp_path: Path) -> None:
    profile = by_slug(slug)
    asked = attempt(tmp_path, {}, {"hardware": profile.spec, "lora": profile.lora}, ports=2, **profile.batch)
    assert combinations.problem(asked) is None
    hardware.settings(asked.run)
