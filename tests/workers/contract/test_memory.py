"""The memory model against what was measured on GPUs, and against what follows from the settings."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.gpu import estimates, memory, results
from workers.contract.memory import estimate
from workers.contract.memory.parts import Part, Settings
from workers.contract.memory.shapes import Shape, adapter, shape_of
from workers.contract.memory.trainer import GIB, peak
from workers.contract.run.hardware import (
    HardwareSpec,
    Offload,
    Optimizer,
    Quantization,
    Rollout,
    ServerSpec,
    Strategy,
)
from workers.contract.run.spec import LoraSpec

MEASURED = json.loads(memory.COMMITTED.read_text(encoding="utf-8"))["cases"]
WITHIN_PERCENT = 10.0


def test_a_trainer_is_estimated_within_ten_percent(subtests: pytest.Subtests) -> None:
    for compared in list(estimates.trainers()):
        with subtests.test(compared.name):
            assert abs(compared.error_percent) <= WITHIN_PERCENT, compared


def test_whole_runs_are_estimated_within_ten_percent() -> None:
    compared = list(estimates.runs(results.read(results.COMMITTED)))
    assert len(compared) >= 13
    assert [one for one in compared if abs(one.error_percent) > WITHIN_PERCENT] == []


UNPACKED = [case for case in MEASURED if "uint8" not in case["parameters"]]


def test_parameters_are_counted_exactly(subtests: pytest.Subtests) -> None:
    for case in UNPACKED:
        with subtests.test(case["name"]):
            shape, _, settings = estimates.of_case(case)
            trained = sum(count for name, count in case["parameters"].items() if "trained" in name)
            total = sum(case["parameters"].values())
            assert trained == (adapter(shape, settings.lora) if settings.lora else shape.total)
            assert total - (trained if settings.lora else 0) == shape.total


def test_packed_experts_stay_as_they_are_in_four_bits() -> None:
    packed = {case["name"]: case["parameters"] for case in MEASURED if case["name"].startswith("4bit")}
    for name in ("4bit-qwen3-moe", "4bit-gpt-oss", "4bit-7b"):
        shape = estimates.shape_named(name.removeprefix("4bit-"))
        assert 2 * packed[name]["uint8"] == shape.linear
        assert packed[name]["bfloat16"] == shape.total - shape.linear


# --- what follows from the settings -----------------------------------------------------------------------------------

SEVEN = estimates.shape_named("7b")
ONE = HardwareSpec("one", trainer_gpus=1)
PLAIN = Settings(batch=4, prompt_tokens=200, completion_tokens=800)
LORA = LoraSpec(16, 32, 0.0, ("q_proj", "v_proj"))


def total(hardware: HardwareSpec = ONE, shape: Shape = SEVEN, **settings: Any) -> float:
    return peak(shape, hardware, replace(PLAIN, **settings)).total


def test_full_training_takes_sixteen_bytes_for_each_parameter_and_what_comes_on_top() -> None:
    least = 16 * SEVEN.total / GIB
    assert least < total() < 1.1 * least


@pytest.mark.parametrize(
    ("cheaper", "dearer"),
    [
        (total(), total(checkpointing=False)),
        (total(batch=1), total(batch=16)),
        (total(completion_tokens=100), total(completion_tokens=8000)),
        (total(lora=LORA), total()),
        (total(optimizer=Optimizer.ADAMW_8BIT), total()),
        (total(optimizer=Optimizer.ADAFACTOR), total(optimizer=Optimizer.ADAMW_8BIT)),
        (total(), total(reference=True)),
        (total(replace(ONE, quantization=Quantization.NF4), lora=LORA), total(lora=LORA)),
        (total(replace(ONE, quantization=Quantization.NF4), lora=LORA),
         total(replace(ONE, quantization=Quantization.INT8), lora=LORA)),
        (total(lora=LORA), total(replace(ONE, rollout=Rollout.COLOCATE), lora=LORA)),  # merged: fp32 weights
    ],
)  # fmt: skip
def test_what_saves_memory_does(cheaper: float, dearer: float) -> None:
    assert cheaper < dearer


def test_each_stage_of_sharding_takes_less_on_each_gpu() -> None:
    ranks = replace(ONE, trainer_gpus=4, processes=4)
    stages = [Strategy.DDP, Strategy.ZERO1, Strategy.ZERO2, Strategy.ZERO3]
    sizes = [total(replace(ranks, strategy=stage)) for stage in stages]
    assert sizes == sorted(sizes, reverse=True)
    assert total(replace(ranks, strategy=Strategy.ZERO3, offload=Offload.PARAMETERS)) < sizes[-1]


def test_a_reference_model_is_a_copy_of_the_weights_and_with_a_lora_there_is_none() -> None:
    full = peak(SEVEN, ONE, replace(PLAIN, reference=True)).parts
    assert full[Part.REFERENCE] == full[Part.WEIGHTS]
    assert total(lora=LORA, reference=True) == total(lora=LORA)


def test_a_vllm_that_sleeps_and_the_training_do_not_add_up() -> None:
    beside = replace(ONE, rollout=Rollout.COLOCATE, colocate_memory_utilization=0.4)
    asleep = replace(beside, colocate_sleep=True)
    shape = estimates.shape_named("1.5b")
    awake, slept = (estimate(shape, spec, PLAIN, cards=[80.0]).gpus[0] for spec in (beside, asleep))
    assert awake.parts[Part.VLLM] == pytest.approx(32.0)
    assert slept.total < awake.total


def test_a_server_has_gpus_of_its_own_and_says_how_many_sequences_it_runs_at_once() -> None:
    spec = replace(ONE, rollout=Rollout.SERVER, server=ServerSpec(gpu_memory_utilization=0.9))
    answer = estimate(SEVEN, spec, PLAIN, cards=[140.0], servers=[24.0])
    assert [gpu.role for gpu in answer.gpus] == ["trainer", "server"]
    assert answer.serving is not None
    # 24 × 0.9 − 14.2 GiB of weights leaves a few GiB, at 56 KiB a token.
    assert 20 < answer.serving.sequences(1000) < 120


def test_a_cache_of_a_given_size_comes_on_top_of_weights_and_activations() -> None:
    for shared in (False, True):
        server = ServerSpec(gpus=1, kv_cache_gib=10, shared=shared, gpu_memory_utilization=0.4)
        hardware = replace(ONE, rollout=Rollout.SERVER, server=server)
        answer = estimate(SEVEN, hardware, replace(PLAIN, lora=LORA), cards=[140], servers=[] if shared else [140])
        vllm = answer.serving
        assert vllm is not None
        assert vllm.cache == 10
        assert vllm.share == pytest.approx(vllm.weights + vllm.activations + 10)
        assert answer.gpus[-1].parts[Part.VLLM] == vllm.share


def test_a_share_below_the_weights_leaves_no_cache() -> None:
    spec = replace(ONE, rollout=Rollout.SERVER, server=ServerSpec(gpu_memory_utilization=0.5))
    answer = estimate(SEVEN, spec, PLAIN, cards=[140.0], servers=[24.0])
    assert answer.serving is not None
    assert answer.serving.cache < 0
    assert answer.serving.tokens == 0


def test_the_profiling_pass_of_a_long_context_takes_what_a_log_says() -> None:
    """vLLM's own words for a 7B model that it profiled with 131,072 tokens at once: 17.39 GiB of activations."""
    assert 131_072 * (6 * SEVEN.inner + 8 * SEVEN.hidden) / GIB == pytest.approx(17.39, rel=0.01)


