"""The children's environments on this host, for the commands that workers.contract.stack.commands derives from a spec.

A child gets an allow-list of the host's environment, so that neither the token nor Redis's address nor the web's secret
can reach model or reward code.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import workers
from workers.contract.run import benchmarks, gateway, jobs, sinks
from workers.contract.run.spec import AttemptSpec, ServerPlace
from workers.contract.stack import commands, packages
from workers.contract.stack.commands import Programs
from workers.contract.wire.names import FileName
from workers.settings import HostSettings, variable

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
HUB_TOKEN = "HF_TOKEN"  # noqa: S105  # its name
_NEVER = frozenset(
    [
        "CUDA_VISIBLE_DEVICES",
        HUB_TOKEN,
        "VLLM_API_KEY",
        "VLLM_PORT",  # a server's processes meet there: several servers would get the same one
        "VLLM_SERVER_DEV_MODE",
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING",
    ]
)
"""Set per process or fetched at the claim, never inherited."""
_OFFLINE = frozenset(["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
_SAFE_PATH = {"PYTHONSAFEPATH": "1"}
"""`python -m` would search the working directory first: the attempt's folder, whose `adapters/` isn't a package.
Commands from the settings may be scripts that need their own folder."""


def supervisor_environment(settings: HostSettings, source: Mapping[str, str]) -> dict[str, str]:
    # The launcher's own interpreter, so that modules are found where the launcher found them.
    path = os.pathsep.join(part for part in (str(SOURCE_ROOT), source.get("PYTHONPATH", "")) if part)
    return {**_allowed(source), **settings.as_env(), "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}


def programs(settings: HostSettings) -> Programs:
    """The commands of this host, which it announces so that pages show the same ones."""
    python = settings.trainer_python
    return Programs(
        trainer=settings.trainer_command or (python, "-m", "workers.trainer"),
        vllm=settings.vllm_command or (python, "-m", "workers.trainer.vllm"),
    )


def trainer_argv(settings: HostSettings, folder: Path) -> list[str]:
    return commands.trainer_argv(folder, programs(settings))


def trainer_environment(
    spec: AttemptSpec, settings: HostSettings, source: Mapping[str, str], secrets: Mapping[str, str]
) -> dict[str, str]:
    if jobs.pushes(spec.run.kind):
        return _pushing_environment(settings, source, secrets)
    others = (sinks.SECRET_PREFIX, sinks.LINK, HUB_TOKEN)
    reward_secrets = {name: value for name, value in secrets.items() if not name.startswith(others)}
    safe = {} if settings.trainer_command else _SAFE_PATH
    if spec.run.kind == jobs.BENCHMARK:
        more = _benchmarking(settings)
    elif spec.run.kind == jobs.GGUF:
        more = {variable("llama_cpp_dir"): str(settings.llama_cpp_dir or "")}
    else:
        more = {**reward_secrets, **_offline(spec), **_packages(settings), **_atropos(spec, settings)}
    return {**_base(settings, source), **commands.trainer_environment(spec), **more, **safe}


def _benchmarking(settings: HostSettings) -> dict[str, str]:
    python = settings.lm_eval_python or str(SOURCE_ROOT / benchmarks.ENVIRONMENT / "bin" / "python")
    tasks = settings.lm_eval_tasks
    return {variable("lm_eval_python"): python, **({variable("lm_eval_tasks"): str(tasks)} if tasks else {})}


def packages_python(settings: HostSettings) -> str:
    return settings.environments_python or str(SOURCE_ROOT / packages.ENVIRONMENT / "bin" / "python")


def _packages(settings: HostSettings) -> dict[str, str]:
    return {packages.PYTHON: settings.environments_python} if settings.environments_python else {}


def atropos_python(settings: HostSettings) -> str:
    return settings.atropos_python or str(SOURCE_ROOT / gateway.ENVIRONMENT / "bin" / "python")


def _atropos(spec: AttemptSpec, settings: HostSettings) -> dict[str, str]:
    of_run = spec.run.episodes.gateway if spec.run.episodes else None
    asked = of_run is not None and of_run.kind == gateway.ATROPOS and settings.atropos_python
    return {gateway.PYTHON: settings.atropos_python} if asked else {}


def sinks_python(settings: HostSettings) -> str:
    return settings.sinks_python or str(SOURCE_ROOT / sinks.ENVIRONMENT / "bin" / "python")


def sinks_environment(
    spec: AttemptSpec, settings: HostSettings, source: Mapping[str, str], secrets: Mapping[str, str]
) -> dict[str, str]:
    """Of what sends the figures elsewhere: no GPU, and no secret but the sinks' own. A person's login on this host is
    nobody else's, so what W&B would find of one is out of its sight."""
    own = {name: value for name, value in secrets.items() if name.startswith(sinks.SECRET_PREFIX)}
    named = {sinks.PYTHON: settings.sinks_python} if settings.sinks_python else {}
    ours = f"{settings.control_url.rstrip('/')}/runs/{spec.run.run_id}/"
    link = {sinks.LINK: secrets.get(sinks.LINK, ours)}
    quiet = {"NETRC": os.devnull, "MLFLOW_DISABLE_TELEMETRY": "true"}
    return {**_base(settings, source), **commands.devices(()), **quiet, **named, **link, **own, **_SAFE_PATH}


