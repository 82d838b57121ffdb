"""The run spec, the attempt spec, and the vLLM servers that follow from them."""

import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from ipaddress import IPv4Address, ip_address
from typing import Any
from urllib.parse import urlsplit

from workers.contract.run import jobs
from workers.contract.run.episodes import EpisodeSpec, PartSpec
from workers.contract.run.hardware import HardwareSpec, Rollout
from workers.contract.run.limits import LimitsSpec, Spent
from workers.contract.run.mixing import SourceSpec
from workers.contract.run.prompts import PromptsSpec
from workers.contract.run.sinks import SinkSpec
from workers.contract.wire.documents import ContractError
from workers.contract.wire.names import MAX_SERVERS, SCHEMA, SERVER_ROLES

_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,252}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\]")
_NUMBER = re.compile(r"(.*\.)?(0[xX][0-9a-fA-F]*|[0-9]+)")
"""Pattern of hosts that the system reads as IPv4 addresses, in whatever base and with however few dots."""
_PORT = re.compile(r"[1-9][0-9]{0,4}")
METADATA = frozenset(
    ip_address(address)
    for address in (
        "169.254.169.254",
        "fd00:ec2::254",
        "fd20:ce::254",
        "100.100.100.200",
        "192.0.0.192",
        "168.63.129.16",
    )
)
"""Addresses of clouds' metadata services, which hand out credentials; some are in private or public ranges."""


REWARD_MODEL = "reward_model"
"""Key in workers.rewards.LIBRARY of the reward that is a model, with params {"model", "revision"}."""


@dataclass(frozen=True)
class ModelSpec:
    path: str
    """A folder inside the host's allowed roots, or a hub id."""
    revision: str | None = None
    trust_remote_code: bool = False


@dataclass(frozen=True)
class DataSpec(SourceSpec):
    """The canonical dataset file (Parquet): row_id, prompt (messages; with {"grpo": {"chat": false}} in the schema's
    metadata, one user message whose content is the prompt), answer, test_cases, metadata (a JSON object), split (train
    or validation). Written by the import, fetched at the claim."""

    eval_rows: int = 0
    """The number of validation rows to evaluate, sampled with the run's seed; they are never trained on."""
    sources: tuple[SourceSpec, ...] = ()
    """Further datasets, if each batch is a mix; their validation rows aren't used."""

    @property
    def every_source(self) -> tuple[SourceSpec, ...]:
        return (self, *self.sources)


@dataclass(frozen=True)
class RewardSpec:
    name: str
    """Unique in a run: TRL silently merges two rewards of the same name. The metric is rewards/<name>/mean."""
    function: str
    """Key in workers.rewards.LIBRARY."""
    weight: float = 1.0
    params: dict[str, Any] = field(default_factory=dict)
    per_turn: bool = False
    """True if the reward scores each turn of an episode separately, credited to that turn's tokens."""
    applies_to: tuple[str, ...] = ()
    """Names of datasets, sources or tags: the reward applies only to rows with one of them (contract.run.row_names).
    Empty if it applies to all rows."""


@dataclass(frozen=True)
class LoraSpec:
    r: int = 16
    alpha: int = 32
    dropout: float = 0.0
    target_modules: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj")


@dataclass(frozen=True)
class RecoverySpec:
    """Automatic resumes after an end that a new attempt may avoid."""

    resumes: int = 0
    """Maximum number of resumes over the whole run; 0 for none."""
    pause_s: int = 60
    """Seconds before the first resume; each later pause is twice as long."""


