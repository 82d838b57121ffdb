"""The served model of a checkpoint: the live one, or a new one."""

from __future__ import annotations

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
    """The host that serves it: of those that can have its files, one with the most places."""
    return max(checkpoint_hosts.hosts_for(checkpoint), key=lambda host: len(places_on(host)), default=None)


def places_on(host: Host | None) -> list[str]:
    """Where a model can be served on this host, the CPU first: only a person gives a GPU to a job."""
    if host is None or not host.inventory.get("gpus"):
        return [CPU]
    return [CPU, GPU, VLLM] if host.vllm else [CPU, GPU]


def usual_place(host: Host | None) -> str:
    """What the chat proposes: a GPU of the host if one is free, and else the CPU."""
    if host is None or GPU not in places_on(host):
        return CPU
    free = leasing.place(leasing.need_of(_HARDWARE[GPU]), host, leasing.held()[host.pk])
    return GPU if isinstance(free, Placement) else CPU


def place_again(checkpoint: Checkpoint, host: Host | None) -> str:
    """Where the last served model of the checkpoint ran; "": a person has to choose first."""
    places, last = places_on(host), of_checkpoint(checkpoint).first()
    if last is None:
        return places[0] if len(places) == 1 else ""
    hardware = last.spec["hardware"]
    place = VLLM if hardware["rollout"] == Rollout.SERVER else GPU if hardware["trainer_gpus"] else CPU
    return place if place in places else ""


def addresses_on(host: Host | None) -> list[str]:
    """Where a served model may listen: on loopback, or where an admin lets it."""
    return [LOOPBACK, *([host.serve_address] if host and host.serve_address else [])]


def of_checkpoint(checkpoint: Checkpoint) -> QuerySet[Run]:
    """All served models of a checkpoint, live or not, the newest first."""
    served = checkpoint.run.jobs.filter(kind=SERVE, spec__start_from=checkpoint.folder)
    return served.select_related("served", "owner").order_by("-created_at")


def live(checkpoint: Checkpoint) -> Run | None:
    """The newest served model that runs; while none does, the newest that waits, starts or stops."""
    served = of_checkpoint(checkpoint)
    running = served.filter(attempts__status=RunStatus.RUNNING).first()
    return running or served.filter(attempts__status__in=ACTIVE).first()


def live_with_key(checkpoint: Checkpoint) -> Run | None:
    """The one that answers requests."""
    return of_checkpoint(checkpoint).filter(attempts__status__in=ACTIVE).exclude(served__key_sha256="").first()


def live_or_start(checkpoint: Checkpoint, user: User, *, place: str = CPU) -> Run:
    """For the chat: a second click finds what the first has started.

    Raises ContractError if the checkpoint can't be used, QueueFull if this user may not queue more runs.
    """
    with transaction.atomic():
        Run.every.select_for_update().get(pk=checkpoint.run.pk)
        return live(checkpoint) or _start(checkpoint, user, place, ServeSettings(), key="")


def start_with_key(
    checkpoint: Checkpoint, user: User, *, place: str, address: str, idle_minutes: float
) -> tuple[Run, str]:
    """For requests: a new served model, and its key, which is stored nowhere.

    Raises ContractError if the checkpoint is served with a key already or can't be used, QueueFull as above.
    """
    key = f"sk-{secrets.token_urlsafe(32)}"
    with transaction.atomic():
        Run.every.select_for_update().get(pk=checkpoint.run.pk)
        if live_with_key(checkpoint):
            raise ContractError("this model is served with a key already")
        job = ServeSettings(idle_minutes=idle_minutes, address=address)
        return _start(checkpoint, user, place, job, key=key), key


def models_of(run: Run) -> list[str]:
    """The models that answer: vLLM has no base beside all weights."""
    alone = run.spec["hardware"]["rollout"] == Rollout.SERVER and not run.spec.get("lora")
    return ["trained"] if alone else ["trained", "base"]


def _start(checkpoint: Checkpoint, user: User, place: str, job: ServeSettings, *, key: str) -> Run:
    hardware, model, host = _HARDWARE[place], "", host_for(checkpoint)
    if hardware.vllm_server and not checkpoint.is_adapter:
        model = checkpoint.path_on(host)  # vLLM loads one folder, and no base beside it
        if not model:
            raise ContractError("its host hasn't said where its runs are")
    run = starting.start(checkpoint, SERVE, user, settings=job, hardware=hardware, model=model, host=host)
    Served.objects.create(run=run, key_sha256=hashlib.sha256(key.encode()).hexdigest() if key else "")
    return run
