"""The children's environments on this host, around the commands that workers.contract.commands makes of a spec.

A child gets an allow-list of the host's environment, so neither the token nor the address of Redis nor the web's
secret can reach model code or a person's reward code through it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import workers
from workers.contract import AttemptSpec, FileName, ServerPlace, commands
from workers.contract.commands import Programs
from workers.host.settings import HostSettings

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
HUB_TOKEN = "HF_TOKEN"  # noqa: S105  the name of it
_NEVER = frozenset(
    [
        "CUDA_VISIBLE_DEVICES",
        HUB_TOKEN,
        "VLLM_API_KEY",
        "VLLM_PORT",  # where a server's own processes meet: several servers would get the same one
        "VLLM_SERVER_DEV_MODE",
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING",
    ]
)
"""Decided for each process or fetched at the claim, never inherited."""
_SAFE_PATH = {"PYTHONSAFEPATH": "1"}
"""`python -m` would look for modules in the working directory first, which is the attempt's folder: its `adapters/`
is no package. A command from the settings may be a script, whose own folder must be looked in."""


def supervisor_environment(settings: HostSettings, source: Mapping[str, str]) -> dict[str, str]:
    # The interpreter is the launcher's own, so its modules are found where the launcher's were.
    path = os.pathsep.join(part for part in (str(SOURCE_ROOT), source.get("PYTHONPATH", "")) if part)
    return {**_allowed(source), **settings.as_env(), "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}


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
    own = {name: value for name, value in secrets.items() if name != HUB_TOKEN}
    safe = {} if settings.trainer_command else _SAFE_PATH
    return {**_base(settings, source), **commands.trainer_environment(spec), **own, **_offline(spec), **safe}


def server_argv(spec: AttemptSpec, settings: HostSettings, place: ServerPlace) -> list[str]:
    return commands.server_argv(spec, place, programs(settings))


def server_environment(
    spec: AttemptSpec, settings: HostSettings, source: Mapping[str, str], place: ServerPlace
) -> dict[str, str]:
    safe = {} if settings.vllm_command else _SAFE_PATH
    return {**_base(settings, source), **commands.server_environment(spec, place), **_offline(spec), **safe}


def needs_download(spec: AttemptSpec) -> bool:
    """A model is named by a hub id. One that lies in the cache is looked at, too: that is quick."""
    return bool(commands.hub_models(spec.run))


def download_argv(spec: AttemptSpec, settings: HostSettings, folder: Path) -> list[str]:
    program = settings.fetch_command or (settings.trainer_python, "-m", "workers.trainer.fetch")
    return [*program, *commands.fetch_arguments(spec.run), "--progress", str(folder / FileName.DOWNLOAD)]


def download_environment(
    settings: HostSettings, source: Mapping[str, str], secrets: Mapping[str, str], host_token: str
) -> dict[str, str]:
    """No GPU, and of the secrets the one that the hub asks for."""
    token = secrets.get(HUB_TOKEN) or host_token
    safe = {} if settings.fetch_command else _SAFE_PATH
    return {**_base(settings, source), **commands.devices(()), **({HUB_TOKEN: token} if token else {}), **safe}


def _offline(spec: AttemptSpec) -> dict[str, str]:
    """What was fetched is what is used: no process asks the hub again, and none has its token."""
    return {"HF_HUB_OFFLINE": "1"} if needs_download(spec) else {}


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
