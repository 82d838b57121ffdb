"""What the control plane and the hosts agree on: the run spec, file names, and the lines that travel.

Standard library only, imported by all three programs. Every name here is also the name used in the
database, the API and the pages.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

SCHEMA = 1
"""Version of everything in this module. A supervisor of another version is refused at its claim."""


class FileName:
    """Files of one attempt's folder, RUNS_DIR/<run>/<attempt number>/; each has exactly one writer."""

    SPEC = "spec.json"  # launcher, once, mode 0600: an AttemptSpec
    LOCK = "supervisor.lock"  # flock; holds {"boot_id", "pid", "start_time"} as JSON
    DOWNLOAD = "download.jsonl"  # workers.trainer.fetch: progress of the model's download
    DATASET = "dataset.jsonl"  # supervisor, fetched at the claim: canonical rows
    METRICS = "metrics.jsonl"  # trainer, rank 0: TrainerLine objects
    SAMPLES = "samples.jsonl"  # trainer, rank 0: one prompt group a line
    OUTBOX = "outbox.jsonl"  # supervisor: OutboxLine objects; the first line's seq is spec.first_seq
    ACK = "outbox.ack"  # supervisor: the last seq the control plane has confirmed, as decimal text
    PIDS = "pids.json"  # supervisor: {"boot_id", "processes": [[pid, start_time], ...]} of every descendant
    STOP = "STOP"  # supervisor -> trainer: exists when the trainer shall save and stop
    STOP_REQUEST = "stop_request"  # stop_run -> supervisor: a StopMode, looked for at each tick
    REAPED = "reaped.json"  # reaper: the receipt of an attempt whose supervisor died
    CHECKPOINTS = "checkpoints"  # trainer's output_dir
    LOGS = "logs"


MAX_SERVERS = 8
SERVER_ROLES = ("vllm", *(f"vllm-{number}" for number in range(2, MAX_SERVERS + 1)))
"""Role and log of each vLLM server of an attempt, the first one's first."""
LOG_NAMES = ("supervisor", "download", *SERVER_ROLES, "trainer")
"""logs/<name>.log; a run has only those of its own processes."""


class EventKind(StrEnum):
    """Kinds of OutboxLine. The first three carry numbers (`data` is {metric name: number}); the rest are
    life-cycle events, which are never folded away."""

    TRAIN = "train"  # one trainer log call; evaluation metrics keep TRL's eval_ prefix
    SYSTEM = "system"  # host/cpu_percent, host/memory_mib, gpu/<i>/memory_mib, gpu/<i>/util_percent, gpu/<i>/power_w,
    # download/done_mib, download/total_mib
    VLLM = "vllm"  # vllm/<name>; of several servers sums (requests, tokens/s) and means (shares)

    PHASE = "phase"  # data: {"phase": Phase, "detail": str}
    TRAINING = "training"  # data: {"max_steps": int, "step": int}: the trainer entered its loop -> RUNNING
    STAGE = "stage"  # data: {"stage": str}: what the trainer is doing before its first step
    PROCESS_STARTED = "process_started"  # data: {"role": "download"|"vllm"|"vllm-2"|...|"trainer", "pid": int}
    PROCESS_EXITED = "process_exited"  # data: {"role", "pid", "exit_code": int|None, "signal": str|None}
    CHECKPOINT = "checkpoint"  # data: {"step", "path" (relative to the attempt folder), "bytes"}
    STOP_SEEN = "stop_seen"  # data: {"mode": StopMode}: the supervisor has taken the stop on
    NOTE = "note"  # data: {"text": str, "level": "info"|"warning"}
    ENDED = "ended"  # data: {"reason": EndReason value, "detail": str, "exit_codes": {role: int}, "receipt": Receipt}


METRIC_KINDS = frozenset({EventKind.TRAIN, EventKind.SYSTEM, EventKind.VLLM})


class Phase(StrEnum):
    """What a supervisor is doing; finer than a status, for people."""

    CLAIMED = "claimed"
    PREPARING = "preparing"
    FETCHING_MODEL = "fetching_model"
    VLLM_STARTING = "vllm_starting"
    VLLM_READY = "vllm_ready"
    TRAINER_STARTING = "trainer_starting"
    STOPPING = "stopping"
    VERIFYING = "verifying"


class StopMode(StrEnum):
    SAVE = "save"
    NOW = "now"