def test_what_is_offloaded_is_in_the_hosts_memory() -> None:
    ranks = replace(ONE, trainer_gpus=2, processes=2, strategy=Strategy.ZERO2)
    kept = estimate(SEVEN, ranks, PLAIN, cards=[80.0, 80.0]).ram_gib
    moved = estimate(SEVEN, replace(ranks, offload=Offload.OPTIMIZER), PLAIN, cards=[80.0, 80.0]).ram_gib
    assert moved - kept == pytest.approx(16 * SEVEN.total / GIB)


def test_a_cap_makes_a_card_smaller() -> None:
    capped = estimate(SEVEN, replace(ONE, memory_cap_gib=15.0), replace(PLAIN, lora=LORA), cards=[140.0])
    assert capped.gpus[0].total > capped.gpus[0].card_gib


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"config": []},
        {"config": {"hidden_size": "many", "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 10}},
        {"config": {"hidden_size": 0, "num_hidden_layers": 0, "num_attention_heads": 0, "vocab_size": 0}},
    ],
)
def test_a_config_without_sizes_has_no_shape(facts: dict[str, Any]) -> None:
    assert shape_of(facts) is None


def test_the_count_in_the_files_wins_over_the_formula() -> None:
    config = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100}
    assert shape_of({"model_type": "unheard-of", "config": config, "parameters": 1_000_000}).total == 1_000_000  # type: ignore[union-attr]
