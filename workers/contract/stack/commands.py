"""Arguments and environments of an attempt's processes, the vLLM servers and the trainer, from its spec.

Standard library only and without side effects, so that hosts start exactly the commands that pages show.
supervisor.commands adds the host's part (inherited environment, secrets).
"""

import json
import re
from dataclasses import dataclass
from math import ceil
from pathlib import PurePath

from workers.contract.run import evaluation
from workers.contract.run.batch_rules import Batch
from workers.contract.run.hardware import ZERO, ServerSpec, WeightSync
from workers.contract.run.jobs import KINDS, SERVE, WARM
from workers.contract.run.spec import (
    AttemptSpec,
    LoraSpec,
    ModelSpec,
    RunSpec,
    ServerPlace,
    models_of,
    servers_of,
)
from workers.contract.stack import adapters

HOST = "127.0.0.1"
"""Address that vLLM servers listen on: loopback only, because anyone who can connect may use the routes for weight
updates."""
LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Values of --max-lora-rank; an adapter with another rank needs the next larger one."""
ALL_LINEAR = "all-linear"
"""PEFT's keyword for every linear layer, in place of names."""
RANKS, LAUNCHER_STORE, GROUP_STORE = "ranks", "launcher", "group"
"""Folder in an attempt's folder where its ranks meet, and the files in it of torchrun and of the process group."""
AWAIT_SERVERS = "GRPO_AWAIT_SERVERS"
"""Variable of a trainer that starts together with its servers and waits for FileName.SERVERS_READY before its first
request."""
MAX_GRAPHS = 512
"""Largest batch for which vLLM captures a CUDA graph by default."""
CUDNN_ATTENTION = "TORCH_CUDNN_SDPA_PREFERRED"
KEEP_FROZEN = "VLLM_ENABLE_CUDAGRAPH_GC"
"""Variable that, if it is 1, keeps vLLM, while it captures CUDA graphs, from unfreezing what
workers.trainer.configuration.imports has frozen."""
ADAPTERS_OF_AGENTS = 3
"""Number of adapters that agents' requests may name at the same time: the current version, the previous one, and the
one being loaded."""


@dataclass(frozen=True)
class Variable:
    help: str
    values: str
    """A regular expression for the whole value."""


ENVIRONMENT: dict[str, Variable] = {
    "PYTORCH_CUDA_ALLOC_CONF": Variable(
        "How torch's allocator divides GPU memory. expandable_segments:True wastes less of it; "
        "vLLM's sleep mode can't be combined with that.",
        r"[a-z_]+:[A-Za-z0-9_.\[\]-]+(,[a-z_]+:[A-Za-z0-9_.\[\]-]+)*",
    ),
    "NCCL_DEBUG": Variable("What NCCL writes to the log.", r"VERSION|WARN|INFO|TRACE"),
    "NCCL_P2P_DISABLE": Variable("1 keeps GPUs from reading each other's memory directly.", r"[01]"),
    "NCCL_SHM_DISABLE": Variable("1 keeps NCCL from using shared memory between processes.", r"[01]"),
    "NCCL_IB_DISABLE": Variable("1 keeps NCCL from using InfiniBand.", r"[01]"),
    "NCCL_SOCKET_IFNAME": Variable("Network interface that NCCL uses.", r"[\^=]?[A-Za-z0-9_.,-]{1,100}"),
    "NCCL_CUMEM_ENABLE": Variable("0 turns NCCL's own memory allocator off.", r"[01]"),
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": Variable("How torch exits when a collective fails.", r"[0123]"),
    "CUDA_LAUNCH_BLOCKING": Variable("1 waits for each kernel: slow, but errors name the right line.", r"[01]"),
    "CUDA_DEVICE_MAX_CONNECTIONS": Variable("Number of hardware work queues per GPU.", r"[1-9][0-9]?"),
    "VLLM_WORKER_MULTIPROC_METHOD": Variable(
        "How vLLM starts its engine and workers. fork, a server's default here, keeps what the front end imported; "
        "spawn imports everything again.",
        r"spawn|fork|forkserver",
    ),
    KEEP_FROZEN: Variable(
        "1, the default here, excludes imports from garbage collection while vLLM starts; 0 is vLLM's own default.",
        r"[01]",
    ),
    "VLLM_ATTENTION_BACKEND": Variable("vLLM's attention implementation.", r"[A-Z0-9_]{1,40}"),
    "VLLM_LOGGING_LEVEL": Variable("How much vLLM writes to its log.", r"DEBUG|INFO|WARNING|ERROR"),
    "VLLM_ENABLE_STARTUP_PLAN": Variable(
        "1 lets vLLM versions that support it reuse memory measurements at the next start with the same settings.",
        r"[01]",
    ),
    CUDNN_ATTENTION: Variable(
        "0, a trainer's default here, avoids cuDNN's attention, which builds a new plan for every sequence length; 1 "
        "is torch's own default on Hopper and Blackwell.",
        r"[01]",
    ),
    "TOKENIZERS_PARALLELISM": Variable("Whether tokenizers use their own threads.", r"true|false"),
    "OMP_NUM_THREADS": Variable("CPU threads of each process.", r"[1-9][0-9]{0,3}"),
    "DS_SKIP_CUDA_CHECK": Variable(
        "1 lets DeepSpeed build its kernels with a CUDA version other than torch's.", r"[01]"
    ),
}
"""Allow-list of the variables that a profile may set. None of them names a file, an address or a program."""