class Task(StrEnum):
    """Celery task names on a host's queue, `host.<host name>`."""

    LAUNCH_RUN = "workers.launch_run"  # (attempt_spec: dict, token: str)
    STOP_RUN = "workers.stop_run"  # (run_id, attempt_number, mode)
    REAP_RUN = "workers.reap_run"  # (run_id, attempt_number, token)
    INSPECT_MODEL = "workers.inspect_model"  # (inspection_id: int, model: str)


class Rollout(StrEnum):
    """Where completions are generated."""

    TRANSFORMERS = "transformers"  # in the trainer, no vLLM: the CPU's way
    COLOCATE = "colocate"  # vLLM inside each trainer process
    SERVER = "server"  # `vllm serve` as a process of its own


class WeightSync(StrEnum):
    """How the policy reaches a vLLM server."""

    NCCL = "nccl"  # TRL's own: full weights streamed to the server's GPUs, a LoRA merged before
    LORA = "lora"  # adapter saved under a new name for each version, loaded over HTTP


class Strategy(StrEnum):
    """How trainer processes share the training."""

    NONE = "none"  # one process
    DDP = "ddp"  # each process a whole copy, gradients averaged
    FSDP2 = "fsdp2"  # parameters, gradients and optimizer states sharded by PyTorch
    ZERO1 = "zero1"  # DeepSpeed: optimizer states sharded
    ZERO2 = "zero2"  # and gradients
    ZERO3 = "zero3"  # and parameters


ZERO = frozenset({Strategy.ZERO1, Strategy.ZERO2, Strategy.ZERO3})


class Offload(StrEnum):
    """What lies in the host's memory instead of the GPU's."""

    NONE = "none"
    OPTIMIZER = "optimizer"  # ZeRO: optimizer states
    PARAMETERS = "parameters"  # ZeRO-3: optimizer states and parameters; FSDP2: all that is sharded


class Precision(StrEnum):
    AUTO = "auto"  # bf16 on GPUs, fp32 on the CPU
    BF16 = "bf16"
    FP16 = "fp16"
    FP32 = "fp32"


class Quantization(StrEnum):
    """Of the frozen base model under a LoRA (QLoRA), by bitsandbytes."""

    NONE = "none"
    INT8 = "8bit"
    NF4 = "4bit"


class Optimizer(StrEnum):
    ADAMW = "adamw"
    ADAMW_8BIT = "adamw_8bit"
    ADAFACTOR = "adafactor"


# --- the spec -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ModelSpec:
    path: str
    """A folder on the host inside its allowed roots, or a hub id."""
    revision: str | None = None
    trust_remote_code: bool = False


@dataclass(frozen=True)
class DataSpec:
    """The canonical dataset file: JSONL, each line {"row": int, "prompt": str | list of messages,
    "answer": str | null, ...other columns}. Written by the control plane's validation, fetched at the claim."""

    name: str
    version: int
    sha256: str
    rows: int
    eval_rows: int = 0
    """Rows held out for evaluation, drawn with the run's seed."""


@dataclass(frozen=True)
class RewardSpec:
    name: str
    """Unique in a run: TRL merges two rewards of one name silently. The metric is rewards/<name>/mean."""
    function: str
    """Key in workers.rewards.LIBRARY."""
    weight: float = 1.0
    params: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class LoraSpec:
    r: int = 16
    alpha: int = 32
    dropout: float = 0.0
    target_modules: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj")


@dataclass(frozen=True)
class ServerSpec:
    """The vLLM servers of rollout mode `server`. Several get the prompt groups of a step shared out between them."""

    count: int = 1
    gpus: int = 1
    """GPUs of each server: tensor_parallel × data_parallel. 0 only where a server needs none."""
    tensor_parallel: int = 1
    data_parallel: int = 1
    shared: bool = False
    """On the trainer's own GPUs instead of GPUs of its own; only with the LoRA hot-swap, as NCCL refuses it."""
    gpu_ids: tuple[int, ...] = ()
    """All servers' GPUs by NVML index, in the servers' order; empty: any that are free."""
    port: int | None = None
    """Port of the first server on loopback, the next one's follows it; None: free ones of the host's range."""
    attached: tuple[str, ...] = ()
    """Addresses (http://host:port) of servers that somebody else runs: nothing is started, stopped or proved."""
    gpu_memory_utilization: float = 0.9
    max_model_len: int | None = None
    dtype: str = "auto"
    enforce_eager: bool = False
    prefix_caching: bool = True
    ready_timeout_s: int = 600
    request_timeout_s: int = 1800
    """Longest that the trainer waits for one step's completions."""
    weight_sync: WeightSync = WeightSync.NCCL

    @property
    def servers(self) -> int:
        return len(self.attached) or self.count

    @property
    def own_gpus(self) -> int:
        """GPUs to lease on top of the trainer's."""
        return 0 if self.shared or self.attached else self.count * self.gpus


