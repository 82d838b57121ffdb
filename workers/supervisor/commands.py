"""The commands of an attempt's processes on this host, and their environments.

A child gets only allowed variables of the host's environment, so that neither the token nor Redis's address nor the web
server's secret can reach model or reward code. workers.contract.stack.commands derives the rest from the spec.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import workers
from workers.contract.run import gateway, jobs, sinks
from workers.contract.run.spec import AttemptSpec, ServerPlace
from workers.contract.stack import commands, packages
from workers.contract.stack.commands import Programs
from workers.contract.wire.names import FileName
from workers.settings import HostSettings, variable

SOURCE_ROOT = Path(workers.__file__).resolve().parent.parent

_INHERITED_NAMES = frozenset([
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TEMP", "TMP", "XDG_CACHE_HOME",
    "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ",
    "LD_LIBRARY_PATH", "LD_PRELOAD", "CC", "CXX", "MAX_JOBS", "KMP_AFFINITY", "GOMP_CPU_AFFINITY",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
])  # fmt: skip
_INHERITED_PREFIXES = (
    "CUDA_", "NVIDIA_", "NCCL_", "NVSHMEM_", "GLOO_", "TORCH", "PYTORCH_", "TRITON_", "VLLM_", "HF_", "TRANSFORMERS_",
    "DS_", "OMP_", "MKL_",
)  # fmt: skip
HUB_TOKEN = "HF_TOKEN"  # noqa: S105  # its name
_NEVER_INHERITED = frozenset(
    [
        "CUDA_VISIBLE_DEVICES",
        HUB_TOKEN,
        "VLLM_API_KEY",
        "VLLM_PORT",  # where a server's processes meet: several servers would get the same port
        "VLLM_SERVER_DEV_MODE",
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING",
    ]
)
"""Variables that children never inherit: they are set for each process or not at all."""
_OFFLINE_VARIABLES = frozenset(["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
_SAFE_PATH = {"PYTHONSAFEPATH": "1"}
"""Variables that keep `python -m` from importing from the working directory, which is the attempt's folder: its
`adapters/` is not a package. Commands from the settings don't get them, because they may be scripts that need their own
folder."""


def supervisor_environment(settings: HostSettings, source: Mapping[str, str]) -> dict[str, str]:
    path = os.pathsep.join(part for part in (str(SOURCE_ROOT), source.get("PYTHONPATH", "")) if part)
    return {**_allowed_variables(source), **settings.as_env(), "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}


def programs(settings: HostSettings) -> Programs:
    """Return this host's trainer and vLLM commands, which it announces so that pages can show them."""
    python = settings.trainer_python
    return Programs(
        trainer=settings.trainer_command or (python, "-m", "workers.trainer"),
        vllm=settings.vllm_command or (python, "-m", "workers.trainer.vllm"),
    )


