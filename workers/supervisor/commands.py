"""What is started: argument lists and environments of the children.

A child gets an allow-list of the host's environment, so neither the token nor the address of Redis nor the web's
secret can reach model code or a person's reward code through it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import workers
from workers.contract import AttemptSpec
from workers.settings import HostSettings

SOURCE_ROOT = Path(workers.__file__).resolve().parent.parent
"""The folder that holds the `workers` package."""

_NAMES = frozenset(
    [
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "LANG",
        "LANGUAGE",
        "LC_ALL",
        "LC_CTYPE",
        "TZ",
        "TMPDIR",
        "TEMP",
        "TMP",
        "LD_LIBRARY_PATH",
        "LD_PRELOAD",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "REQUESTS_CA_BUNDLE",
        "CURL_CA_BUNDLE",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "NO_PROXY",
        "http_proxy",
        "https_proxy",
        "no_proxy",
        "XDG_CACHE_HOME",
        "CC",
        "CXX",
        "MAX_JOBS",
        "KMP_AFFINITY",
        "GOMP_CPU_AFFINITY",
    ]
)
_PREFIXES = (
    "CUDA_", "NVIDIA_", "NCCL_", "GLOO_", "TORCH", "PYTORCH_", "TRITON_", "VLLM_", "HF_", "TRANSFORMERS_", "DS_",
    "OMP_", "MKL_",
)  # fmt: skip
_NEVER = frozenset({"CUDA_VISIBLE_DEVICES", "HF_TOKEN", "VLLM_API_KEY"})
"""Decided here or fetched at the claim, never inherited."""
_SAFE_PATH = {"PYTHONSAFEPATH": "1"}
"""`python -m` would look for modules in the working directory first, which is the attempt's folder: its `adapters/`
is no package. A command from the settings may be a script, whose own folder must be looked in."""


def supervisor_environment(settings: HostSettings, source: Mapping[str, str]) -> dict[str, str]:
    return {**_allowed(source), **settings.as_env(), "PYTHONPATH": str(SOURCE_ROOT), "PYTHONUNBUFFERED": "1"}


def trainer_argv(settings: HostSettings, folder: Path) -> list[str]:
    """The same with one rank and with many: the trainer puts itself under torchrun when the spec asks for more."""
    prefix = settings.trainer_command or (settings.trainer_python, "-m", "workers.trainer")
    return [*prefix, str(folder)]


def trainer_environment(
    spec: AttemptSpec, settings: HostSettings, source: Mapping[str, str], secrets: Mapping[str, str]
) -> dict[str, str]:
    environment = {**_base(settings, source), **_devices(spec.placement.gpus), **secrets}
    environment |= {} if settings.trainer_command else _SAFE_PATH
    if spec.run.hardware.threads:
        environment["OMP_NUM_THREADS"] = str(spec.run.hardware.threads)
    return environment


def server_environment(
    spec: AttemptSpec, settings: HostSettings, source: Mapping[str, str], secrets: Mapping[str, str]
) -> dict[str, str]:
    """Of the secrets the server needs one: leave to fetch the model."""
    token = {name: secrets[name] for name in ("HF_TOKEN",) if name in secrets}
    safe = {} if settings.vllm_command else _SAFE_PATH
    return {**_base(settings, source), **_devices(spec.placement.server_gpus), **token, **safe}


def trainer_tool_environment(settings: HostSettings, source: Mapping[str, str]) -> dict[str, str]:
    """For questions to the trainer's interpreter: no GPU, no secrets."""
    return {**_base(settings, source), **_devices(())}


def _base(settings: HostSettings, source: Mapping[str, str]) -> dict[str, str]:
    path = os.pathsep.join(part for part in (str(SOURCE_ROOT), settings.trainer_pythonpath) if part)
    return {
        **_allowed(source),
        "PYTHONPATH": path,
        "PYTHONUNBUFFERED": "1",  # logs are followed live
        "DO_NOT_TRACK": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }


def _devices(gpus: tuple[int, ...]) -> dict[str, str]:
    """CUDA's own order is by speed; NVML's, which leases name, is by bus."""
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(str(gpu) for gpu in gpus)}


def _allowed(source: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in source.items()
        if name not in _NEVER and (name in _NAMES or name.startswith(_PREFIXES))
    }
