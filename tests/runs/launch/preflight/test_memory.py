"""What preflight says about memory: each finding is brought up, and each fix makes it go."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest

from controlplane.catalogue.hardware.shipped import SHIPPED_PROFILES
from runs.launch import preflight
from runs.launch.preflight.draft import DataFacts, Draft, GpuFacts, OtherProfile
from runs.launch.preflight.estimating import best_estimate
from runs.launch.preflight.finding import Finding, Fix, Grade
from tests.gpu.models import SHAPES
from tests.runs.launch.preflight.test_gpu import BIG_BOX
from tests.runs.launch.preflight.test_preflight import FINE, MODEL
from workers.contract.memory.parts import Part
from workers.contract.run.hardware import (
    HardwareSpec,
    Offload,
    Quantization,
    Rollout,
    ServerSpec,
    Strategy,
    WeightSync,
)
from workers.contract.run.spec import LoraSpec

ONE = HardwareSpec("one GPU", trainer_gpus=1)
COLOCATE = HardwareSpec("colocate", Rollout.COLOCATE, trainer_gpus=1, colocate_max_model_len=1024)
SERVER = HardwareSpec("server", Rollout.SERVER, trainer_gpus=1, server=ServerSpec(max_model_len=1024))
SHARED = replace(SERVER, server=ServerSpec(shared=True, gpu_memory_utilization=0.6, weight_sync=WeightSync.LORA))
LORA = LoraSpec()


def drafted(shape: str, spec: HardwareSpec, card_gib: float = 24, gpus: int = 4, **changes: Any) -> Draft:
    cards = tuple(GpuFacts(index, int(card_gib * 1024), True) for index in range(gpus))
    inspection = {**MODEL, "model_type": "qwen2", "config": asdict(SHAPES[shape]), "context_length": 8192}
    del inspection["parameters"]
    batch = {"per_device_train_batch_size": 8, "num_generations": 8, "max_completion_length": 512}
    grpo = {**FINE.grpo, **batch, **changes.pop("grpo", {})}
    host = replace(BIG_BOX, gpus=cards, **changes.pop("host", {}))
    data = replace(FINE.data or DataFacts("sums"), longest_prompt_tokens=100)
    return replace(FINE, inspection=inspection, hosts=(host,), hardware=spec, grpo=grpo, data=data, **changes)


def about_memory(draft: Draft) -> list[Finding]:
    found = [finding for finding in preflight.check(draft) if finding.field == "profile"]
    return [finding for finding in found if "GiB" in finding.cause or "KV cache" in finding.cause]


def after(draft: Draft, fix: Fix) -> Draft:
    """The draft as the form would read it once the fix has filled in its values."""
    values = dict(fix.values)
    other = next((one for one in draft.profiles if one.key == values.pop("profile", None)), None)
    if other:
        return replace(draft, hardware=other.spec, lora=other.lora, grpo={**draft.grpo, **other.batch})
    lora = LORA if values.pop("use_lora", "") else draft.lora
    grpo = {**draft.grpo, **{name: int(text) if text.isdigit() else text for name, text in values.items()}}
    return replace(draft, lora=lora, grpo={name: value for name, value in grpo.items() if value != ""})


PROFILES = tuple(
    OtherProfile(str(number), profile.spec, profile.lora, dict(profile.batch), {})
    for number, profile in enumerate(SHIPPED_PROFILES)
)

OVER: list[tuple[str, Draft, str]] = [
    ("full training", drafted("3b", ONE, 40), "optimizer states 23"),
    ("a 3B model on the guide's 24 GB", drafted("3b", SERVER), "needs about"),
    ("a small model", drafted("0.5b", ONE, 8), "GPU 0 of big needs about"),
    ("no checkpointing", drafted("1.5b", ONE, 10, lora=LORA, grpo={"gradient_checkpointing": False}), "activations"),
    ("long completions", drafted("7b", ONE, 24, lora=LORA, grpo={"max_completion_length": 6000}), "activations"),
    ("a reference model", drafted("1.5b", ONE, 30, grpo={"beta": 0.04}), "reference model"),
    ("a cap", drafted("7b", replace(ONE, memory_cap_gib=8.0), lora=LORA), "caps it at 8 GiB"),
    ("vLLM beside it", drafted("7b", SHARED, 40, lora=LORA), "vLLM 24"),
    ("a merged LoRA is fp32", drafted("7b", SERVER, 24, lora=LORA), "weights 28"),
]


def test_what_is_over_is_refused_with_its_parts_and_each_fix_makes_it_fit(subtests: pytest.Subtests) -> None:
    for draft, words in [case[1:] for case in OVER]:
        with subtests.test(draft=draft):
            [finding] = [one for one in about_memory(draft) if one.grade == Grade.STOP]
            assert words in finding.cause
            assert finding.fix.startswith("The largest part is ")
            for fix in finding.fixes:
                assert not [one for one in about_memory(after(draft, fix)) if one.grade == Grade.STOP], fix


@pytest.mark.parametrize(
    ("draft", "label"),
    [
        (OVER[3][1], "Turn on gradient checkpointing"),
        (drafted("7b", ONE, 18, lora=LORA, grpo={"per_device_train_batch_size": 16}),
         "Use a batch of 8 per process and 2 passes"),
        (drafted("7b", ONE, 20, lora=LORA, grpo={"max_completion_length": 6000}),
         "Use a batch of 1 per process and 8 passes"),
        (OVER[0][1], "Train a LoRA"),
        (drafted("1.5b", ONE, 22), "Use 8-bit AdamW"),
    ],
)  # fmt: skip
def test_the_cheapest_that_is_enough_is_offered(draft: Draft, label: str) -> None:
    fixes = [fix.label for finding in about_memory(draft) for fix in finding.fixes]
    assert label in fixes


def test_where_no_single_change_is_enough_the_first_together_are_offered() -> None:
    draft = drafted("7b", ONE, 16.5, grpo={"per_device_train_batch_size": 16, "max_completion_length": 2048})
    [finding] = [one for one in about_memory(draft) if one.grade == Grade.STOP]
    assert any(", train a LoRA" in fix.label or fix.label.startswith("Batch of") for fix in finding.fixes)
    assert all(best_estimate(after(draft, fix)).fits for fix in finding.fixes)  # type: ignore[union-attr]


def test_another_profile_is_offered_that_fits() -> None:
    draft = drafted("7b", ONE, 16, gpus=1, profiles=PROFILES)
    [finding] = [one for one in about_memory(draft) if one.grade == Grade.STOP]
    profile = next(fix for fix in finding.fixes if "profile" in fix.values)
    assert "4-bit" in profile.label


def test_no_fix_is_offered_where_nothing_helps() -> None:
    larger = drafted("20b", ONE, 8, gpus=1)
    assert [fix for finding in about_memory(larger) for fix in finding.fixes] == []


def test_a_gpu_that_will_be_nearly_full_is_a_warning() -> None:
    whole = best_estimate(drafted("1.5b", ONE, 80))
    assert whole is not None
    total = whole.estimate.gpus[0].total
    [finding] = about_memory(drafted("1.5b", ONE, total * 1.01))
    assert finding.grade == Grade.WARN
    assert "nearly full" in finding.cause
    assert about_memory(drafted("1.5b", ONE, total * 1.1)) == []


FEW = replace(SERVER, server=ServerSpec(max_model_len=1024, gpu_memory_utilization=0.42, weight_sync=WeightSync.LORA))
VLLM: list[tuple[str, Draft, Grade, str]] = [
    ("no room for weights", drafted("7b", replace(SERVER, server=ServerSpec(gpu_memory_utilization=0.5)), lora=LORA),
     Grade.STOP, "vLLM's weights take 14.2 GiB"),
    ("a long context", drafted("1.5b", replace(COLOCATE, colocate_max_model_len=None, colocate_memory_utilization=0.18),
                               24, lora=LORA), Grade.STOP, "vLLM's KV cache holds about"),
    ("few at once", drafted("7b", FEW, 40, lora=LORA, grpo={"per_device_train_batch_size": 64}), Grade.NOTE,
     "of a step's 64 completions at once"),
]  # fmt: skip


@pytest.mark.parametrize(("draft", "grade", "words"), [case[1:] for case in VLLM], ids=[case[0] for case in VLLM])
def test_vllms_share_is_reckoned(draft: Draft, grade: Grade, words: str) -> None:
    assert any(one.grade == grade and words in one.cause for one in preflight.check(draft)), preflight.check(draft)


def test_what_is_offloaded_must_fit_the_hosts_memory() -> None:
    offloads = HardwareSpec("offload", trainer_gpus=1, strategy=Strategy.ZERO3, offload=Offload.PARAMETERS)
    small = drafted("7b", offloads, 80, host={"ram_mib": 32 * 1024})
    assert any("kernel would kill the trainer" in one.cause for one in preflight.check(small))
    assert not any("kernel" in one.cause for one in preflight.check(drafted("7b", offloads, 80)))


FITS = [
    drafted("1.5b", ONE, 40),
    drafted("0.5b", COLOCATE, 24),
    drafted("1.5b", SHARED, 40, lora=LORA),
    drafted("7b", replace(ONE, quantization=Quantization.NF4), 24, lora=LORA),
    drafted("7b", replace(ONE, trainer_gpus=4, processes=4, strategy=Strategy.ZERO3), 48),
    drafted("20b", replace(ONE, quantization=Quantization.NF4), 24, lora=LORA, grpo={"per_device_train_batch_size": 1}),
]


def test_what_can_run_is_not_refused(subtests: pytest.Subtests) -> None:
    for draft in FITS:
        with subtests.test(draft=draft):
            assert [one for one in about_memory(draft) if one.grade == Grade.STOP] == []


def test_the_bar_shows_the_parts_of_each_gpu() -> None:
    answer = best_estimate(drafted("1.5b", replace(SERVER, trainer_gpus=2, processes=2, strategy=Strategy.DDP), 80))
    assert answer is not None
    assert [gpu.role for gpu in answer.estimate.gpus] == ["trainer", "trainer", "server"]
    assert answer.estimate.gpus[0].parts[Part.OPTIMIZER] == pytest.approx(11.5, rel=0.01)


def test_a_model_without_sizes_is_reckoned_by_its_parameters() -> None:
    draft = replace(drafted("7b", ONE, 80), inspection={"ok": True, "parameters": 7_615_616_512})
    unknown, known = best_estimate(draft), best_estimate(drafted("7b", ONE, 80))
    assert unknown is not None
    assert known is not None
    assert unknown.estimate.gpus[0].total == pytest.approx(known.estimate.gpus[0].total, rel=0.1)


@pytest.mark.parametrize(
    "inspection", [None, {}, {"ok": False}, {"ok": True, "quantization": "mxfp4", "parameters": 10**10}]
)
def test_without_facts_nothing_is_said(inspection: dict[str, Any] | None) -> None:
    draft = replace(drafted("7b", ONE), inspection=inspection)
    assert best_estimate(draft) is None
    assert about_memory(draft) == []