@dataclass(frozen=True)
class HangSpec:
    """Detection of a hang, and the reaction to it."""

    after: float = 10.0
    """Multiple of the usual step time without a new step that counts as a hang. Evaluations, saves and the first step
    are ignored."""
    stop: bool = False
    """True to end the attempt. A recovery may resume the run from its last checkpoint."""


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """The settings that a person chooses for a run, with their defaults; contract.run.settings has their bounds and
    the form's fields. What comes from rows of the catalogue is in RunSpec only."""

    grpo: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments of trl.GRPOConfig set by the user, with TRL's names. The trainer adds output_dir,
    logging_steps=1, report_to=[] and those implied by the hardware (use_cpu, vllm_*, deepspeed)."""
    lora: LoraSpec | None = None
    attn_implementation: str | None = None
    recovery: RecoverySpec = RecoverySpec()
    hang: HangSpec = HangSpec()
    keep_best: str = ""
    """Metric by which the best checkpoint is kept in addition to the newest ones; "" if none is."""
    start_from: str = ""
    """Checkpoint of another run, relative to RUNS_DIR, from whose weights training starts; "" to start from the
    model."""
    limits: LimitsSpec = field(default_factory=LimitsSpec)
    check_groups: int = 0
    """Minimum number of prompt groups of a learnability check; 0 for workers.contract.run.learnability.GROUPS."""
    episodes: EpisodeSpec | None = None
    """Environment and limits of episodes of several turns; None if each completion is one turn."""
    prompts: PromptsSpec = field(default_factory=PromptsSpec)
    rewards_beside: bool = False
    """True to score each group with judges and sandboxes once it is complete (see workers.contract.run.overlapping)."""
    ahead: bool = False
    """True to generate each batch while the previous one is trained on (see workers.contract.run.overlapping)."""
    sinks: tuple[SinkSpec, ...] = ()

    def chosen_settings(self) -> dict[str, Any]:
        """Return these settings by name, for use in another dataclass that has them."""
        return {setting.name: getattr(self, setting.name) for setting in fields(RunSettings)}

    def only(self, *names: str) -> dict[str, Any]:
        """Return the default settings, except the named ones, which keep their values."""
        return {**RunSettings().chosen_settings(), **{name: getattr(self, name) for name in names}}


@dataclass(frozen=True)
class FrozenRows:
    """A run's identity, and the rows of the catalogue as they were at submission."""

    run_id: str
    name: str
    kind: str
    """`train`; `trial` tries a hardware profile for two steps; `check` is a learnability check;
    `evaluation` samples completions of held-out prompts; the others are in workers.contract.run.jobs."""
    model: ModelSpec
    data: DataSpec
    rewards: tuple[RewardSpec, ...]
    hardware: HardwareSpec


@dataclass(frozen=True)
class RunSpec(RunSettings, FrozenRows):
    """Everything about a run, frozen at submission and independent of rows that may change later."""

    grpo: dict[str, Any]
    failed_share: float = 0.5
    """Largest share of a reward's rows over its last batches that may fail before the run ends; 1 never ends it."""
    eval_rewards: tuple[RewardSpec, ...] = ()
    """Rewards computed only in evaluations, which don't affect training. Their metrics are
    eval_rewards/<name>/mean, and their weighted sum workers.contract.run.evaluation.OTHER_REWARD."""
    job: dict[str, Any] = field(default_factory=dict)
    """The settings of a job, as fields of the dataclass of its kind in workers.contract.run.jobs."""
    schema: int = SCHEMA

    @property
    def every_reward(self) -> tuple[RewardSpec, ...]:
        """Rewards that are trained on, followed by rewards computed only in evaluations."""
        return (*self.rewards, *self.eval_rewards)

    @property
    def every_entry(self) -> tuple[RewardSpec | PartSpec, ...]:
        return (*self.every_reward, *(self.episodes.parts if self.episodes else ()))


@dataclass(frozen=True)
class WarmPlace:
    """Warm servers of another attempt on the same host (workers.contract.stack.warm)."""

    attempt_id: str
    ports: tuple[int, ...]


@dataclass(frozen=True)
class Placement:
    """The resources leased for one attempt."""

    host: str
    gpus: tuple[int, ...] = ()
    server_gpus: tuple[int, ...] = ()
    cpu_slots: tuple[int, ...] = ()
    ports: tuple[int, ...] = ()
    """The HTTP port on loopback of each vLLM server that the attempt starts, then the ports on which a job listens."""
    group_port: int | None = None
    lora_kernels: str = ""
    """The version of vLLM whose LoRA kernels were tuned for the servers' GPU model; "" for vLLM's own configs."""
    unsandboxed: bool = False
    """True if an admin allows rewards to run code on this host without a sandbox."""
    gpu_hour_price: float | None = None
    """Price of one GPU-hour when the attempt was placed; None if the host has none."""
    currency: str = ""
    spent: Spent = field(default_factory=Spent)
    warm: WarmPlace | None = None
    """Servers that the attempt uses in place of its own."""

    @property
    def every_port(self) -> tuple[int, ...]:
        return (*self.ports, *(() if self.group_port is None else (self.group_port,)))

    @property
    def every_gpu(self) -> tuple[int, ...]:
        """Every leased GPU once, whichever process uses it."""
        return tuple(dict.fromkeys((*self.gpus, *self.server_gpus)))


