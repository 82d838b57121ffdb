"""Packages outside the control plane's environment: torch and vLLM, and those with their own interpreter.

Without a GPU, torch is not in the hashed lock, because its CPU build has a different name in each index. On a machine
with a GPU, everything comes from a separate lock, since vLLM's pins differ from those of a machine without one.
"""

from dataclasses import dataclass, field

ENVIRONMENT = ".venv-environments"
GROUP = "environments"
"""Dependency group, installed by `python3 -m controlplane.setup.bootstrap.on_demand environments`."""
PYTHON = "GRPO_ENVIRONMENTS_PYTHON"
"""Environment variable that names another interpreter with these packages."""
REASONING_GYM, TEXTARENA, OPENENV = "reasoning-gym", "textarena", "openenv"
THIRD_PARTY_PACKAGES = (REASONING_GYM, TEXTARENA, OPENENV)
"""Names of distributions; a host announces their versions as `packages`."""


@dataclass(frozen=True)
class TorchSet:
    torch: str
    min_driver: int
    """Minimum major version of the NVIDIA driver; 0 if none is needed."""
    vllm: str | None = None
    extras: tuple[str, ...] = ()
    proved: str = field(default="", repr=False)
    """Last day and card of runs that trained with these versions (tests/gpu/results.json). Not in the representation,
    from which the bootstrap sees whether an environment must be built anew."""

    @property
    def requirements(self) -> tuple[str, ...]:
        return (f"torch=={self.torch}", *([f"vllm=={self.vllm}"] if self.vllm else []), *self.extras)


CPU = TorchSet(torch="2.13.0", min_driver=0)
EXTRAS = ("deepspeed==0.19.8", "bitsandbytes==0.50.2", "liger-kernel==0.8.5")
"""Packages that profiles may need beyond torch and vLLM. flash-attn has no wheel in the index, so hosts bring it."""
GPU = TorchSet("2.13.0", min_driver=580, vllm="0.31.0", extras=EXTRAS, proved="2026-11-30 on NVIDIA H200")
GPU_TORCH_2_11 = TorchSet("2.11.0", min_driver=580, vllm="0.22.1", extras=EXTRAS, proved="2026-11-21 on NVIDIA H200")
"""Versions for hosts whose image includes torch 2.11; they bring their own interpreter and set GRPO_TRAINER_PYTHON."""

SETS = {"cpu": CPU, "gpu": GPU, "gpu-torch-2.11": GPU_TORCH_2_11}
"""Versions of torch and vLLM that belong together: installed by the bootstrap, known to preflight, pinned in locks."""
