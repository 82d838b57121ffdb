"""Hardware profiles: how a run uses a host."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

BATCH_FIELDS = (
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "num_generations",
    "max_completion_length",
    "num_iterations",
)


class Rollout(StrEnum):
    """Places where completions are generated."""

    TRANSFORMERS = "transformers"  # in the trainer, without vLLM: for the CPU
    COLOCATE = "colocate"  # vLLM inside each trainer process
    SERVER = "server"  # `vllm serve` as a separate process


class WeightSync(StrEnum):
    """Ways to send the policy's weights to a vLLM server."""

    NCCL = "nccl"  # TRL's own: full weights streamed to the server's GPUs, a LoRA merged first
    LORA = "lora"  # adapter saved under a new name per version, loaded over HTTP


class Strategy(StrEnum):
    """Strategies that divide the work among trainer processes."""

    NONE = "none"  # one process
    DDP = "ddp"  # a full copy per process, gradients averaged
    FSDP2 = "fsdp2"  # parameters, gradients and optimizer states sharded by PyTorch
    ZERO1 = "zero1"  # DeepSpeed: optimizer states sharded
    ZERO2 = "zero2"  # and gradients
    ZERO3 = "zero3"  # and parameters


ZERO = frozenset({Strategy.ZERO1, Strategy.ZERO2, Strategy.ZERO3})


class Offload(StrEnum):
    """The parts kept in host memory instead of GPU memory."""

    NONE = "none"
    OPTIMIZER = "optimizer"  # ZeRO: optimizer states
    PARAMETERS = "parameters"  # ZeRO-3: optimizer states and parameters; FSDP2: everything sharded


class Precision(StrEnum):
    AUTO = "auto"  # bf16 on GPUs, fp32 on the CPU
    BF16 = "bf16"
    FP16 = "fp16"
    FP32 = "fp32"


class Quantization(StrEnum):
    """Quantization of the frozen base model under a LoRA (QLoRA), by bitsandbytes."""

    NONE = "none"
    INT8 = "8bit"
    NF4 = "4bit"


class Optimizer(StrEnum):
    ADAMW = "adamw"
    ADAMW_8BIT = "adamw_8bit"
    ADAFACTOR = "adafactor"


@dataclass(frozen=True)
class ServerSpec:
    """The vLLM servers of rollout mode `server`. Several servers share the prompt groups of each step."""

    count: int = 1
    gpus: int = 1
    """GPUs per server: tensor_parallel × data_parallel. 0 only if a server needs none."""
    tensor_parallel: int = 1
    data_parallel: int = 1
    shared: bool = False
    """True if the servers use the trainer's GPUs; only with LoRA adapters over HTTP, as NCCL refuses to share GPUs."""
    gpu_ids: tuple[int, ...] = ()
    """All servers' GPUs by NVML index, in the servers' order; empty for any free ones."""
    port: int | None = None
    """Port of the first server on loopback; the other servers use the ports after it. None for free ports from the
    host's range."""
    attached: tuple[str, ...] = ()
    """Addresses (http://host:port) of external servers, which are not started, stopped or verified."""
    gpu_memory_utilization: float = 0.9
    max_model_len: int | None = None
    dtype: str = "auto"
    enforce_eager: bool = False
    all_graphs: bool = False
    """True to capture CUDA graphs for all of vLLM's batch sizes, not only for those that the run's batches reach."""
    keep_warm_minutes: int = 0
    """Minutes that the servers wait for another run after one that used them (contract.stack.warm); 0 if they end with
    their run."""
    kv_cache_gib: float | None = None
    """GiB of KV cache on each GPU, so that vLLM doesn't measure what its share leaves; None to measure."""
    tuned_lora: bool = True
    """True to use LoRA kernels tuned for the GPU model (workers.contract.stack.adapters), if there are any."""
    prefix_caching: bool = True
    ready_timeout_s: int = 600
    request_timeout_s: int = 1800
    """Maximum seconds that the trainer waits for one step's completions."""
    weight_sync: WeightSync = WeightSync.NCCL

    @property
    def servers(self) -> int:
        return len(self.attached) or self.count

    @property
    def own_gpus(self) -> int:
        return 0 if self.shared or self.attached else self.count * self.gpus