@dataclass(frozen=True)
class AttemptSpec:
    """The content of spec.json: one attempt at a run, on one host."""

    attempt_id: str
    """<run id>-<attempt number>"""
    number: int
    first_seq: int
    run: RunSpec
    placement: Placement
    resume_from: str | None = None
    """Checkpoint folder to resume from: relative to RUNS_DIR in the launch message, absolute in spec.json."""


@dataclass(frozen=True)
class ServerPlace:
    """A vLLM server of an attempt: its address and GPUs."""

    role: str
    """One of SERVER_ROLES, which is also the role of its process and the name of its log."""
    address: str
    """http://host:port"""
    port: int
    gpus: tuple[int, ...]
    own: bool
    """True if the attempt starts, watches and ends the server; False for attached and warm servers."""
    warm: str = ""
    """The attempt that started the server, if it is a warm one."""


def is_address(address: str) -> bool:
    """Return whether a string is a valid address of an attached server: exactly http://host:port."""
    host, _, port = address.removeprefix("http://").rpartition(":")
    if not (address.startswith("http://") and _HOST.fullmatch(host) and _PORT.fullmatch(port)):
        return False
    try:
        parts = urlsplit(address)
        return bool(parts.hostname) and parts.port is not None and not _is_forbidden(str(parts.hostname))
    except ValueError:
        return False


def _is_forbidden(host: str) -> bool:
    """Return whether a host is an IP address at which clouds keep a machine's credentials or no machine responds."""
    try:
        address = IPv4Address(socket.inet_aton(host)) if _NUMBER.fullmatch(host) else ip_address(host)
    except OSError:
        return True  # digits that aren't an address
    except ValueError:
        return False
    address = getattr(address, "ipv4_mapped", None) or address
    return address in METADATA or address.is_link_local or address.is_multicast or address.is_unspecified


def models_of(run: RunSpec) -> tuple[ModelSpec, ...]:
    """List the models that the trainer loads, without duplicates: the policy's first, then reward models."""
    if not jobs.kind_of(run.kind).loads_models:
        return ()
    model_params = [reward.params for reward in run.every_reward if reward.function == REWARD_MODEL]
    reward_models = [
        ModelSpec(str(params.get("model", "")), str(params.get("revision") or "") or None) for params in model_params
    ]
    return tuple(dict.fromkeys((run.model, *(model for model in reward_models if model.path))))


def outcome_weights(rewards: Sequence[RewardSpec]) -> list[float]:
    """Return each reward's weight in a completion's total, by which outcomes are compared. Rewards of turns have 0,
    because they are credited to their turns. If no other reward has a weight, the total is that of the turns, for
    information only: the advantages come from the turns alone."""
    if any(reward.weight for reward in rewards if not reward.per_turn):
        return [0.0 if reward.per_turn else reward.weight for reward in rewards]
    return [reward.weight for reward in rewards]


def servers_of(spec: AttemptSpec) -> tuple[ServerPlace, ...]:
    """List the vLLM servers from which the trainer gets completions; empty except in rollout mode `server`. Raises
    ContractError if the spec describes no server or too many, or if the placement's ports don't match them."""
    hardware, placement = spec.run.hardware, spec.placement
    server = hardware.server
    if hardware.rollout != Rollout.SERVER:
        return ()
    if server is None:
        raise ContractError("hardware.server: rollouts come from a vLLM server, but none is described")
    if server.servers > MAX_SERVERS:
        raise ContractError(f"hardware.server: {server.servers} vLLM servers; a run can have at most {MAX_SERVERS}")
    if warm := placement.warm:
        if len(warm.ports) != server.count:
            raise ContractError(f"placement.warm: {len(warm.ports)} ports for {server.count} vLLM servers")
        return tuple(
            ServerPlace(role, f"http://127.0.0.1:{port}", port, (), own=False, warm=warm.attempt_id)
            for role, port in zip(SERVER_ROLES, warm.ports, strict=False)
        )
    if server.attached:
        return tuple(
            ServerPlace(role, address, int(address.rpartition(":")[2]), (), own=False)
            for role, address in zip(SERVER_ROLES, server.attached, strict=False)
        )
    if len(placement.ports) < server.count:
        raise ContractError(f"placement.ports: {len(placement.ports)} for {server.count} vLLM servers")
    gpus, size = placement.gpus if server.shared else placement.server_gpus, server.gpus
    return tuple(
        ServerPlace(role, f"http://127.0.0.1:{port}", port, gpus[number * size : (number + 1) * size], own=True)
        for number, (role, port) in enumerate(zip(SERVER_ROLES, placement.ports[: server.count], strict=False))
    )
