"""Served models of a checkpoint: finding the live one, or starting a new one."""

import hashlib
import secrets

from django.db import transaction
from django.db.models import QuerySet

from controlplane.catalogue.hardware.models import Host
from controlplane.platform.accounts.models import User
from runs.engine.checkpoints import Checkpoint
from runs.engine.jobs import starting
from runs.engine.models import Run
from runs.engine.scheduling import checkpoint_hosts, leasing
from runs.engine.served.models import Served
from runs.engine.states import ACTIVE, RunStatus
from workers.contract.run.hardware import HardwareSpec, Rollout, ServerSpec, WeightSync
from workers.contract.run.jobs import LOOPBACK, SERVE, ServeSettings
from workers.contract.run.spec import Placement
from workers.contract.wire.documents import ContractError

CPU, GPU, VLLM = "cpu", "gpu", "vllm"
PLACES = {CPU: "on the CPU", GPU: "on a GPU, by transformers", VLLM: "on a GPU, by vLLM"}
_HARDWARE = {
    CPU: starting.ON_THE_CPU,
    GPU: HardwareSpec("", trainer_gpus=1),
    VLLM: HardwareSpec("", rollout=Rollout.SERVER, server=ServerSpec(gpus=1, weight_sync=WeightSync.LORA)),
}


def host_for(checkpoint: Checkpoint) -> Host | None:
    """Choose the host to serve a checkpoint on: one with the most engines among those that can use its files."""
    return max(checkpoint_hosts.hosts_for(checkpoint), key=lambda host: len(engines_on(host)), default=None)


def engines_on(host: Host | None) -> list[str]:
    """List the engines that can serve a model on a host. The CPU comes first, because only users assign GPUs to
    jobs."""
    if host is None or not host.inventory.get("gpus"):
        return [CPU]
    return [CPU, GPU, VLLM] if host.vllm else [CPU, GPU]


def usual_engine(host: Host | None) -> str:
    """Suggest an engine for the chat: a GPU of the host if one is free, otherwise the CPU."""
    if host is None or GPU not in engines_on(host):
        return CPU
    placement = leasing.allocate(leasing.need_of(_HARDWARE[GPU]), host, leasing.leased()[host.pk])
    return GPU if isinstance(placement, Placement) else CPU


def last_engine(checkpoint: Checkpoint, host: Host | None) -> str:
    """Return the engine that last served the checkpoint, or the only one; return "" if the user has to choose."""
    engines, last_run = engines_on(host), of_checkpoint(checkpoint).first()
    if last_run is None:
        return engines[0] if len(engines) == 1 else ""
    hardware = last_run.spec["hardware"]
    engine = VLLM if hardware["rollout"] == Rollout.SERVER else GPU if hardware["trainer_gpus"] else CPU
    return engine if engine in engines else ""


def addresses_on(host: Host | None) -> list[str]:
    """List the addresses on which a served model may listen: loopback, and one that an admin has allowed."""
    return [LOOPBACK, *([host.serve_address] if host and host.serve_address else [])]


def of_checkpoint(checkpoint: Checkpoint) -> QuerySet[Run]:
    """List all served models of a checkpoint, live or not, newest first."""
    served_models = checkpoint.run.jobs.filter(kind=SERVE, spec__start_from=checkpoint.folder)
    return served_models.select_related("served", "owner").order_by("-created_at")


def live_run(checkpoint: Checkpoint) -> Run | None:
    """Find a checkpoint's newest running served model, or else the newest one that is queued, starting or stopping."""
    served_models = of_checkpoint(checkpoint)
    running_model = served_models.filter(attempts__status=RunStatus.RUNNING).first()
    return running_model or served_models.filter(attempts__status__in=ACTIVE).first()


def live_with_key(checkpoint: Checkpoint) -> Run | None:
    """Find a checkpoint's live served model that accepts requests with a key."""
    return of_checkpoint(checkpoint).filter(attempts__status__in=ACTIVE).exclude(served__key_sha256="").first()


def live_or_start(checkpoint: Checkpoint, user: User, *, engine: str = CPU) -> Run:
    """Return the live served model for the chat, or start one. A second click gets the model of the first. Raises
    ContractError if the checkpoint can't be used, and QueueFull if this user may not queue more runs."""
    with transaction.atomic():
        Run.every.select_for_update().get(pk=checkpoint.run.pk)
        return live_run(checkpoint) or _start(checkpoint, user, engine, ServeSettings(), key="")


def start_with_key(
    checkpoint: Checkpoint, user: User, *, engine: str, address: str, idle_minutes: float
) -> tuple[Run, str]:
    """Start a served model for requests. Return it with its key, which isn't stored. Raises ContractError if the
    checkpoint is already served with a key or can't be used, and QueueFull as `live_or_start` does."""
    key = f"sk-{secrets.token_urlsafe(32)}"
    with transaction.atomic():
        Run.every.select_for_update().get(pk=checkpoint.run.pk)
        if live_with_key(checkpoint):
            raise ContractError("this model is already served with a key")
        job = ServeSettings(idle_minutes=idle_minutes, address=address)
        return _start(checkpoint, user, engine, job, key=key), key


def models_of(run: Run) -> list[str]:
    """List the models that answer in the chat. vLLM can't serve the base model in addition to a full-weight model."""
    has_only_trained = run.spec["hardware"]["rollout"] == Rollout.SERVER and not run.spec.get("lora")
    return ["trained"] if has_only_trained else ["trained", "base"]


def _start(checkpoint: Checkpoint, user: User, engine: str, job: ServeSettings, *, key: str) -> Run:
    hardware, model, host = _HARDWARE[engine], "", host_for(checkpoint)
    if hardware.vllm_server and not checkpoint.is_adapter:
        model = checkpoint.path_on(host)  # vLLM loads one folder, and no base beside it
        if not model:
            raise ContractError("its host hasn't announced its runs folder")
    run = starting.start(checkpoint, SERVE, user, settings=job, hardware=hardware, model=model, host=host)
    Served.objects.create(run=run, key_sha256=hashlib.sha256(key.encode()).hexdigest() if key else "")
    return run