@dataclass(frozen=True)
class HardwareSpec:
    """How a run uses a host. GPUs are counts here unless a profile pins them; a Placement names them.

    What a run's own GRPOConfig arguments say of precision, optimizer or gradient checkpointing goes before this.
    """

    profile: str
    rollout: Rollout = Rollout.TRANSFORMERS
    trainer_gpus: int = 0
    processes: int = 1
    """Trainer ranks (torchrun when > 1). On GPUs: one rank a GPU."""
    cpu_slots: int = 0
    """CPU slots leased when there is no GPU to lease."""
    threads: int | None = None
    """Torch threads of each rank on the CPU; None leaves torch's choice."""
    server: ServerSpec | None = None
    colocate_memory_utilization: float = 0.3
    colocate_sleep: bool = False
    colocate_tensor_parallel: int = 1
    colocate_max_model_len: int | None = None
    trainer_gpu_ids: tuple[int, ...] = ()
    """The trainer's GPUs by NVML index; empty: any that are free."""
    strategy: Strategy = Strategy.NONE
    offload: Offload = Offload.NONE
    precision: Precision = Precision.AUTO
    quantization: Quantization = Quantization.NONE
    optimizer: Optimizer = Optimizer.ADAMW
    gradient_checkpointing: bool | None = None
    """None: on for GPUs, off on the CPU."""
    liger_kernels: bool = False
    memory_cap_gib: float | None = None
    """Most GPU memory that torch may take in each trainer process: a larger card then behaves like a smaller one."""
    environment: dict[str, str] = field(default_factory=dict)
    """Variables of the trainer and its servers, from the allow-list workers.commands.ENVIRONMENT."""


@dataclass(frozen=True)
class RunSpec:
    """Everything a run is, frozen at submit; it depends on no row that may change later."""

    run_id: str
    name: str
    kind: str
    """`train`; `trial` tries a hardware profile for two steps; learnability checks come as another kind."""
    model: ModelSpec
    data: DataSpec
    rewards: tuple[RewardSpec, ...]
    hardware: HardwareSpec
    grpo: dict[str, Any]
    """Keyword arguments of trl.GRPOConfig that the person set, by TRL's own names. The trainer adds
    output_dir, logging_steps=1, report_to=[] and what the hardware decides (use_cpu, vllm_*, deepspeed)."""
    lora: LoraSpec | None = None
    attn_implementation: str | None = None
    schema: int = SCHEMA


@dataclass(frozen=True)
class Placement:
    """The resources leased for one attempt."""

    host: str
    gpus: tuple[int, ...] = ()
    server_gpus: tuple[int, ...] = ()
    cpu_slots: tuple[int, ...] = ()
    ports: tuple[int, ...] = ()
    """HTTP port on loopback of each vLLM server that the attempt starts."""
    group_port: int | None = None
    """NCCL group port for weight updates."""

    @property
    def every_gpu(self) -> tuple[int, ...]:
        """Each leased GPU once, whoever of the attempt uses it."""
        return tuple(dict.fromkeys((*self.gpus, *self.server_gpus)))


@dataclass(frozen=True)
class AttemptSpec:
    """spec.json: one life of a run on a host."""

    attempt_id: str
    """<run id>-<attempt number>"""
    number: int
    first_seq: int
    run: RunSpec
    placement: Placement
    resume_from: str | None = None
    """A checkpoint folder: in the launch message relative to RUNS_DIR, in spec.json absolute."""


@dataclass(frozen=True)
class ServerPlace:
    """One vLLM server of an attempt, by where it is."""

    role: str
    """One of SERVER_ROLES: its process's role and its log's name."""
    address: str
    """http://host:port"""
    port: int
    gpus: tuple[int, ...]
    own: bool
    """Started, watched and ended by the attempt; an attached one is not."""


def servers_of(spec: AttemptSpec) -> tuple[ServerPlace, ...]:
    """The vLLM servers that the trainer gets completions from; none but in rollout mode `server`.

    Raises ContractError when the placement has no port for one of them.
    """
    hardware, placement = spec.run.hardware, spec.placement
    server = hardware.server
    if hardware.rollout != Rollout.SERVER:
        return ()
    if server is None:
        raise ContractError("hardware.server: rollouts come from a vLLM server, and none is described")
    places: list[tuple[str, int, tuple[int, ...], bool]]
    if server.attached:
        places = [(address, int(address.rpartition(":")[2]), (), False) for address in server.attached]
    else:
        if len(placement.ports) < server.count:
            raise ContractError(f"placement.ports: {len(placement.ports)} for {server.count} vLLM servers")
        gpus = placement.gpus if server.shared else placement.server_gpus
        places = [
            (f"http://127.0.0.1:{port}", port, gpus[number * server.gpus : (number + 1) * server.gpus], True)
            for number, port in enumerate(placement.ports[: server.count])
        ]
    return tuple(ServerPlace(role, *place) for role, place in zip(SERVER_ROLES, places, strict=False))


