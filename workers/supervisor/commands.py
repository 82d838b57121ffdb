"""The children's environments on this host, around the commands that workers.commands makes of a spec.

A child gets an allow-list of the host's environment, so neither the token nor the address of Redis nor the web's
secret can reach model code or a person's reward code through it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import workers
from workers import commands
from workers.commands import Programs
from workers.contract import AttemptSpec, ServerPlace
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
    "CUDA_", "NVIDIA_", "NCCL_", "NVSHMEM_", "GLOO_", "TORCH", "PYTORCH_", "TRITON_", "VLLM_", "HF_", "TRANSFORMERS_",
    "DS_", "OMP_", "MKL_",
)  # fmt: skip
_NEVER = frozenset({"CUDA_VISIBLE_DEVICES", "HF_TOKEN", "VLLM_API_KEY"})
"""Decided here or fetched at the claim, never inherited."""
_SAFE_PATH = {"PYTHONSAFEPATH": "1"}
"""`python -m` would look for modules in the working directory first, which is the attempt's folder: its `adapters/`
is no package. A command from the settings may be a script, whose own folder must be looked in."""


def supervisor_environment(settings: HostSettings, source: Mapping[str, str]) -> dict[str, str]:
    return {**_allowed(source), **settings.as_env(), "PYTHONPATH": str(SOURCE_ROOT), "PYTHONUNBUFFERED": "1"}


def programs(settings: HostSettings) -> Programs:
    """What this host starts; it announces them, so that pages show the same commands."""
    python = settings.trainer_python
    return Programs(
        trainer=settings.trainer_command or (python, "-m", "workers.trainer"),
        vllm=settings.vllm_command or (python, "-m", "vllm.entrypoints.cli.main"),
    )


def trainer_argv(settings: HostSettings, folder: Path) -> list[str]:
    return commands.trainer_argv(folder, programs(settings))


def trainer_environment(
    spec: AttemptSpec, settings: HostSettings, source: Mapping[str, str], secrets: Mapping[str, str]
) -> dict[str, str]:
    safe = {} if settings.trainer_command else _SAFE_PATH
    return {**_base(settings, source), **commands.trainer_environment(spec), **secrets, **safe}


def server_argv(spec: AttemptSpec, settings: HostSettings, place: ServerPlace) -> list[str]:
    return commands.server_argv(spec, place, programs(settings))


def server_environment(
    spec: AttemptSpec, settings: HostSettings, source: Mapping[str, str], secrets: Mapping[str, str], place: ServerPlace
) -> dict[str, str]:
    """Of the secrets the server needs one: leave to fetch the model."""
    token = {name: secrets[name] for name in ("HF_TOKEN",) if name in secrets}
    safe = {} if settings.vllm_command else _SAFE_PATH
    return {**_base(settings, source), **commands.server_environment(spec, place), **token, **safe}


def trainer_tool_environment(settings: HostSettings, source: Mapping[str, str]) -> dict[str, str]:
    """For questions to the trainer's interpreter: no GPU, no secrets."""
    return {**_base(settings, source), **commands.devices(())}


def _base(settings: HostSettings, source: Mapping[str, str]) -> dict[str, str]:
    path = os.pathsep.join(part for part in (str(SOURCE_ROOT), settings.trainer_pythonpath) if part)
    return {
        **_allowed(source),
        "PYTHONPATH": path,
        "PYTHONUNBUFFERED": "1",  # logs are followed live
        "DO_NOT_TRACK": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }


def _allowed(source: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in source.items()
        if name not in _NEVER and (name in _NAMES or name.startswith(_PREFIXES))
    }
