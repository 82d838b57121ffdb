"""Starts of jobs on a checkpoint; each job is a run of its own kind."""

from dataclasses import replace
from typing import Any

from django.db import transaction

from controlplane.catalogue.hardware.models import Host
from controlplane.platform.accounts.models import User
from runs.engine.checkpoints import Checkpoint
from runs.engine.models import Attempt, Run
from runs.engine.scheduling import checkpoint_hosts, launching
from runs.engine.spec import spec_of
from runs.engine.states import ACTIVE
from workers.contract.run.hardware import HardwareSpec
from workers.contract.run.jobs import KINDS
from workers.contract.run.spec import ModelSpec
from workers.contract.wire.documents import ContractError, to_dict

ON_THE_CPU = HardwareSpec("", cpu_slots=1)
"""Hardware of most jobs, which only read and write files."""


def start(
    checkpoint: Checkpoint,
    kind: str,
    user: User,
    *,
    settings: Any = None,
    hardware: HardwareSpec = ON_THE_CPU,
    model: str = "",
    host: Host | None = None,
) -> Run:
    """Queue a job on `host`, or else wherever the checkpoint can be used. `settings` is the kind's dataclass in
    workers.contract.run.jobs; `model` is a folder to load instead of the run's model. Raises ContractError if the
    checkpoint can't be used, and QueueFull if this user may not queue more runs."""
    if not checkpoint.usable:
        raise ContractError("this checkpoint no longer exists")
    trained_spec = spec_of(checkpoint.run)
    spec = replace(
        trained_spec,
        kind=kind,
        name=f"{checkpoint.name[:100]} · {KINDS[kind].label.lower()}",
        hardware=hardware,
        job={} if settings is None else to_dict(settings),
        **{**trained_spec.only("grpo", "lora", "attn_implementation", "episodes"), "start_from": checkpoint.folder},
    )
    if not checkpoint.is_adapter:
        spec = replace(spec, lora=None)
    if model:
        spec = replace(spec, model=ModelSpec(model))
    return launching.submit_job(checkpoint.run, spec, host=host or checkpoint_hosts.host_for(checkpoint), user=user)


def start_once(checkpoint: Checkpoint, kind: str, user: User, **options: Any) -> Run:
    """Start a job on a checkpoint, or return the job of this kind that is already in progress, so that a second click
    starts nothing. `options` are those of `start`."""
    with transaction.atomic():
        Attempt.objects.select_for_update().get(pk=checkpoint.event.attempt_id)  # two clicks, one after the other
        jobs = checkpoint.run.jobs.filter(kind=kind, spec__start_from=checkpoint.folder)
        return jobs.filter(attempts__status__in=ACTIVE).first() or start(checkpoint, kind, user, **options)