@dataclass(frozen=True)
class GpuReceipt:
    gpu: str
    before_mib: int
    """Baseline, read before anything of the attempt was started."""
    peak_mib: int
    after_mib: int
    seconds_to_free: float | None
    """None: not proved free before the deadline; the lease is quarantined."""


@dataclass(frozen=True)
class Receipt:
    """The kill receipt: proof that nothing of the attempt is left."""

    seconds_to_gone: float
    """From the first signal (or the natural end) until the tree was seen empty twice."""
    processes_ended: int
    orphans_found: int
    """Descendants outside the process groups that the supervisor started."""
    survivors: tuple[int, ...]
    gpus: tuple[GpuReceipt, ...]
    port_free: bool | None
    """None when the attempt had no server."""
    free: bool
    """No survivor, and every leased GPU is at its baseline + 300 MiB in two samples."""


# --- lines that travel --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OutboxLine:
    """One line of outbox.jsonl, and one element of a sync request's `lines`."""

    seq: int
    t: float
    """Unix seconds."""
    kind: str
    step: int | None
    data: dict[str, Any]


@dataclass(frozen=True)
class SyncAnswer:
    ack: int
    """The last seq stored without a gap."""
    stop: str | None
    watched: bool


@dataclass(frozen=True)
class ClaimAnswer:
    go: bool
    why: str
    ack: int
    """The last seq already stored for the run; first_seq - 1 for a fresh attempt."""
    stop: str | None
    secrets: dict[str, str]


# --- JSON <-> dataclasses -----------------------------------------------------------------------------------

T = TypeVar("T")


class ContractError(ValueError):
    """A document doesn't follow the contract; the message names the field."""


def to_json(value: Any) -> str:
    """Any contract dataclass as compact JSON."""
    return json.dumps(to_dict(value), separators=(",", ":"), ensure_ascii=False)


def to_dict(value: Any) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(value)))
    return result


def from_dict(cls: type[T], data: Any, *, at: str = "") -> T:
    """Build a contract dataclass from decoded JSON, strictly.

    Raises ContractError for an unknown, missing or wrongly typed field, naming it (`run.lora.r`).
    """
    if not isinstance(data, dict):
        raise ContractError(f"{at or cls.__name__}: expected an object, got {type(data).__name__}")
    hints = typing.get_type_hints(cls)
    fields = {f.name: f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    unknown = sorted(set(data) - set(fields))
    if unknown:
        raise ContractError(f"{at or cls.__name__}: unknown field {unknown[0]!r}")
    values = {}
    for name, f in fields.items():
        where = f"{at}.{name}" if at else name
        if name in data:
            values[name] = _convert(hints[name], data[name], where)
        elif f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING:
            raise ContractError(f"{where}: missing")
    return cls(**values)


def _convert(hint: Any, value: Any, at: str) -> Any:
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in typing.get_args(hint):
            return None
        return _convert(next(a for a in typing.get_args(hint) if a is not type(None)), value, at)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise ContractError(f"{at}: expected a list, got {type(value).__name__}")
        return tuple(_convert(typing.get_args(hint)[0], v, f"{at}[{i}]") for i, v in enumerate(value))
    if origin is dict or hint is dict:
        if not isinstance(value, dict):
            raise ContractError(f"{at}: expected an object, got {type(value).__name__}")
        return value
    if dataclasses.is_dataclass(hint):
        return from_dict(typing.cast(type, hint), value, at=at)
    if hint is Any:
        return value
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        try:
            return hint(value)
        except ValueError:
            raise ContractError(f"{at}: {value!r} is not one of {', '.join(hint)}") from None
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        raise ContractError(f"{at}: expected {hint.__name__}, got {value!r}")
    return value


def broker_url(redis_url: str) -> str:
    """Celery's form of a redis-py address: `unix:///p?db=1` is `redis+socket:///p?virtual_host=1` there."""
    if not redis_url.startswith("unix://"):
        return redis_url
    path, _, query = redis_url.removeprefix("unix://").partition("?")
    return f"redis+socket://{path}?virtual_host={query.removeprefix('db=') or '0'}"