def environment_problem(name: str, value: str) -> str:
    """Explain why a profile can't set this variable to this value; return "" if it can."""
    entry = ENVIRONMENT.get(name)
    if entry is None:
        return f"{name} can't be set by a profile. These can: {', '.join(sorted(ENVIRONMENT))}."
    if not re.fullmatch(entry.values, value):
        return f"{name} can't be {value!r}. Its value must match {entry.values}."
    return ""


def is_local(model: str) -> bool:
    """Return whether a model is a folder on the host rather than a hub id such as org/name."""
    return model.startswith(("/", "./", "../", "~"))


def hub_models(run: RunSpec) -> tuple[ModelSpec, ...]:
    return tuple(model for model in models_of(run) if not is_local(model.path))


def fetch_arguments(run: RunSpec) -> list[str]:
    """Build the download's arguments: the first hub model, followed by the others."""
    first_model, *other_models = hub_models(run)
    revision = ["--revision", first_model.revision] if first_model.revision else []
    names = [f"{model.path}@{model.revision}" if model.revision else model.path for model in other_models]
    return [first_model.path, *revision, *(word for name in names for word in ("--also", name))]


@dataclass(frozen=True)
class Programs:
    """The interpreters of a host, as announced."""

    trainer: tuple[str, ...] = ("python3", "-m", "workers.trainer")
    vllm: tuple[str, ...] = ("python3", "-m", "workers.trainer.vllm")


def server_argv(spec: AttemptSpec, endpoint: ServerPlace, programs: Programs) -> list[str]:
    server, model = _server(spec), spec.run.model
    arguments = [*programs.vllm, "serve", model.path, "--host", HOST, "--port", str(endpoint.port)]
    arguments += ["--served-model-name", served_name(spec, endpoint), "--dtype", server.dtype]
    arguments += ["--tensor-parallel-size", str(server.tensor_parallel)]
    if server.data_parallel > 1:
        # One front end for all copies: by default each has its own, and only one of them would know a new adapter.
        arguments += ["--data-parallel-size", str(server.data_parallel), "--api-server-count", "1"]
    arguments += ["--gpu-memory-utilization", str(server.gpu_memory_utilization)]
    if server.kv_cache_gib:
        arguments += ["--kv-cache-memory-bytes", str(int(server.kv_cache_gib * 2**30))]
    # The importance ratio is computed from the sampler's own probabilities, for any number of tokens. Sampling defaults
    # from the model's folder would change the policy without the trainer noticing.
    arguments += ["--logprobs-mode", "processed_logprobs", "--max-logprobs", "-1", "--generation-config", "vllm"]
    arguments += ["--enable-prefix-caching" if server.prefix_caching else "--no-enable-prefix-caching"]
    arguments += ["--disable-uvicorn-access-log"]
    if server.max_model_len:
        arguments += ["--max-model-len", str(server.max_model_len)]
    if server.enforce_eager:
        arguments += ["--enforce-eager"]
    elif size := largest_graph(spec.run):
        arguments += ["--max-cudagraph-capture-size", str(size)]
    if model.revision:
        arguments += ["--revision", model.revision]
    if model.trust_remote_code:
        arguments += ["--trust-remote-code"]
    return arguments + _weight_arguments(spec, server)


