"""How a run uses a host: what a hardware profile says."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


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
    """Variables of the trainer and its servers, from the allow-list workers.contract.commands.ENVIRONMENT."""

    @property
    def vllm_server(self) -> ServerSpec | None:
        """The vLLM servers that completions come from; None in any other rollout mode, whatever `server` holds."""
        return self.server if self.rollout == Rollout.SERVER else None

    @property
    def server_gpus(self) -> int:
        """GPUs to lease for servers, on top of the trainer's."""
        return self.vllm_server.own_gpus if self.vllm_server else 0
