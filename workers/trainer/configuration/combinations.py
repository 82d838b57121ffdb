"""Checks that the spec's settings and the installed packages fit together, before anything slow is imported.

Repeats the checks of the profile form and the New run page, because a spec may be written by hand.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

from workers.contract.run import jobs
from workers.contract.run.hardware import ZERO, Optimizer, Quantization, Rollout, WeightSync
from workers.contract.run.spec import AttemptSpec, RunSpec
from workers.contract.stack.hardware_rules import run_problems


def problem(spec: AttemptSpec) -> str | None:
    """Return the first problem as a sentence, or None."""
    return next(_problems(spec), None)


def _problems(spec: AttemptSpec) -> Iterator[str]:
    training = spec.run.kind not in jobs.KINDS  # a job has the settings of its run, and another hardware
    for problem in run_problems(spec.run) if training else ():
        yield f"The run's hardware can't be used ({problem.field}): {problem}"
    server, ports = spec.run.hardware.vllm_server, len(spec.placement.ports)
    if server is not None and not (server.attached or spec.placement.warm) and ports < server.count:
        yield f"The spec has {server.count} vLLM servers, but ports for {ports}."
    yield from _packages(spec.run)


def _packages(run: RunSpec) -> Iterator[str]:
    hardware, server = run.hardware, run.hardware.vllm_server
    if server is not None and server.weight_sync is WeightSync.NCCL and not _installed("vllm"):
        yield "Weights go to the server over NCCL, but vllm is not installed beside the trainer for it."
    if hardware.rollout is Rollout.COLOCATE and not _installed("vllm"):
        yield "vLLM runs inside the trainer (colocate), but it is not installed in the trainer's interpreter."
    if hardware.strategy in ZERO and not _installed("deepspeed"):
        yield f"{hardware.strategy} needs DeepSpeed, which is not installed in the trainer's interpreter."
    bits = hardware.quantization is not Quantization.NONE or hardware.optimizer is Optimizer.ADAMW_8BIT
    if bits and not _installed("bitsandbytes"):
        yield "8- and 4-bit training needs bitsandbytes, which is not installed in the trainer's interpreter."
    if hardware.liger_kernels and not _installed("liger_kernel"):
        yield "Liger's kernels need liger-kernel, which is not installed in the trainer's interpreter."


def _installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None
