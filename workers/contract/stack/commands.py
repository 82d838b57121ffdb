"""From a spec to the started processes: arguments and environments of the vLLM servers and the trainer.

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
"""The routes for weight updates are open to anyone who can connect: servers listen on loopback only."""
LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Values of --max-lora-rank; other adapters need the next larger one."""
ALL_LINEAR = "all-linear"
"""PEFT's word for every linear layer, in place of names."""
RANKS, LAUNCHER_STORE, GROUP_STORE = "ranks", "launcher", "group"
"""The folder in an attempt's folder where its ranks meet, and the files of torchrun and of the process group."""
AWAIT_SERVERS = "GRPO_AWAIT_SERVERS"
"""Variable of a trainer that starts with its servers: it waits for FileName.SERVERS_READY before its first request."""
MAX_GRAPHS = 512
"""The largest batch for which vLLM captures a CUDA graph by default."""
CUDNN_ATTENTION = "TORCH_CUDNN_SDPA_PREFERRED"
KEEP_FROZEN = "VLLM_ENABLE_CUDAGRAPH_GC"
"""1: vLLM doesn't unfreeze, when it captures CUDA graphs, what workers.trainer.configuration.imports has frozen."""
ADAPTERS_OF_AGENTS = 3
"""Agents ask when they like: the current version, the previous one, and the one being loaded."""


@dataclass(frozen=True)
class Variable:
    """An environment variable that a hardware profile may set."""

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
    "NCCL_IB_DISABLE": Variable("1 keeps NCCL off InfiniBand.", r"[01]"),
    "NCCL_SOCKET_IFNAME": Variable("Network interface that NCCL talks over.", r"[\^=]?[A-Za-z0-9_.,-]{1,100}"),
    "NCCL_CUMEM_ENABLE": Variable("0 turns NCCL's own memory allocator off.", r"[01]"),
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": Variable("How torch ends when a collective fails.", r"[0123]"),
    "CUDA_LAUNCH_BLOCKING": Variable("1 waits for each kernel: slow, and errors name the right line.", r"[01]"),
    "CUDA_DEVICE_MAX_CONNECTIONS": Variable("Hardware queues of each GPU.", r"[1-9][0-9]?"),
    "VLLM_WORKER_MULTIPROC_METHOD": Variable(
        "How vLLM starts its engine and workers. fork, a server's default here, keeps what its front imported; "
        "spawn imports everything again.",
        r"spawn|fork|forkserver",
    ),
    KEEP_FROZEN: Variable(
        "1, the default here, keeps what was imported out of the garbage collections of vLLM's start; 0 is vLLM's own.",
        r"[01]",
    ),
    "VLLM_ATTENTION_BACKEND": Variable("vLLM's attention implementation.", r"[A-Z0-9_]{1,40}"),
    "VLLM_LOGGING_LEVEL": Variable("How much vLLM writes to its log.", r"DEBUG|INFO|WARNING|ERROR"),
    "VLLM_ENABLE_STARTUP_PLAN": Variable(
        "1 lets a vLLM that knows it keep what it measured of memory for its next start with the same settings.",
        r"[01]",
    ),
    CUDNN_ATTENTION: Variable(
        "0, a trainer's default here, avoids cuDNN's attention, which builds a new plan for every sequence length; 1 "
        "is torch's own default on Hopper and Blackwell.",
        r"[01]",
    ),
    "TOKENIZERS_PARALLELISM": Variable("Whether tokenizers use threads of their own.", r"true|false"),
    "OMP_NUM_THREADS": Variable("CPU threads of each process.", r"[1-9][0-9]{0,3}"),
    "DS_SKIP_CUDA_CHECK": Variable("1 lets DeepSpeed build its kernels with another CUDA than torch's.", r"[01]"),
}
"""The allow-list. Nothing here names a file, an address or a program."""


def environment_problem(name: str, value: str) -> str:
    """Explain why a profile can't set this variable, or return ""."""
    entry = ENVIRONMENT.get(name)
    if entry is None:
        return f"{name} can't be set by a profile. These can: {', '.join(sorted(ENVIRONMENT))}."
    if not re.fullmatch(entry.values, value):
        return f"{name} can't be {value!r}: its value must match {entry.values}."
    return ""


def is_local(model: str) -> bool:
    """Return True for a folder on the host, False for a hub id such as org/name."""
    return model.startswith(("/", "./", "../", "~"))


def hub_models(run: RunSpec) -> tuple[ModelSpec, ...]:
    """List the run's models that must be downloaded from the hub first."""
    return tuple(model for model in models_of(run) if not is_local(model.path))


def fetch_arguments(run: RunSpec) -> list[str]:
    """Build the download's arguments: the first hub model, followed by the others."""
    first, *further = hub_models(run)
    revision = ["--revision", first.revision] if first.revision else []
    also = [f"{model.path}@{model.revision}" if model.revision else model.path for model in further]
    return [first.path, *revision, *(word for model in also for word in ("--also", model))]


@dataclass(frozen=True)
class Programs:
    """The interpreters of a host, as announced."""

    trainer: tuple[str, ...] = ("python3", "-m", "workers.trainer")
    vllm: tuple[str, ...] = ("python3", "-m", "workers.trainer.vllm")


