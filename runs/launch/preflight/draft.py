"""A launch in preparation, as plain values from the form and the catalogue that checks read."""

from dataclasses import dataclass, field
from typing import Any

from controlplane.catalogue.datasets.tool_templates import ToolTemplate
from controlplane.catalogue.hardware.prices import Money
from controlplane.catalogue.hardware.sandboxes import HostSandbox
from runs.engine.scheduling.limits import Allowance
from runs.engine.warm.idle import IdleServer
from workers.contract.run import row_names
from workers.contract.run.batch_rules import ARGUMENTS as BATCH_ARGUMENTS
from workers.contract.run.batch_rules import Batch
from workers.contract.run.episodes import PartSpec
from workers.contract.run.hardware import HardwareSpec, ServerSpec
from workers.contract.run.mixing import SourceSettings
from workers.contract.run.spec import LoraSpec, RewardSpec, RunSettings
from workers.contract.stack.training_rules import TRL_DEFAULTS


@dataclass(frozen=True)
class GpuFacts:
    index: int
    memory_mib: int
    free: bool
    """True if the GPU has no lease; a lease in quarantine counts as one."""
    foreign_mib: int = 0
    """Memory used without a lease; 0 if it is too little to disturb a run."""
    capability: str = ""
    """CUDA capability, such as 9.0; "" if unknown."""
    kept_mib: int = 0
    """Memory that attached servers keep there for earlier runs."""
    kept_by: tuple[str, ...] = ()


_ISOLATED = HostSandbox(reported=True, backend="bubblewrap", lacks=(), allowed=False)


@dataclass(frozen=True)
class HostFacts:
    """A host as it last announced itself, and which of its resources are free."""

    name: str
    fresh: bool = True
    stale_for: str = ""
    draining: bool = False
    trainer: str = "ready"
    gpus: tuple[GpuFacts, ...] = ()
    cpu_slots: tuple[tuple[int, bool], ...] = ((0, True),)
    """Each slot's (index, whether it is free)."""
    disk_free_mib: int | None = None
    ram_mib: int = 0
    """MiB of host memory; 0 if not announced."""
    versions: dict[str, str] = field(default_factory=dict)
    schema: dict[str, Any] | None = None
    gpu_error: str = ""
    """The host's own message on why it can't read its GPUs."""
    driver: str = ""
    cuda_usable: bool | None = None
    """True if the trainer's torch can use the GPUs; None if unknown."""
    cuda_built_for: str = ""
    """The CUDA version of that torch; "" for a CPU build."""
    shm_mib: int | None = None
    port_range: tuple[int, int] = (21000, 21999)
    ports_held: dict[int, str] = field(default_factory=dict)
    """Port -> name of the run that leases it."""
    listening: frozenset[int] = frozenset()
    sandbox: HostSandbox = _ISOLATED
    """The host's isolation of code run by rewards."""
    gpu_hour: Money | None = None
    inventory: dict[str, Any] = field(default_factory=dict)
    to_ask: bool = False
    """True for a machine that a source of this name could still provide."""

    @property
    def usable(self) -> bool:
        return self.fresh and not self.draining and self.trainer == "ready"


@dataclass(frozen=True)
class DataFacts:
    name: str
    ready: bool = True
    rows: int = 0
    """Number of training and validation rows in total."""
    validation_rows: int = 0
    columns: tuple[str, ...] = ()
    has_answer: bool = True
    chat: bool = False
    python_tests: int | None = None
    """Number of rows whose tests are Python code; None if it isn't known. A row has tests of one kind."""
    io_tests: int | None = None
    """Number of rows with input/output tests; None if it isn't known."""
    longest_prompt_chars: int | None = None
    longest_prompt_tokens: int | None = None
    """Tokens of the longest prompt, by the import's tokenizer."""
    prompt_bins: tuple[int, ...] = ()
    """Number of prompts by length, in equal bins up to `prompt_top`; longer ones are in the last. Lengths are tokens
    if these were counted, otherwise characters."""
    prompt_top: int = 0
    dataset: str = ""
    """The name of the dataset, without its version."""
    name_sets: tuple[tuple[frozenset[str], int], ...] | None = None
    """Numbers of training rows by all names that they go by, other than the dataset's; None if the import kept none."""

    def applies(self, reward: RewardSpec) -> bool | None:
        """Return whether a component applies to any training row; None if that isn't known."""
        if not reward.applies_to or self.dataset in reward.applies_to:
            return True
        return None if self.name_sets is None else any(row_names.applies(reward, names) for names, _ in self.name_sets)

    def train_rows(self, max_rows: int = 0) -> int:
        """Return the number of rows to train on; `max_rows` 0 is no bound."""
        rows = max(self.rows - self.validation_rows, 0)
        return min(rows, max_rows or rows)


