"""Checks of the spec's settings and the installed packages against each other, before anything slow is imported.

They repeat the checks of the profile form and the New run page, because a spec may be written by hand.
"""

import importlib.util
from collections.abc import Iterator

from workers.contract.run import jobs
from workers.contract.run.hardware import ZERO, Optimizer, Quantization, Rollout, WeightSync
from workers.contract.run.spec import AttemptSpec, RunSpec
from workers.contract.stack.hardware_rules import run_problems


def problem(spec: AttemptSpec) -> str | None:
    """Describe the first problem; return None if there is none."""
    return next(_problems(spec), None)


def _problems(spec: AttemptSpec) -> Iterator[str]:
    trains = spec.run.kind not in jobs.KINDS  # a job has the settings of its run, but different hardware
    for problem in run_problems(spec.run) if trains else ():
        yield f"The run's hardware can't be used ({problem.field}): {problem}"
    server, ports = spec.run.hardware.vllm_server, len(spec.placement.ports)
    if server is not None and not (server.attached or spec.placement.warm) and ports < server.count:
        yield f"The spec has {server.count} vLLM servers, but ports for only {ports}."
    yield from _package_problems(spec.run)


def _package_problems(run: RunSpec) -> Iterator[str]:
    hardware, server = run.hardware, run.hardware.vllm_server
    nccl = server is not None and server.weight_sync is WeightSync.NCCL
    bits = hardware.quantization is not Quantization.NONE or hardware.optimizer is Optimizer.ADAMW_8BIT
    not_found = "not installed in the trainer's interpreter."
    for is_needed, package, sentence in (
        (nccl, "vllm", f"Weights are sent to the server over NCCL, which needs vllm, but it is {not_found}"),
        (
            hardware.rollout is Rollout.COLOCATE,
            "vllm",
            f"vLLM runs inside the trainer (colocate), but it is {not_found}",
        ),
        (hardware.strategy in ZERO, "deepspeed", f"{hardware.strategy} needs DeepSpeed, which is {not_found}"),
        (bits, "bitsandbytes", f"8-bit and 4-bit training needs bitsandbytes, which is {not_found}"),
        (hardware.liger_kernels, "liger_kernel", f"Liger's kernels need liger-kernel, which is {not_found}"),
    ):
        if is_needed and not _is_installed(package):
            yield sentence


def _is_installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None