def largest_graph(run: RunSpec) -> int:
    """Choose the batch size up to which a server captures CUDA graphs: the number of completions that the run requests
    from one server at a time, rounded up to a size that vLLM captures (1, 2, 4, multiples of 8, from 256 on of 16).
    Return 0 for vLLM's own choice, up to MAX_GRAPHS, for example if agents decide how many requests they send.

    Each size takes start-up time and memory, about twice as much with adapters.
    """
    server, agents = run.hardware.vllm_server, run.episodes is not None and run.episodes.gateway is not None
    if run.kind == WARM:
        return int(run.job.get("graphs") or 0)
    if server is None or server.all_graphs or agents or run.kind in KINDS:
        return 0
    grpo = evaluation.settings(run) if run.kind == evaluation.EVALUATION else run.grpo
    batch = Batch.of(grpo, run.hardware.processes)
    group = int(grpo.get("num_generations_eval") or batch.num_generations)
    evaluated_prompts = ceil(int(grpo.get("per_device_eval_batch_size") or 8) * batch.processes / group)
    requests = max(
        ceil(batch.prompts / server.servers) * batch.num_generations, ceil(evaluated_prompts / server.servers) * group
    )
    step = 8 if requests < 256 else 16
    size = ceil(requests / step) * step
    return size if size < MAX_GRAPHS else 0


def served_name(spec: AttemptSpec, endpoint: ServerPlace) -> str:
    """Return the model's name on an own or warm server, by which the supervisor verifies whose server it is."""
    attempt_id = endpoint.warm or spec.attempt_id
    return attempt_id if endpoint.role == "vllm" else f"{attempt_id}-{endpoint.role}"


def server_environment(spec: AttemptSpec, endpoint: ServerPlace) -> dict[str, str]:
    # Anyone who can connect can use these routes, so only the one that the updates need is opened.
    routes = {WeightSync.NCCL: "VLLM_SERVER_DEV_MODE", WeightSync.LORA: "VLLM_ALLOW_RUNTIME_LORA_UPDATING"}
    variables = {routes[_server(spec).weight_sync]: "1", "VLLM_NO_USAGE_STATS": "1"}
    # By default, `vllm serve` spawns its engine, which imports everything again: 13 of 55 s on an H200. If the front
    # end has used a GPU, vLLM spawns the engine whatever is set.
    start_method = {"VLLM_WORKER_MULTIPROC_METHOD": "fork"}
    kernels = spec.placement.lora_kernels
    if kernels and _server(spec).tuned_lora and "VLLM_ALLOW_RUNTIME_LORA_UPDATING" in variables:
        variables["VLLM_TUNED_CONFIG_FOLDER"] = str(adapters.KERNELS / kernels)
    return {**start_method, **spec.run.hardware.environment, **devices(endpoint.gpus), **variables}


def trainer_argv(folder: PurePath | str, programs: Programs) -> list[str]:
    """Build the trainer's command, the same for any number of ranks: the trainer starts torchrun itself if needed."""
    return [*programs.trainer, str(folder)]


