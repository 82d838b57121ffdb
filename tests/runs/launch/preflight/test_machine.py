"""What a host's machine can't do: each brings up its finding, and its fix or remedy makes it go."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from runs.launch import preflight
from runs.launch.preflight.draft import Draft, GpuFacts
from runs.launch.preflight.finding import Finding, Grade
from tests.runs.launch.preflight.test_preflight import COLOCATE, CPU, FINE, GPU_BOX, NCCL
from workers.contract.run.hardware import HardwareSpec

VERSIONS = {"vllm": "0.31.0", "torch": "2.13.0+cu130"}
OLD = (GpuFacts(0, 16_000, True, capability="7.5"), GpuFacts(1, 16_000, True, capability="7.5"))


def drafted(hardware: HardwareSpec = COLOCATE, *, host: dict[str, Any] | None = None, **changes: Any) -> Draft:
    box = replace(GPU_BOX, **{"versions": VERSIONS, "driver": "580.159", "cuda_usable": True, **(host or {})})
    return replace(FINE, hosts=(box,), hardware=hardware, **changes)


def found(draft: Draft, words: str) -> Finding | None:
    return next((one for one in preflight.check(draft) if words in one.cause), None)


CASES: list[tuple[dict[str, Any], Grade, str, str]] = [
    ({"host": {"cuda_usable": False, "versions": {"vllm": "0.31.0", "torch": "2.13.0+cpu"}}}, Grade.STOP, "host",
     "a CPU build of torch (2.13.0+cpu)"),
    ({"host": {"cuda_usable": False, "cuda_built_for": "13.0", "driver": "535.104"}}, Grade.STOP, "host",
     "is too old for CUDA 13.0, for which its torch is built. Driver 580 or later"),
    ({"host": {"cuda_usable": False, "cuda_built_for": "12.8", "driver": "470.1"}}, Grade.STOP, "host", "525 or later"),
    ({"host": {"cuda_usable": False, "cuda_built_for": "13.0"}}, Grade.STOP, "host", "finds no usable GPU"),
    ({"host": {"gpus": OLD}}, Grade.STOP, "precision", "(CUDA capability 7.5) doesn't support bf16"),
    ({"attn_implementation": "flash_attention_2"}, Grade.STOP, "attn_implementation", "needs the package flash-attn"),
    ({"hardware": replace(COLOCATE, liger_kernels=True)}, Grade.STOP, "profile", "liger-kernel, which box doesn't"),
    ({"grpo": {**FINE.grpo, "use_liger_kernel": True}}, Grade.STOP, "use_liger_kernel", "liger-kernel, which box"),
    ({"host": {"shm_mib": 64}}, Grade.WARN, "host", "64 MiB of shared memory"),
]  # fmt: skip


def test_what_the_machine_lacks_is_said(subtests: pytest.Subtests) -> None:
    for changes, grade, field, words in CASES:
        with subtests.test(field=field):
            finding = found(drafted(**changes), words)
            assert finding is not None
            assert (finding.grade, finding.field) == (grade, field)
            assert finding.fix


@pytest.mark.parametrize(
    ("words", "changes"),
    [
        ("doesn't support bf16", {"host": {"gpus": OLD}, "grpo": {**FINE.grpo, "bf16": False, "fp16": True}}),
        ("flash-attn", {"attn_implementation": "sdpa"}),
        ("flash-attn", {"attn_implementation": "flash_attention_2",
                        "host": {"versions": {**VERSIONS, "flash-attn": "2.8"}}}),
        ("liger-kernel", {"hardware": replace(COLOCATE, liger_kernels=True),
                          "grpo": {**FINE.grpo, "use_liger_kernel": False}}),
        ("liger-kernel", {"hardware": replace(COLOCATE, liger_kernels=True),
                          "host": {"versions": {**VERSIONS, "liger-kernel": "0.8"}}}),
        ("shared memory", {"host": {"shm_mib": 64_000}}),
        ("shared memory", {"host": {"shm_mib": None}}),
        ("torch", {"host": {"cuda_usable": None}}),
        ("", {"hardware": CPU, "host": {"cuda_usable": False, "shm_mib": 1, "gpus": OLD}}),
    ],
)  # fmt: skip
def test_what_it_has_or_nobody_needs_is_not(words: str, changes: dict[str, Any]) -> None:
    finding = found(drafted(**changes), words or "shared memory")
    assert finding is None


def test_one_host_that_can_is_enough() -> None:
    draft = drafted(NCCL, host={"cuda_usable": False, "cuda_built_for": ""})
    both = replace(draft, hosts=(*draft.hosts, replace(draft.hosts[0], name="good", cuda_usable=True)))
    assert found(draft, "CPU build")
    assert found(both, "CPU build") is None
