"""Packages outside the control plane's environment: torch and vLLM, and those with an interpreter of their own.

Without a GPU torch is not in the hashed lock, because its CPU build has another name in each place it comes from. On a
machine with a GPU everything comes from a lock of its own, since vLLM's pins differ from a machine without one.
"""

from dataclasses import dataclass

ENVIRONMENT = ".venv-environments"
"""The folder of the environment, next to the source."""
GROUP = "environments"
"""The dependency group; built by `python3 -m controlplane.setup.bootstrap.on_demand environments`."""
PYTHON = "GRPO_ENVIRONMENTS_PYTHON"
"""The variable that names another interpreter with them."""
REASONING_GYM, TEXTARENA, OPENENV = "reasoning-gym", "textarena", "openenv"
ALL = (REASONING_GYM, TEXTARENA, OPENENV)
"""Names of distributions; a host announces their versions as `packages`."""


@dataclass(frozen=True)
class TorchSet:
    torch: str
    min_driver: int
    """Major version of the NVIDIA driver; 0: no driver needed."""
    vllm: str | None = None
    extras: tuple[str, ...] = ()

    @property
    def requirements(self) -> tuple[str, ...]:
        return (f"torch=={self.torch}", *([f"vllm=={self.vllm}"] if self.vllm else []), *self.extras)


CPU = TorchSet(torch="2.13.0", min_driver=0)
EXTRAS = ("deepspeed==0.19.8", "bitsandbytes==0.50.2", "liger-kernel==0.8.5")
"""Packages that profiles may need beyond torch and vLLM. flash-attn has no wheel in the index: hosts bring it."""
GPU = TorchSet(torch="2.13.0", min_driver=580, vllm="0.31.0", extras=EXTRAS)
GPU_TORCH_2_11 = TorchSet(torch="2.11.0", min_driver=580, vllm="0.22.1", extras=EXTRAS)
"""Versions for hosts whose image includes torch 2.11; they bring their own interpreter and set GRPO_TRAINER_PYTHON."""

SETS = {"cpu": CPU, "gpu": GPU, "gpu-torch-2.11": GPU_TORCH_2_11}
"""Versions of torch and vLLM that belong together: installed by the bootstrap, known to preflight, pinned in locks."""