@dataclass(frozen=True)
class OtherProfile:
    key: str
    spec: HardwareSpec
    lora: LoraSpec | None = None
    batch: dict[str, int] = field(default_factory=dict)
    values: dict[str, str] = field(default_factory=dict)
    """The profile's batch settings and LoRA, as form values."""


@dataclass(frozen=True, kw_only=True)
class Draft(RunSettings):
    """The settings of a run to be launched, and the facts by which checks judge them."""

    model: str = ""
    inspection: dict[str, Any] | None = None
    """A host's inspection of the model; None if no host has inspected it yet."""
    hosts: tuple[HostFacts, ...] = ()
    """The hosts that may take the run: the chosen one, or otherwise all."""
    host_chosen: bool = False
    machines: tuple[HostFacts, ...] = ()
    """The machines that sources could provide for the run, each with the name of its source."""
    data: DataFacts | None = None
    mix: tuple[tuple[DataFacts, SourceSettings], ...] = ()
    """The datasets of a mix, `data` first; empty without a mix."""
    rewards: tuple[RewardSpec, ...] | None = None
    secrets: dict[str, str] = field(default_factory=dict)
    """Secret of the rewards that can't be read -> the reason."""
    hardware: HardwareSpec | None = None
    hardware_problem: str = ""
    """Reason why the contract can't read the chosen profile; "" if it can, or none is chosen."""
    profiles: tuple[OtherProfile, ...] = ()
    made_for: dict[str, str] = field(default_factory=dict)
    """Form field -> the value that choosing the profile fills in."""
    eval_rows: int = 0
    eval_rewards: tuple[RewardSpec, ...] = ()
    """Rewards of the second config, used only in evaluations."""
    priority: int = 0
    corpus_problem: str = ""
    """The problem with the corpora that the environment searches; "" for none."""
    tool_template: ToolTemplate | None = None
    """The model's chat template and its support for tools; None if unknown or not needed."""
    owner: Allowance | None = None
    """Limits and usage of the user who would launch the run; None without a user."""
    owner_administers: bool = True
    runs: int = 1
    """Number of runs that are launched together, including this one."""
    idle: tuple[IdleServer, ...] = ()
    """The user's idle warm servers that the run could use, in the order in which they would be tried."""

    @property
    def server(self) -> ServerSpec | None:
        """The vLLM server that generates completions; None in other rollout modes."""
        return self.hardware.vllm_server if self.hardware else None

    @property
    def every_reward(self) -> tuple[RewardSpec, ...]:
        return (*(self.rewards or ()), *(self.eval_rewards if self.eval_rows else ()))

    @property
    def every_entry(self) -> tuple[RewardSpec | PartSpec, ...]:
        """The rewards that the run would compute, and the parts of its environment."""
        return (*self.every_reward, *(self.episodes.parts if self.episodes else ()))

    def model_size(self, name: str) -> int:
        """Look up a size that the host has read from the model; return 0 if unknown."""
        size = (self.inspection or {}).get(name)
        return size if isinstance(size, int) and not isinstance(size, bool) and size > 0 else 0

    @property
    def result_tokens(self) -> int:
        """Tokens that tool results add to an episode beyond the completion length, for one call in each turn with a
        result of maximum length, or 0 if results use up the completion length."""
        if self.episodes is None or self.episodes.gateway or self.episodes.limits.count_outputs:
            return 0
        return max(self.episodes.limits.turns - 1, 0) * self.episodes.limits.output_tokens

    @property
    def schema(self) -> dict[str, Any] | None:
        """The trainer's fields on the first host that has reported any."""
        return next((h.schema for h in self.hosts if h.schema), None)

    def value(self, name: str) -> Any:
        """Look up the value that a GRPOConfig field would have in the run."""
        if name in self.grpo:
            return self.grpo[name]
        assumed_default = TRL_DEFAULTS.get(name)
        default = ((self.schema or {}).get("defaults") or {}).get(name, assumed_default)
        # Checks calculate with these values, so defaults of an unexpected type are ignored.
        return default if assumed_default is None or isinstance(default, type(assumed_default)) else assumed_default

    @property
    def batch(self) -> Batch:
        sizes = {name: self.value(name) for name in BATCH_ARGUMENTS}
        processes = self.hardware.processes if self.hardware else 1
        return Batch(**sizes, processes=processes, evaluates=self.eval_rows > 0)

    @property
    def every_data(self) -> tuple[DataFacts, ...]:
        """The datasets that the run draws from."""
        return tuple(data for data, _ in self.mix) or ((self.data,) if self.data else ())

    @property
    def train_rows(self) -> int:
        if self.mix:
            return sum(data.train_rows(settings.max_rows) for data, settings in self.mix)
        return self.data.train_rows() if self.data else 0