def _pushing_environment(
    settings: HostSettings, source: Mapping[str, str], secrets: Mapping[str, str]
) -> dict[str, str]:
    """Of a push to the hub: no GPU, and no secret but the hub's token. It goes online on a host that otherwise doesn't:
    a person has asked for it. Uploads go over HTTP, whose bytes can be counted, and not over Xet."""
    base = {name: value for name, value in _base(settings, source).items() if name not in _OFFLINE}
    token = {name: value for name, value in secrets.items() if name == HUB_TOKEN}
    safe = {} if settings.trainer_command else _SAFE_PATH
    return {**base, **commands.devices(()), **token, "HF_HUB_DISABLE_XET": "1", **safe}


def server_argv(spec: AttemptSpec, settings: HostSettings, place: ServerPlace) -> list[str]:
    return commands.server_argv(spec, place, programs(settings))


def server_environment(
    spec: AttemptSpec, settings: HostSettings, source: Mapping[str, str], place: ServerPlace
) -> dict[str, str]:
    safe = {} if settings.vllm_command else _SAFE_PATH
    return {**_base(settings, source), **commands.server_environment(spec, place), **_offline(spec), **safe}


def needs_download(spec: AttemptSpec) -> bool:
    """Whether a model is named by a hub id. Cached ones are checked too, which is quick."""
    return bool(commands.hub_models(spec.run))


def download_argv(spec: AttemptSpec, settings: HostSettings, folder: Path) -> list[str]:
    program = settings.fetch_command or (settings.trainer_python, "-m", "workers.trainer.fetch")
    return [*program, *commands.fetch_arguments(spec.run), "--progress", str(folder / FileName.DOWNLOAD)]


def download_environment(
    settings: HostSettings, source: Mapping[str, str], secrets: Mapping[str, str], host_token: str
) -> dict[str, str]:
    """The environment of the download: no GPU, and no secret but the hub's token."""
    token = secrets.get(HUB_TOKEN) or host_token
    safe = {} if settings.fetch_command else _SAFE_PATH
    return {**_base(settings, source), **commands.devices(()), **({HUB_TOKEN: token} if token else {}), **safe}


def storing_argv(folder: Path, *, finish: bool, only: str = "") -> list[str]:
    """This interpreter, like the supervisor's own. `only`: the path of one checkpoint."""
    options = [*(["--finish"] if finish else []), *(["--only", only] if only else [])]
    return [sys.executable, "-m", "workers.supervisor.storing", str(folder), *options]


def storing_environment(settings: HostSettings, source: Mapping[str, str]) -> dict[str, str]:
    return {**supervisor_environment(settings, source), **_SAFE_PATH}


def _offline(spec: AttemptSpec) -> dict[str, str]:
    """Offline mode: only what was downloaded is used, no process contacts the hub again, and none has its token."""
    return {"HF_HUB_OFFLINE": "1"} if needs_download(spec) else {}


def trainer_tool_environment(
    settings: HostSettings, source: Mapping[str, str], *, gpus: bool = False
) -> dict[str, str]:
    """For queries to the trainer's interpreter: no secrets, and no GPU unless asked about them."""
    return {**_base(settings, source), **({} if gpus else commands.devices(()))}


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