@dataclass(frozen=True)
class HardwareSpec:
    """How a run uses a host. GPUs are counts here unless a profile pins them; a Placement names them.

    A run's own GRPOConfig arguments for precision, optimizer or gradient checkpointing take precedence.
    """

    profile: str
    rollout: Rollout = Rollout.TRANSFORMERS
    trainer_gpus: int = 0
    processes: int = 1
    """Trainer ranks (torchrun if more than one); on GPUs, one per GPU."""
    cpu_slots: int = 0
    """CPU slots to lease if no GPU is leased."""
    threads: int | None = None
    """Torch threads per rank on the CPU; None for torch's default."""
    server: ServerSpec | None = None
    colocate_memory_utilization: float = 0.3
    colocate_sleep: bool = False
    colocate_tensor_parallel: int = 1
    colocate_max_model_len: int | None = None
    trainer_gpu_ids: tuple[int, ...] = ()
    """The trainer's GPUs by NVML index; empty for any free ones."""
    strategy: Strategy = Strategy.NONE
    offload: Offload = Offload.NONE
    precision: Precision = Precision.AUTO
    quantization: Quantization = Quantization.NONE
    optimizer: Optimizer = Optimizer.ADAMW
    gradient_checkpointing: bool | None = None
    """True if it is on; None for on with GPUs, off on the CPU."""
    liger_kernels: bool = False
    deepspeed: dict[str, Any] | None = None
    """A DeepSpeed config to use unchanged with a ZeRO strategy; None for the one that follows from the profile."""
    memory_cap_gib: float | None = None
    """Maximum GPU memory that torch may use per trainer process, so that a larger GPU behaves like a smaller one."""
    environment: dict[str, str] = field(default_factory=dict)
    """Variables of the trainer and its servers, from the allow-list workers.contract.stack.commands.ENVIRONMENT."""

    @property
    def checkpoints_gradients(self) -> bool:
        """True if gradient checkpointing is on for runs that don't set it themselves."""
        return self.trainer_gpus > 0 if self.gradient_checkpointing is None else self.gradient_checkpointing

    @property
    def vllm_server(self) -> ServerSpec | None:
        """The vLLM servers that generate completions; None in other rollout modes, whatever `server` contains."""
        return self.server if self.rollout == Rollout.SERVER else None

    @property
    def server_gpus(self) -> int:
        return self.vllm_server.own_gpus if self.vllm_server else 0

    @property
    def vllm_share(self) -> float | None:
        """Share of a GPU's memory for the run's own vLLM, or None if it has none."""
        if self.rollout == Rollout.COLOCATE:
            return self.colocate_memory_utilization
        server = self.vllm_server
        return server.gpu_memory_utilization if server and not server.attached else None

    def with_vllm_share(self, share: float | None) -> "HardwareSpec":
        """Return the profile with another vLLM share; unchanged if `share` is None or the run starts no vLLM."""
        if share is None or self.vllm_share is None:
            return self
        if self.server is not None and self.rollout == Rollout.SERVER:
            return replace(self, server=replace(self.server, gpu_memory_utilization=share))
        return replace(self, colocate_memory_utilization=share)


def precision_of(hardware: HardwareSpec, grpo: Mapping[str, Any]) -> Precision:
    """Return the precision in which a run trains: that of its own GRPOConfig flags or, without any, of its profile;
    fp32 if a flag turns the profile's precision off."""
    for precision in (Precision.BF16, Precision.FP16):
        if grpo.get(precision):
            return precision
    default = hardware.precision
    if default == Precision.AUTO:
        default = Precision.BF16 if hardware.trainer_gpus else Precision.FP32
    return Precision.FP32 if grpo.get(default) is False else default