def has_ranks(spec: AttemptSpec) -> bool:
    """Return whether the trainer starts torchrun. DeepSpeed needs a process group even for one rank."""
    hardware = spec.run.hardware
    return hardware.processes > 1 or hardware.strategy in ZERO


def torchrun_arguments(processes: int, folder: PurePath | str) -> list[str]:
    """Build torchrun's arguments. Ranks meet in a file of the attempt's folder, since a store on a port would listen on
    every interface and torchrun unpickles its content."""
    arguments = ["--nnodes=1", f"--nproc-per-node={processes}", "--rdzv-backend=c10d", "--rdzv-conf=store_type=file"]
    arguments += [f"--rdzv-endpoint={PurePath(folder) / RANKS / LAUNCHER_STORE}", "--local-addr=127.0.0.1"]
    return [*arguments, "-m", "workers.trainer", str(folder)]


def trainer_environment(spec: AttemptSpec) -> dict[str, str]:
    # Batches differ in sequence length, and cuDNN's attention, torch's choice on Hopper, builds a new plan for every
    # length: seconds for the first, then 0.03 to 0.2 s for each new one on an H100 (tests/gpu/attention.json).
    attention = {CUDNN_ATTENTION: "0"}
    environment = {**attention, **spec.run.hardware.environment, **devices(spec.placement.gpus)}
    if spec.run.hardware.threads:
        environment["OMP_NUM_THREADS"] = str(spec.run.hardware.threads)
    return environment


def devices(gpus: tuple[int, ...]) -> dict[str, str]:
    """Build the variables that select GPUs by NVML index, as leases do: in bus order, since CUDA's default order is by
    speed."""
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(str(gpu) for gpu in gpus)}


def own_servers(spec: AttemptSpec) -> tuple[ServerPlace, ...]:
    return tuple(endpoint for endpoint in servers_of(spec) if endpoint.own)


def _weight_arguments(spec: AttemptSpec, server: ServerSpec) -> list[str]:
    if server.weight_sync == WeightSync.NCCL:
        return ["--weight-transfer-config", json.dumps({"backend": "nccl"})]
    if spec.run.kind == SERVE and spec.run.lora is None:
        return []  # a model with all weights trained has nothing to load over HTTP
    lora = spec.run.lora or LoraSpec()
    max_rank = fitting_rank(lora)
    arguments = ["--enable-lora", "--max-lora-rank", str(max_rank), "--max-loras", str(adapter_slots(spec.run))]
    if modules := adapted_modules(lora):
        arguments += ["--lora-target-modules", *modules]
    if server.tensor_parallel > 1 and max_rank % server.tensor_parallel == 0:
        arguments += ["--fully-sharded-loras"]
    return arguments


def fitting_rank(lora: LoraSpec) -> int:
    return next((rank for rank in LORA_RANKS if rank >= lora.r), LORA_RANKS[-1])


def adapter_slots(run: RunSpec) -> int:
    """Return how many adapters requests may name at the same time. The number is no larger than needed, since vLLM runs
    its kernels for each slot, in use or not. All completions of a generation come from one version, which the next one
    replaces."""
    if run.kind == WARM:
        return int(run.job.get("adapters") or 1)
    agents = run.episodes is not None and run.episodes.gateway is not None
    return ADAPTERS_OF_AGENTS if agents else 1


def adapted_modules(lora: LoraSpec) -> list[str]:
    """List the modules to which vLLM applies an adapter; return [] for PEFT's all-linear. Without a list, vLLM applies
    it to every linear layer, with zeros where the adapter has no weights."""
    names = dict.fromkeys(name.rpartition(".")[2] for name in lora.target_modules)
    return [] if ALL_LINEAR in names else list(names)


def _server(spec: AttemptSpec) -> ServerSpec:
    server = spec.run.hardware.server
    if server is None:
        raise ValueError("rollout mode `server` needs hardware.server")
    return server
