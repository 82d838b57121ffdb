"""The versions of torch and vLLM, pinned exactly, chosen by whether a GPU with a recent driver responds.

Without a GPU torch is not in the hashed lock, because its CPU build has another name in each place it comes from. Where
a GPU answers, all comes from a lock of its own, since vLLM's pins differ from a machine without it. The sets are data:
preflight reads them too, and the lock is made from them.
"""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from controlplane.setup.bootstrap.console import Failed, ask, say

if TYPE_CHECKING:
    from controlplane.setup.bootstrap.installers import Installer


@dataclass(frozen=True)
class TorchSet:
    """Versions that belong together."""

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
"""What profiles may ask for beyond torch and vLLM. flash-attn has no wheel in the index: it is used where it is."""
GPU = TorchSet(torch="2.13.0", min_driver=580, vllm="0.31.0", extras=EXTRAS)
GPU_TORCH_2_11 = TorchSet(torch="2.11.0", min_driver=580, vllm="0.22.1", extras=EXTRAS)
"""For hosts whose image includes torch 2.11; they bring their own interpreter and set GRPO_TRAINER_PYTHON."""

SETS = {"cpu": CPU, "gpu": GPU, "gpu-torch-2.11": GPU_TORCH_2_11}

_CUDA_ANSWERS = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
count = ctypes.c_int()
raise SystemExit(cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)) or count.value == 0)
"""


def has_gpu() -> bool:
    """Whether a driver and a GPU respond; checked in separate processes, which can each create a CUDA context."""
    smi = shutil.which("nvidia-smi")
    if smi and (ask([smi, "-L"]) or "").startswith("GPU "):
        return True
    return ask([sys.executable, "-c", _CUDA_ANSWERS]) is not None


def driver() -> int | None:
    """The major version of the NVIDIA driver; None if nvidia-smi doesn't report it."""
    smi = shutil.which("nvidia-smi")
    answer = ask([smi, "--query-gpu=driver_version", "--format=csv,noheader"]) if smi else None
    major = (answer or "").strip().partition(".")[0]
    return int(major) if major.isdecimal() else None


def gpu_usable() -> bool:
    """Whether torch with CUDA can run here; says what is installed and why."""
    if not has_gpu():
        say("No GPU answers: installing the CPU build of torch (about 200 MB) …")
    elif (version := driver()) is not None and version < GPU.min_driver:
        say(f"The NVIDIA driver is {version}, and torch {GPU.torch} with CUDA needs {GPU.min_driver} or later:")
        say("installing the CPU build of torch (about 200 MB) …")
    else:
        say("A GPU answers: installing torch with CUDA and vLLM (several gigabytes) …")
        return True
    return False


def install_cpu(installer: Installer, python: Path) -> None:
    """Install the CPU build: from find-links if available, otherwise from PyTorch's index by uv's option for it."""
    from controlplane.setup.bootstrap.installers import Uv

    requirement = f"torch=={CPU.torch}"
    arguments = ["--no-deps", requirement]  # its dependencies are in the lock
    if "+cpu" in installer.would_install(python, requirement) or sys.platform == "darwin":
        installer.install(python, arguments, "torch")
    elif isinstance(installer, Uv):
        installer.install(python, ["--torch-backend", "cpu", *arguments], "torch")
    else:
        raise Failed(
            f"pip alone would fetch torch {CPU.torch} with gigabytes of CUDA, and this machine has no GPU.\n"
            "Put uv on PATH, or point PIP_FIND_LINKS at a folder with torch's CPU wheel, and run the command again."
        )
