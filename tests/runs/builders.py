"""Rows of the catalogue and of runs with defaults, and lines as a supervisor would send them."""

from __future__ import annotations

from typing import Any
from zlib import crc32

from django.utils import timezone

from controlplane.catalogue.datasets.models import Dataset, DatasetVersion
from controlplane.catalogue.hardware.models import HardwareProfile, Host
from controlplane.catalogue.rewards import saving
from controlplane.catalogue.rewards.models import RewardConfig, RewardVersion
from controlplane.platform.accounts.models import Role, User
from runs.engine.models import Attempt, Run
from runs.engine.scheduling import launching
from runs.engine.spec import LaunchRequest
from runs.engine.states import RunStatus
from runs.engine.transitions import move
from workers.contract.reports.lines import OutboxLine

FORMAT = [{"name": "format", "function": "think_tags"}]
CPU = {"rollout": "transformers", "cpu_slots": 1}
ONE_GPU = {"rollout": "colocate", "trainer_gpus": 1}
SERVER = {"rollout": "server", "trainer_gpus": 1, "server": {"gpus": 1}}
FREE = {
    "seconds_to_gone": 0.2,
    "processes_ended": 2,
    "orphans_found": 0,
    "survivors": [],
    "gpus": [],
    "port_free": None,
    "free": True,
}


def a_user(name: str = "olga", role: str = Role.OPERATOR) -> User:
    found = User.objects.filter(username=name).first()
    return found or User.objects.create_user(name, role=role)


def a_host(name: str = "box", *, gpus: int = 0, cpu_slots: int = 1, **columns: Any) -> Host:
    inventory = {
        "boot_id": "boot-1",
        "gpus": [{"index": i, "name": "H200", "memory_mib": 143_771, "used_mib": 0} for i in range(gpus)],
        "cpu_slots": cpu_slots,
        "port_range": [21000, 21003],
    }
    return Host.objects.create(name=name, **{"inventory": inventory, "announced_at": timezone.now(), **columns})


def rewards_named(name: str, components: list[dict[str, Any]] | None = None) -> RewardVersion:
    """The newest version of the config of this name, made if there is none."""
    config = RewardConfig.objects.filter(name=name).first()
    return config.newest() if config else saving.make(name, FORMAT if components is None else components)


def a_run(name: str = "first", *, host: Host | None = None, hardware: dict[str, Any] | None = None, **more: Any) -> Run:
    """Submitted; on commit (at once in a test with real transactions) it is dispatched if it fits."""
    dataset, _ = Dataset.objects.get_or_create(name="sums")
    version, _ = DatasetVersion.objects.get_or_create(
        dataset=dataset, number=1, defaults={"status": DatasetVersion.READY, "rows": 100, "sha256": "0" * 64}
    )
    profile_name = f"profile {crc32(str(hardware).encode())}"
    profile, _ = HardwareProfile.objects.get_or_create(name=profile_name, defaults={"spec": hardware or CPU})
    user = more.pop("user", None) or a_user()
    chosen = {"model": "/models/tiny", "grpo": {"max_steps": 20}, "reward_version": rewards_named("tags"), **more}
    request = LaunchRequest(name=name, host=host, dataset_version=version, profile=profile, **chosen)
    return launching.submit(request, user=user)


def an_attempt(status: str = RunStatus.RUNNING, *, number: int = 1, run: Run | None = None) -> Attempt:
    """An attempt brought to a status the way life does."""
    attempt = (run or a_run()).attempts.get(number=number)
    roads = {
        RunStatus.QUEUED: [],
        RunStatus.STARTING: [RunStatus.STARTING],
        RunStatus.RUNNING: [RunStatus.STARTING, RunStatus.RUNNING],
        RunStatus.STOPPING: [RunStatus.STARTING, RunStatus.STOPPING],
        RunStatus.SUCCEEDED: [RunStatus.STARTING, RunStatus.RUNNING, RunStatus.SUCCEEDED],
        RunStatus.FAILED: [RunStatus.FAILED],
        RunStatus.STOPPED: [RunStatus.STOPPED],
    }
    ends = {RunStatus.SUCCEEDED: "completed", RunStatus.FAILED: "oom", RunStatus.STOPPED: "stopped_by_user"}
    for to in roads[RunStatus(status)]:
        move(attempt, to, reason=ends.get(to, "test"), actor="test")
    if attempt.first_seq is None and attempt.status != RunStatus.QUEUED:
        Attempt.objects.filter(pk=attempt.pk).update(first_seq=1, last_seq=0)
        attempt.refresh_from_db()
    return attempt


def train(seq: int, step: int | None = None, **values: float) -> OutboxLine:
    return OutboxLine(
        seq=seq, t=1000.0 + seq, kind="train", step=seq if step is None else step, data=values or {"reward": 0.5}
    )


def event(seq: int, kind: str, **data: Any) -> OutboxLine:
    return OutboxLine(seq=seq, t=1000.0 + seq, kind=kind, step=None, data=data)


def ended(seq: int, reason: str = "completed", **data: Any) -> OutboxLine:
    return event(
        seq, "ended", **{"reason": reason, "detail": "", "exit_codes": {"trainer": 0}, "receipt": FREE, **data}
    )
