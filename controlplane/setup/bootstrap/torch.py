"""Installs torch: with CUDA and vLLM if a GPU with a recent driver responds, else the CPU build.

The versions are in workers.contract.stack.packages.
"""

import shutil
import sys
from pathlib import Path

from controlplane.setup.bootstrap.console import Failed, ask, say
from controlplane.setup.bootstrap.installers import Installer, Uv
from workers.contract.stack.packages import CPU, GPU

_CUDA_ANSWERS = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
count = ctypes.c_int()
raise SystemExit(cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)) or count.value == 0)
"""


def has_gpu() -> bool:
    """Check whether a driver and a GPU respond, in separate processes, which may each create a CUDA context."""
    smi = shutil.which("nvidia-smi")
    if smi and (ask([smi, "-L"]) or "").startswith("GPU "):
        return True
    return ask([sys.executable, "-c", _CUDA_ANSWERS]) is not None


def driver() -> int | None:
    """Return the major version of the NVIDIA driver; None if nvidia-smi doesn't report it."""
    smi = shutil.which("nvidia-smi")
    answer = ask([smi, "--query-gpu=driver_version", "--format=csv,noheader"]) if smi else None
    major = (answer or "").strip().partition(".")[0]
    return int(major) if major.isdecimal() else None


def gpu_usable() -> bool:
    """Check whether torch with CUDA can run here. Print what will be installed and why."""
    if not has_gpu():
        say("No GPU responds: installing the CPU build of torch (about 200 MB) …")
    elif (version := driver()) is not None and version < GPU.min_driver:
        say(f"The NVIDIA driver is {version}, and torch {GPU.torch} with CUDA needs {GPU.min_driver} or later:")
        say("installing the CPU build of torch (about 200 MB) …")
    else:
        say("A GPU responds: installing torch with CUDA and vLLM (several gigabytes) …")
        return True
    return False


def install_cpu(installer: Installer, python: Path) -> None:
    """Install the CPU build: from find-links if available, otherwise from PyTorch's index by uv's option for it."""
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
