"""Hosts on which a checkpoint can be used: the one that saved it, one that shares its folder, or any host if a copy is
in the artifact store."""

from collections.abc import Callable

from django.utils import timezone

from controlplane.catalogue.hardware.models import Host
from runs.engine import checkpoints
from runs.engine.checkpoints import Checkpoint
from runs.engine.models import Run
from runs.engine.scheduling import gpu_queue, leasing
from runs.engine.scheduling.gpu_queue import Capacity
from runs.engine.scheduling.leasing import Shortage
from workers.contract.run.spec import Placement
from workers.contract.wire.documents import ContractError


def resume_point(run: Run) -> Checkpoint | None:
    """Choose the checkpoint to resume from: the last one or, if no host that has it can take launches, the last stored
    one."""
    last, now = checkpoints.last(run), timezone.now()
    home = last.event.attempt.host if last else None
    if last is None or last.stored or run.host_id is not None or home is None or not leasing.host_problem(home, now):
        return last
    stored_checkpoints = (
        checkpoint for checkpoint in checkpoints.of_run(run) if checkpoint.usable and checkpoint.stored
    )
    return next(stored_checkpoints, last) if host_with(last, run) == home else last


def host_with(checkpoint: Checkpoint, run: Run) -> Host | None:
    """Choose the host for a resume: the one that saved the checkpoint or, if launches can't go there, a host with the
    same RUNS_DIR and enough resources. Return None for any host, if the checkpoint is stored and its host can't start
    the run now. A run that was launched for a particular host stays there."""
    home, now = checkpoint.event.attempt.host, timezone.now()
    if home is None or run.host_id is not None:
        return home if run.host_id is None or not checkpoint.stored else run.host
    if checkpoint.stored:
        return home if not leasing.host_problem(home, now) and _has_room(home, run) else None
    if not leasing.host_problem(home, now):
        return home
    folder = home.inventory.get("runs_folder")
    if not folder:
        return home
    try:
        need = gpu_queue.need_of(run)
    except ContractError:
        return home
    sharing_hosts = [host for host in Host.objects.exclude(pk=home.pk) if host.inventory.get("runs_folder") == folder]
    able_hosts = (host for host in sharing_hosts if not leasing.host_problem(host, now))
    return next((host for host in able_hosts if isinstance(leasing.allocate(need, host, {}), Placement)), home)


def host_for(checkpoint: Checkpoint) -> Host | None:
    """Choose the host for a job, an evaluation or a new run: the one that saved the checkpoint. Return None for any
    host, if launches can't go there and the store has a copy."""
    home = checkpoint.event.attempt.host
    return home if home is None or home in hosts_for(checkpoint) else None


def host_of_start(run: Run) -> Host | None:
    """Choose the host for evaluating a run's starting model: that of `host_for` if it is a checkpoint, or else the one
    that trained the run. Return None for any host, if launches can't go there and no host was chosen for the run."""
    if start := checkpoints.by_folder(run.spec.get("start_from") or ""):
        return host_for(start)
    home = run.latest().host
    is_unusable = home is not None and run.host_id is None and leasing.host_problem(home, timezone.now())
    return None if is_unusable else home


def hosts_for(checkpoint: Checkpoint, able: Callable[[Host], bool] = lambda host: True) -> list[Host]:
    """List the hosts for a job for which `able` is true: the host that saved the checkpoint, even if it is unreachable.
    If launches can't go there and the store has a copy, list all hosts that launches can go to instead."""
    home, now = checkpoint.event.attempt.host, timezone.now()
    if home is not None and not (checkpoint.stored and leasing.host_problem(home, now)):
        return [home] if able(home) else []
    if not checkpoint.stored:
        return []
    return [host for host in Host.objects.all() if not leasing.host_problem(host, now) and able(host)]


def _has_room(host: Host, run: Run) -> bool:
    try:
        return not isinstance(Capacity.read().find(gpu_queue.need_of(run), host.pk), Shortage)
    except ContractError:
        return True  # the dispatcher reports the problem
