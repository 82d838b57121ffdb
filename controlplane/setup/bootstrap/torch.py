"""Installation of torch: with CUDA and vLLM if a GPU with a recent driver responds, otherwise the CPU build.

The versions are in workers.contract.stack.packages.
"""

import shutil
import sys
from pathlib import Path

from controlplane.setup.bootstrap.console import Failed, ask, say
from controlplane.setup.bootstrap.installers import Installer, Uv
from workers.contract.stack.packages import CPU, GPU

_CUDA_CHECK = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
count = ctypes.c_int()
raise SystemExit(cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)) or count.value == 0)
"""


def has_gpu() -> bool:
    """Return whether a driver and a GPU respond. This is checked in other processes, which may create CUDA contexts."""
    smi = shutil.which("nvidia-smi")
    if smi and (ask([smi, "-L"]) or "").startswith("GPU "):
        return True
    return ask([sys.executable, "-c", _CUDA_CHECK]) is not None


def driver_version() -> int | None:
    """Return the major version of the NVIDIA driver, or None if nvidia-smi doesn't report it."""
    smi = shutil.which("nvidia-smi")
    output = ask([smi, "--query-gpu=driver_version", "--format=csv,noheader"]) if smi else None
    major = (output or "").strip().partition(".")[0]
    return int(major) if major.isdecimal() else None


def gpu_usable() -> bool:
    """Return whether torch with CUDA can run here, and print what will be installed and why."""
    if not has_gpu():
        say("No GPU responds, so installing the CPU build of torch (about 200 MB) …")
    elif (version := driver_version()) is not None and version < GPU.min_driver:
        say(f"The NVIDIA driver is {version}, but torch {GPU.torch} with CUDA needs {GPU.min_driver} or later.")
        say("Installing the CPU build of torch instead (about 200 MB) …")
    else:
        say("A GPU responds, so installing torch with CUDA and vLLM (several gigabytes) …")
        return True
    return False


def install_cpu(installer: Installer, python: Path) -> None:
    """Install torch's CPU build: from find-links if it is there, otherwise from PyTorch's index with uv. Raises Failed
    if only pip is available."""
    requirement = f"torch=={CPU.torch}"
    arguments = ["--no-deps", requirement]  # its dependencies are in the lock
    if "+cpu" in installer.would_install(python, requirement) or sys.platform == "darwin":
        installer.install(python, arguments, "torch")
    elif isinstance(installer, Uv):
        installer.install(python, ["--torch-backend", "cpu", *arguments], "torch")
    else:
        raise Failed(
            f"pip alone would fetch torch {CPU.torch} with gigabytes of CUDA, but this machine has no GPU.\n"
            "Put uv on PATH, or point PIP_FIND_LINKS at a folder with torch's CPU wheel, and run the command again."
        )