def trainer_environment(
    spec: AttemptSpec, settings: HostSettings, source: Mapping[str, str], secrets: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment of a trainer or job, with the secrets it may have."""
    if jobs.kind_of(spec.run.kind).pushes:
        return _pushing_environment(settings, source, secrets)
    not_of_rewards = (sinks.SECRET_PREFIX, sinks.LINK, HUB_TOKEN)
    reward_secrets = {name: value for name, value in secrets.items() if not name.startswith(not_of_rewards)}
    safe_path = {} if settings.trainer_command else _SAFE_PATH
    if spec.run.kind == jobs.BENCHMARK:
        variables = _benchmark_variables(settings)
    elif spec.run.kind == jobs.GGUF:
        variables = {variable("llama_cpp_dir"): str(settings.llama_cpp_dir or "")}
    else:
        variables = {**reward_secrets, **_offline(spec), **_interpreters(spec, settings)}
    return {**_base_environment(settings, source), **commands.trainer_environment(spec), **variables, **safe_path}


def _benchmark_variables(settings: HostSettings) -> dict[str, str]:
    python = settings.lm_eval_python or python_of(jobs.BENCHMARK_ENVIRONMENT)
    tasks = settings.lm_eval_tasks
    return {variable("lm_eval_python"): python, **({variable("lm_eval_tasks"): str(tasks)} if tasks else {})}


def _interpreters(spec: AttemptSpec, settings: HostSettings) -> dict[str, str]:
    """Return the variables that name the interpreters of optional packages, if they are set."""
    variables = {packages.PYTHON: settings.environments_python}
    if spec.run.episodes and spec.run.episodes.gateway and spec.run.episodes.gateway.kind == gateway.ATROPOS:
        variables[gateway.PYTHON] = settings.atropos_python
    return {name: python for name, python in variables.items() if python}


def python_of(environment: str) -> str:
    """Return the path of the interpreter of an environment in the source's folder."""
    return str(SOURCE_ROOT / environment / "bin" / "python")


def sinks_environment(
    spec: AttemptSpec, settings: HostSettings, source: Mapping[str, str], secrets: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment of the process that sends metrics to sinks: no GPU, and only the sinks' own secrets. W&B
    must not find somebody's login on this host, so no `.netrc` is read."""
    own_secrets = {name: value for name, value in secrets.items() if name.startswith(sinks.SECRET_PREFIX)}
    interpreters = {sinks.PYTHON: settings.sinks_python} if settings.sinks_python else {}
    own_page = f"{settings.control_url.rstrip('/')}/runs/{spec.run.run_id}/"
    link = {sinks.LINK: secrets.get(sinks.LINK, own_page)}
    privacy = {"NETRC": os.devnull, "MLFLOW_DISABLE_TELEMETRY": "true"}
    return {
        **_base_environment(settings, source),
        **commands.devices(()),
        **privacy,
        **interpreters,
        **link,
        **own_secrets,
        **_SAFE_PATH,
    }


def _pushing_environment(
    settings: HostSettings, source: Mapping[str, str], secrets: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment of a push to the hub: no GPU, and only the hub's token. A push connects even on an
    offline host, because somebody has requested it. Uploads use HTTP instead of Xet, so that bytes can be counted."""
    base = {
        name: value for name, value in _base_environment(settings, source).items() if name not in _OFFLINE_VARIABLES
    }
    token = {name: value for name, value in secrets.items() if name == HUB_TOKEN}
    safe_path = {} if settings.trainer_command else _SAFE_PATH
    return {**base, **commands.devices(()), **token, "HF_HUB_DISABLE_XET": "1", **safe_path}


def server_environment(
    spec: AttemptSpec, settings: HostSettings, source: Mapping[str, str], place: ServerPlace
) -> dict[str, str]:
    safe_path = {} if settings.vllm_command else _SAFE_PATH
    return {
        **_base_environment(settings, source),
        **commands.server_environment(spec, place),
        **_offline(spec),
        **safe_path,
    }


def needs_download(spec: AttemptSpec) -> bool:
    """Return whether any model is named by a hub id. If all such models are cached, the download is only a quick
    check."""
    return bool(commands.hub_models(spec.run))


def download_argv(spec: AttemptSpec, settings: HostSettings, folder: Path) -> list[str]:
    program = settings.fetch_command or (settings.trainer_python, "-m", "workers.trainer.fetch")
    return [*program, *commands.fetch_arguments(spec.run), "--progress", str(folder / FileName.DOWNLOAD)]


def download_environment(
    settings: HostSettings, source: Mapping[str, str], secrets: Mapping[str, str], hub_token: str
) -> dict[str, str]:
    """Return the environment of the model download: no GPU, and only the hub's token."""
    token = secrets.get(HUB_TOKEN) or hub_token
    safe_path = {} if settings.fetch_command else _SAFE_PATH
    return {
        **_base_environment(settings, source),
        **commands.devices(()),
        **({HUB_TOKEN: token} if token else {}),
        **safe_path,
    }


def storing_argv(folder: Path, *, finish: bool, only_step: str = "") -> list[str]:
    """Return the command that uploads checkpoints. `only_step`: the path of the only checkpoint to upload."""
    options = [*(["--finish"] if finish else []), *(["--only", only_step] if only_step else [])]
    return [sys.executable, "-m", "workers.supervisor.storing", str(folder), *options]


def storing_environment(settings: HostSettings, source: Mapping[str, str]) -> dict[str, str]:
    return {**supervisor_environment(settings, source), **_SAFE_PATH}


def _offline(spec: AttemptSpec) -> dict[str, str]:
    """Return the variables that restrict a process to downloaded models, so that it doesn't contact the hub again."""
    return {"HF_HUB_OFFLINE": "1"} if needs_download(spec) else {}


def trainer_tool_environment(
    settings: HostSettings, source: Mapping[str, str], *, gpus: bool = False
) -> dict[str, str]:
    """Return the environment for running the trainer's interpreter on the host's behalf: no secrets, and no GPU unless
    `gpus`."""
    return {**_base_environment(settings, source), **({} if gpus else commands.devices(()))}


def _base_environment(settings: HostSettings, source: Mapping[str, str]) -> dict[str, str]:
    path = os.pathsep.join(part for part in (str(SOURCE_ROOT), settings.trainer_pythonpath) if part)
    return {
        **_allowed_variables(source),
        "PYTHONPATH": path,
        "PYTHONUNBUFFERED": "1",  # logs are followed live
        "DO_NOT_TRACK": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }


def _allowed_variables(source: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in source.items()
        if name not in _NEVER_INHERITED and (name in _INHERITED_NAMES or name.startswith(_INHERITED_PREFIXES))
    }
