"""A launch before it is one: plain values, gathered from the form and the catalogue, that checks read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from controlplane.hardware.sandboxes import HostSandbox
from runs.scheduling.limits import Allowance
from workers.contract import HardwareSpec, LoraSpec, RewardSpec, ServerSpec
from workers.contract.batch import Batch

TRL_DEFAULTS: dict[str, Any] = {
    "beta": 0.0,
    "entropy_coef": 0.0,
    "epsilon": 0.2,
    "generation_batch_size": None,
    "gradient_accumulation_steps": 1,
    "importance_sampling_level": "token",
    "loss_type": "dapo",
    "lr_scheduler_type": "linear",
    "max_completion_length": 512,
    "max_steps": -1,
    "multi_objective_aggregation": "sum_then_normalize",
    "num_generations": 8,
    "num_generations_eval": None,
    "num_iterations": 1,
    "num_train_epochs": 3.0,
    "per_device_eval_batch_size": 8,
    "per_device_train_batch_size": 8,
    "save_steps": 500,
    "scale_rewards": "group",
    "steps_per_generation": None,
    "sync_ref_model": False,
    "temperature": 1.0,
    "top_p": 1.0,
    "vllm_importance_sampling_clip_max": 3.0,
    "vllm_importance_sampling_clip_min": None,
    "vllm_importance_sampling_correction": True,
    "vllm_importance_sampling_mode": "sequence_mask",
}
"""What checks assume of a field that nobody set and no host has told the default of (TRL 1.16)."""


@dataclass(frozen=True)
class GpuFacts:
    index: int
    memory_mib: int
    free: bool
    """No lease holds it, quarantined ones included."""
    foreign_mib: int = 0
    """In use there by something that has no lease, where that is enough to be in a run's way."""


_HELD = HostSandbox(known=True, backend="bubblewrap", lacks=(), allowed=False)


@dataclass(frozen=True)
class HostFacts:
    """A host as it last announced itself, and what leases leave of it."""

    name: str
    fresh: bool = True
    stale_for: str = ""
    draining: bool = False
    trainer: str = "ready"
    gpus: tuple[GpuFacts, ...] = ()
    cpu_slots: tuple[tuple[int, bool], ...] = ((0, True),)
    """(slot, free)"""
    disk_free_mib: int | None = None
    versions: dict[str, str] = field(default_factory=dict)
    schema: dict[str, Any] | None = None
    gpu_error: str = ""
    """Why the host can't read its GPUs, in its own words."""
    port_range: tuple[int, int] = (21000, 21999)
    """What it keeps for vLLM servers."""
    ports_held: dict[int, str] = field(default_factory=dict)
    """Port -> name of the run whose lease holds it."""
    listening: frozenset[int] = frozenset()
    sandbox: HostSandbox = _HELD
    """How it holds code that rewards run."""

    @property
    def usable(self) -> bool:
        return self.fresh and not self.draining and self.trainer == "ready"


@dataclass(frozen=True)
class DataFacts:
    name: str
    ready: bool = True
    rows: int = 0
    """In both parts."""
    validation_rows: int = 0
    """Of them, those that are never trained on."""
    columns: tuple[str, ...] = ()
    has_answer: bool = True
    chat: bool = False
    longest_prompt_chars: int | None = None


@dataclass(frozen=True)
class Draft:
    model: str = ""
    inspection: dict[str, Any] | None = None
    """The host's answer about the model; None: not asked, or not answered yet."""
    hosts: tuple[HostFacts, ...] = ()
    """The hosts that may take the run: the chosen one, or all."""
    host_chosen: bool = False
    data: DataFacts | None = None
    rewards: tuple[RewardSpec, ...] | None = None
    secrets: dict[str, str] = field(default_factory=dict)
    """Of those that the rewards name: why one can't be had."""
    hardware: HardwareSpec | None = None
    made_for: dict[str, str] = field(default_factory=dict)
    """What the profile was made for: form field -> text, as choosing it fills the form."""
    grpo: dict[str, Any] = field(default_factory=dict)
    lora: LoraSpec | None = None
    attn_implementation: str | None = None
    eval_rows: int = 0
    priority: int = 0
    owner: Allowance | None = None
    """Who would launch it, with what they may have and have; None: nobody asks."""

    @property
    def server(self) -> ServerSpec | None:
        """The vLLM server that completions come from; None in any other rollout mode."""
        return self.hardware.vllm_server if self.hardware else None

    def told(self, name: str) -> int:
        """A size that the host found in the model; 0: not known."""
        size = (self.inspection or {}).get(name)
        return size if isinstance(size, int) and not isinstance(size, bool) and size > 0 else 0

    @property
    def schema(self) -> dict[str, Any] | None:
        """The trainer's own fields, of the host that would run it."""
        return next((h.schema for h in self.hosts if h.schema), None)

    def value(self, name: str) -> Any:
        """A GRPOConfig field as the run would have it."""
        if name in self.grpo:
            return self.grpo[name]
        assumed = TRL_DEFAULTS.get(name)
        told = ((self.schema or {}).get("defaults") or {}).get(name, assumed)
        # Checks calculate with these: a default of another type than expected is left aside.
        return told if assumed is None or isinstance(told, type(assumed)) else assumed

    @property
    def batch(self) -> Batch:
        return Batch(
            per_device_train_batch_size=self.value("per_device_train_batch_size"),
            gradient_accumulation_steps=self.value("gradient_accumulation_steps"),
            num_generations=self.value("num_generations"),
            processes=self.hardware.processes if self.hardware else 1,
            steps_per_generation=self.value("steps_per_generation"),
            generation_batch_size=self.value("generation_batch_size"),
            num_iterations=self.value("num_iterations"),
            evaluates=self.eval_rows > 0,
            per_device_eval_batch_size=self.value("per_device_eval_batch_size"),
            num_generations_eval=self.value("num_generations_eval"),
        )

    @property
    def train_rows(self) -> int:
        return max(self.data.rows - self.data.validation_rows, 0) if self.data else 0
