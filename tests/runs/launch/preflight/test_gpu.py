"""The GPU path's findings: heads, GPUs, ports, servers, memory, packages, and what a profile was made for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from runs.launch import preflight
from runs.launch.preflight.checks.servers import can_split
from runs.launch.preflight.draft import GpuFacts
from runs.launch.preflight.finding import Finding, Grade
from tests.runs.launch.preflight.test_preflight import (
    COLOCATE,
    CPU,
    FINE,
    GPU_BOX,
    LORA,
    MODEL,
    NCCL,
    SWAP,
    grpo,
    model,
)
from workers.contract.run.hardware import (
    HardwareSpec,
    Offload,
    Optimizer,
    Quantization,
    Rollout,
    ServerSpec,
    Strategy,
    WeightSync,
)

GPUS = tuple(GpuFacts(index, 140_000, True) for index in range(4))
BUSY_FIRST = (replace(GPUS[0], foreign_mib=70_000), *GPUS[1:])
VERSIONS = {"vllm": "0.31.0", "torch": "2.13.0", "deepspeed": "0.19.8", "bitsandbytes": "0.50.2"}
BIG_BOX = replace(GPU_BOX, name="big", gpus=GPUS, versions=VERSIONS)
SMALL = (replace(BIG_BOX, gpus=tuple(replace(gpu, memory_mib=24 * 1024) for gpu in GPUS)),)
HEADS = model(heads=16, kv_heads=2)
SEVEN = model(parameters=7_000_000_000)
ATTACHED = ("http://127.0.0.1:8000",)


def server(profile: HardwareSpec = NCCL, **fields: Any) -> dict[str, Any]:
    assert profile.server is not None
    return {"hardware": replace(profile, server=replace(profile.server, **fields))}


def hardware(profile: HardwareSpec, **fields: Any) -> dict[str, Any]:
    return {"hardware": replace(profile, **fields)}


def ranks(count: int, **fields: Any) -> dict[str, Any]:
    profile = HardwareSpec("ranks", trainer_gpus=count, processes=count, strategy=Strategy.DDP)
    return {"hardware": replace(profile, **fields)}


def box(**facts: Any) -> dict[str, Any]:
    return {"hosts": (replace(BIG_BOX, **facts),)}


def found(**changes: Any) -> list[Finding]:
    return preflight.check(replace(FINE, **{"hosts": (BIG_BOX,), **changes}))


MADE_FOR = {"use_lora": "on", "lora_r": "16", "lora_alpha": "32", "lora_dropout": "0.1", "lora_targets": "q_proj"}
CASES: list[tuple[dict[str, Any], Grade, str, str]] = [
    # tensor and data parallelism
    ({**HEADS, **server(tensor_parallel=3, gpus=3)}, Grade.STOP, "profile", "16 attention heads and 2 key-value heads"),
    (
        {**HEADS, **ranks(3, rollout=Rollout.COLOCATE, colocate_tensor_parallel=3)},
        Grade.STOP,
        "profile",
        "of the colocated vLLM",
    ),
    (
        {**model(config={"model_type": "qwen2"}), **server(data_parallel=2, gpus=2)},
        Grade.WARN,
        "profile",
        "this model is dense",
    ),
    # GPUs
    (hardware(COLOCATE, trainer_gpu_ids=(7,)), Grade.STOP, "profile", "has no GPU 7, which the profile names"),
    (server(gpu_ids=(9,)), Grade.STOP, "profile", "has GPUs 0 to 3"),
    ({**hardware(COLOCATE), **box(gpus=(), gpu_error="NVML: Driver/library mismatch")}, Grade.STOP, "profile", "NVML"),
    (server(gpu_ids=(0,), gpus=1) | hardware(NCCL, trainer_gpus=9, processes=9), Grade.STOP, "profile", "has 4 GPUs"),
    (box(gpus=(replace(GPUS[0], foreign_mib=70_000),)) | hardware(COLOCATE), Grade.WARN, "profile", "68.4 GiB in use"),
    (hardware(COLOCATE, trainer_gpu_ids=(0,)) | box(gpus=BUSY_FIRST), Grade.WARN, "profile", "GPU 0 of big"),
    # ports
    ({**server(port=21005), **box(ports_held={21005: "other"})}, Grade.WARN, "profile", "held by the run other"),
    ({**server(port=21005), **box(listening=frozenset([21005]))}, Grade.STOP, "profile", "another program listens"),
    (
        {**server(SWAP, count=2, port=21005), "lora": LORA, **box(listening=frozenset([21006]))},
        Grade.STOP,
        "profile",
        "Port 21006 on big",
    ),
    (server(port=8000), Grade.NOTE, "profile", "outside the range that big reserves"),
    (server(port=80), Grade.STOP, "profile", "between 1024 and 65535"),
    ({**server(), **box(port_range=(21000, 21000), listening=frozenset([21000]))}, Grade.WARN, "host", "free: 0."),
    ({**server(), **box(port_range=(21000, 21000))}, Grade.WARN, "host", "free: 1."),  # one more for the weights
    # servers that somebody else runs
    (server(attached=ATTACHED), Grade.WARN, "profile", "Nothing can be proved about a server"),
    (server(attached=ATTACHED), Grade.WARN, "profile", "VLLM_SERVER_DEV_MODE=1"),
    (
        server(attached=ATTACHED) | box(gpus=(replace(GPUS[0], kept_mib=864, kept_by=ATTACHED),)),
        Grade.WARN,
        "profile",
        "GPU 0 of big has 864 MiB in use for earlier runs, kept by http://127.0.0.1:8000",
    ),
    (server(attached=("http://far:8000",)), Grade.NOTE, "profile", "Keep it on a separate network"),
    ({**server(SWAP, attached=ATTACHED), "lora": LORA}, Grade.NOTE, "profile", "--max-lora-rank at least 16"),
    ({**server(SWAP, attached=("http://far:8000",)), "lora": LORA}, Grade.WARN, "profile", "must see that folder"),
    (hardware(CPU, rollout=Rollout.SERVER, server=ServerSpec(attached=ATTACHED)), Grade.STOP, "profile", "needs a GPU"),
    # weights
    ({**server(), "lora": LORA}, Grade.NOTE, "use_lora", "merges the adapter into the weights"),
    ({**server(), **hardware(NCCL, quantization=Quantization.NF4), "lora": LORA}, Grade.STOP, "profile", "NCCL"),
    # quantization
    (hardware(COLOCATE, quantization=Quantization.NF4), Grade.STOP, "use_lora", "base model in 4bit"),
    ({"lora": LORA, **hardware(COLOCATE, quantization=Quantization.INT8)}, Grade.STOP, "profile", "8-bit weights"),
    (
        {"lora": LORA, **ranks(1, quantization=Quantization.NF4), **model(quantization="gptq")},
        Grade.STOP,
        "profile",
        "already quantized",
    ),
    (model(quantization="awq"), Grade.STOP, "use_lora", "quantized (awq)"),
    # colocate
    (
        hardware(COLOCATE, colocate_sleep=True, environment={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
        Grade.STOP,
        "profile",
        "sleep mode",
    ),
    (ranks(3, rollout=Rollout.COLOCATE, colocate_tensor_parallel=2), Grade.STOP, "profile", "groups of 2"),
    # lengths
    (
        {**hardware(COLOCATE, colocate_max_model_len=256), **grpo(max_completion_length=256)},
        Grade.STOP,
        "max_completion_length",
        "the colocated vLLM's maximum length",
    ),
    (server(max_model_len=4096), Grade.STOP, "profile", "context has only 2,048"),
    (hardware(COLOCATE, colocate_max_model_len=4096), Grade.STOP, "profile", "sequences have 4,096 tokens"),
    # packages
    ({**ranks(2, strategy=Strategy.ZERO2), **box(versions={"vllm": "0.31.0"})}, Grade.STOP, "profile", "no deepspeed"),
    ({**ranks(1, optimizer=Optimizer.ADAMW_8BIT), **box(versions={"trl": "1"})}, Grade.STOP, "profile", "8-bit optim"),
    (
        {"grpo": {"optim": "adamw_bnb_8bit"}, **box(versions={"trl": "1"})},
        Grade.STOP,
        "optim",
        "which big doesn’t have",
    ),
    ({**server(), **box(versions={"vllm": "0.21.3"})}, Grade.WARN, "host", "supports 0.22 to 0.31"),
    ({**server(), **box(versions={"vllm": "0.32.0+cu130"})}, Grade.WARN, "host", "has vLLM 0.32.0"),
    ({**server(), **box(versions={**VERSIONS, "torch": "2.12.0"})}, Grade.NOTE, "host", "an untested combination"),
    # strategy
    (ranks(1, strategy=Strategy.ZERO2), Grade.NOTE, "profile", "the profile has only one"),
    ({**ranks(2, strategy=Strategy.ZERO3), "lora": LORA}, Grade.NOTE, "use_lora", "shards the frozen weights"),
    # what the profile was made for
    ({"made_for": MADE_FOR}, Grade.NOTE, "use_lora", "made for a LoRA of rank 16"),
    ({"made_for": {"use_lora": ""}, "lora": LORA}, Grade.NOTE, "use_lora", "made for training all weights"),
    ({"made_for": MADE_FOR, "lora": LORA}, Grade.NOTE, "use_lora", "dropout 0 instead of 0.1"),
    (
        {"made_for": {"num_generations": "16"}, **grpo(num_generations=8)},
        Grade.NOTE,
        "num_generations",
        "made for 16, but this run has 8",
    ),
    ({**ranks(1), **grpo(bf16=False, fp16=True)}, Grade.NOTE, "precision", "trains in bf16, but this run in fp16"),
    ({**ranks(1, optimizer=Optimizer.ADAFACTOR), **grpo(optim="sgd")}, Grade.NOTE, "optim", "overrides the profile"),
]
IDS = [f"{case[2]}: {case[3]}" for case in CASES]


def test_a_change_brings_up_its_finding(subtests: pytest.Subtests) -> None:
    for changes, grade, field, words in CASES:
        with subtests.test(field=field):
            findings = found(**changes)
            assert any(f.grade == grade and f.field == field and words in f.cause for f in findings), findings
            assert all(f.fix for f in findings if f.grade != Grade.NOTE)


FINE_ONES: list[dict[str, Any]] = [
    hardware(COLOCATE, colocate_sleep=True),
    {**HEADS, **server(tensor_parallel=2, gpus=2)},
    {**server(SWAP, count=2), "lora": LORA},
    {**server(SWAP, shared=True, gpu_memory_utilization=0.35), "lora": LORA},
    {**server(SWAP, attached=ATTACHED), "lora": LORA, **box(versions={"trl": "1.16.0"})},
    server(gpu_ids=(3,), port=21500),
    {**SEVEN, **ranks(4, strategy=Strategy.ZERO3)},
    {**SEVEN, "hosts": SMALL, **ranks(1, quantization=Quantization.NF4), "lora": LORA},
    {**SEVEN, "hosts": SMALL, **ranks(1, strategy=Strategy.ZERO3, offload=Offload.PARAMETERS)},
    box(listening=frozenset(range(21000, 22000))),
]


def test_what_can_run_is_not_refused(subtests: pytest.Subtests) -> None:
    for changes in FINE_ONES:
        with subtests.test(changes=changes):
            assert not preflight.blocks(found(**changes)), [f for f in found(**changes) if f.grade == Grade.STOP]


@pytest.mark.parametrize(
    ("heads", "kv_heads", "sizes"),
    [
        (16, 2, [1, 2, 4, 8, 16]),
        (14, 2, [1, 2, 14]),
        (28, 4, [1, 2, 4, 28]),
        (12, 0, [1, 2, 3, 4, 6, 12]),
    ],
)
def test_tensor_parallel_sizes_are_those_of_vllm(heads: int, kv_heads: int, sizes: list[int]) -> None:
    """Query heads are split evenly; key-value heads too, or copied to a whole number of GPUs each."""
    assert [size for size in range(1, 33) if can_split(heads, kv_heads, size)] == sizes


def test_a_size_that_fits_is_offered_for_one_that_does_not() -> None:
    finding = next(f for f in found(**HEADS, **server(tensor_parallel=3, gpus=3)) if "heads" in f.cause)
    assert finding.fix == "Choose a profile with tensor parallelism 1, 2, 4, 8 or 16."


def test_one_host_with_the_port_free_is_enough() -> None:
    taken = replace(BIG_BOX, name="taken", listening=frozenset([21005]))
    assert not preflight.blocks(found(**server(port=21005), hosts=(taken, BIG_BOX)))
    assert preflight.blocks(found(**server(port=21005), hosts=(taken,)))


def test_memory_that_an_attached_server_keeps_is_put_down_to_it() -> None:
    attached = {**server(attached=ATTACHED), **box(gpus=(replace(GPUS[0], foreign_mib=1_500),))}
    [finding] = [f for f in found(**attached) if "in use" in f.cause]
    assert finding.fix.endswith("keeps some of each run's memory there. Restart http://127.0.0.1:8000 to free it.")


def test_every_deviation_has_its_own_fix_and_one_mends_them_all() -> None:
    made_for = {**MADE_FOR, "num_generations": "16", "max_completion_length": "1024"}
    changes = {"made_for": made_for, **grpo(num_generations=8, max_completion_length=512)}
    fixes = {fix.label: fix.values for f in found(**changes) for fix in f.fixes if "profile's" in fix.label}
    assert fixes["Use the profile's LoRA"] == MADE_FOR
    assert fixes["Use the profile's generations per prompt: 16"] == {"num_generations": "16"}
    assert fixes["Use all the profile's values"] == made_for


def test_a_run_as_its_profile_was_made_for_has_no_deviation() -> None:
    lora = replace(LORA, dropout=0.1, target_modules=("q_proj",))
    changes = {"made_for": {**MADE_FOR, "num_generations": "8"}, "lora": lora, **grpo(num_generations=8)}
    assert not [f for f in found(**changes) if "made for" in f.cause]


BROKEN: list[dict[str, Any]] = [
    hardware(COLOCATE, processes=0),
    hardware(COLOCATE, colocate_tensor_parallel=0),
    hardware(NCCL, server=None),
    server(count=0, port=21000),
    server(tensor_parallel=0, gpus=0, data_parallel=0),
    server(port=-5),
    server(attached=("http://[", "x", "")),
    server(weight_sync=WeightSync.LORA, gpus=-1),
    {**HEADS, **hardware(COLOCATE, trainer_gpus=-1, colocate_memory_utilization=-1.0)},
    {**model(parameters="many", heads=-3, kv_heads=True, config=[]), **server(tensor_parallel=3)},
]


def test_a_profile_that_makes_no_sense_is_refused_and_breaks_no_check(subtests: pytest.Subtests) -> None:
    for changes in BROKEN:
        with subtests.test(changes=changes):
            assert MODEL["ok"]
            assert preflight.check(replace(FINE, hosts=(BIG_BOX,), **{**SEVEN, **changes}))


def test_a_gpu_that_something_else_works_on_is_no_matter_while_there_are_others():
    assert not [finding for finding in found(**hardware(COLOCATE), **box(gpus=BUSY_FIRST)) if "in use" in finding.cause]