def server_argv(spec: AttemptSpec, endpoint: ServerPlace, programs: Programs) -> list[str]:
    """Build `vllm serve` for one of the attempt's own servers."""
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
    # The sampler's own probabilities, for any number of tokens: the importance ratio is computed from them. Sampling
    # defaults from the model's folder would change the policy unnoticed by the trainer.
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
    """Choose the batch size up to which a server captures CUDA graphs: the number of completions that the run asks one
    server for at once, rounded up to a size that vLLM captures (1, 2, 4, multiples of 8, from 256 on of 16). 0: vLLM's
    own choice, up to MAX_GRAPHS, also where agents decide how many requests they send.

    Each size costs start-up time and memory, with adapters about twice as much.
    """
    server, agents = run.hardware.vllm_server, run.episodes is not None and run.episodes.gateway is not None
    if run.kind == WARM:
        return int(run.job.get("graphs") or 0)
    if server is None or server.all_graphs or agents or run.kind in KINDS:
        return 0
    grpo = evaluation.settings(run) if run.kind == evaluation.EVALUATION else run.grpo
    batch = Batch.of(grpo, run.hardware.processes)
    group = int(grpo.get("num_generations_eval") or batch.num_generations)
    evaluated = ceil(int(grpo.get("per_device_eval_batch_size") or 8) * batch.processes / group)
    requests = max(
        ceil(batch.prompts / server.servers) * batch.num_generations, ceil(evaluated / server.servers) * group
    )
    step = 8 if requests < 256 else 16
    size = ceil(requests / step) * step
    return size if size < MAX_GRAPHS else 0


def served_name(spec: AttemptSpec, endpoint: ServerPlace) -> str:
    """Name the model of an own or a warm server, by which the supervisor verifies whose it is."""
    attempt_id = endpoint.warm or spec.attempt_id
    return attempt_id if endpoint.role == "vllm" else f"{attempt_id}-{endpoint.role}"


def server_environment(spec: AttemptSpec, endpoint: ServerPlace) -> dict[str, str]:
    # Anyone who can connect can use these routes: open only the one that the updates need.
    routes = {WeightSync.NCCL: "VLLM_SERVER_DEV_MODE", WeightSync.LORA: "VLLM_ALLOW_RUNTIME_LORA_UPDATING"}
    variables = {routes[_server(spec).weight_sync]: "1", "VLLM_NO_USAGE_STATS": "1"}
    # By itself `vllm serve` spawns its engine, which imports everything again: 13 of 55 s on an H200. Where the front
    # has touched a GPU, vLLM spawns whatever is set.
    start = {"VLLM_WORKER_MULTIPROC_METHOD": "fork"}
    kernels = spec.placement.lora_kernels
    if kernels and _server(spec).tuned_lora and "VLLM_ALLOW_RUNTIME_LORA_UPDATING" in variables:
        variables["VLLM_TUNED_CONFIG_FOLDER"] = str(adapters.KERNELS / kernels)
    return {**start, **spec.run.hardware.environment, **devices(endpoint.gpus), **variables}


def trainer_argv(folder: PurePath | str, programs: Programs) -> list[str]:
    """Build the trainer's command, the same for any number of ranks: the trainer starts torchrun itself if needed."""
    return [*programs.trainer, str(folder)]


def has_ranks(spec: AttemptSpec) -> bool:
    """Return True if the trainer starts torchrun; DeepSpeed needs a process group even for one rank."""
    hardware = spec.run.hardware
    return hardware.processes > 1 or hardware.strategy in ZERO


def torchrun_arguments(processes: int, folder: PurePath | str) -> list[str]:
    """Build torchrun's arguments. Ranks meet in a file of the attempt's folder: a store on a port would listen on every
    interface, and torchrun unpickles what lies in it."""
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
    """Select GPUs by the order of the bus, as NVML does, whose indexes leases use; by default CUDA orders them by
    speed."""
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(str(gpu) for gpu in gpus)}


def own_servers(spec: AttemptSpec) -> tuple[ServerPlace, ...]:
    return tuple(endpoint for endpoint in servers_of(spec) if endpoint.own)


def _weight_arguments(spec: AttemptSpec, server: ServerSpec) -> list[str]:
    if server.weight_sync == WeightSync.NCCL:
        return ["--weight-transfer-config", json.dumps({"backend": "nccl"})]
    if spec.run.kind == SERVE and spec.run.lora is None:
        return []  # all weights: there is nothing to load over HTTP
    lora = spec.run.lora or LoraSpec()
    fitting = fitting_rank(lora)
    arguments = ["--enable-lora", "--max-lora-rank", str(fitting), "--max-loras", str(adapters_held(spec.run))]
    if modules := adapted_modules(lora):
        arguments += ["--lora-target-modules", *modules]
    if server.tensor_parallel > 1 and fitting % server.tensor_parallel == 0:
        arguments += ["--fully-sharded-loras"]
    return arguments


def fitting_rank(lora: LoraSpec) -> int:
    """Choose the smallest --max-lora-rank for an adapter."""
    return next((allowed for allowed in LORA_RANKS if allowed >= lora.r), LORA_RANKS[-1])


def adapters_held(run: RunSpec) -> int:
    """Count the adapters that requests at one time may name, no more than needed: vLLM starts its kernels for each
    slot, in use or not. All completions of a generation are by one version, and vLLM puts the next one in its place."""
    if run.kind == WARM:
        return int(run.job.get("adapters") or 1)
    agents = run.episodes is not None and run.episodes.gateway is not None
    return ADAPTERS_OF_AGENTS if agents else 1


def adapted_modules(lora: LoraSpec) -> list[str]:
    """List the modules to which vLLM adds an adapter's product: without a list, to every linear layer, with zeros where
    the adapter has nothing. [] for PEFT's all-linear."""
    names = dict.fromkeys(name.rpartition(".")[2] for name in lora.target_modules)
    return [] if ALL_LINEAR in names else list(names)


def _server(spec: AttemptSpec) -> ServerSpec:
    server = spec.run.hardware.server
    if server is None:
        raise ValueError("rollout mode `server` needs hardware.server")
    return server
