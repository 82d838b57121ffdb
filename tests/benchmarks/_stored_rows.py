"""Inside a stack's Django: what _stored.py asks for. Chunks are made by folding's own code."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
from django.utils import timezone

from controlplane.catalogue.datasets.models import DatasetVersion
from controlplane.catalogue.hardware.models import HardwareProfile
from controlplane.catalogue.rewards.models import RewardVersion
from controlplane.platform.accounts.models import User
from runs.engine.models import Attempt, Run
from runs.engine.scheduling import launching
from runs.engine.spec import LaunchRequest
from runs.engine.states import RunStatus
from runs.insight.metrics import folding
from workers.contract.wire.names import EndReason

BEGAN = 1_700_000_000.0
BATCH = 10_000
SPIKE = 10.0
"""Above everything else, which lies in 0 to 1."""
ENDS = (
    (RunStatus.SUCCEEDED, EndReason.COMPLETED),
    (RunStatus.FAILED, EndReason.OOM),
    (RunStatus.STOPPED, EndReason.STOPPED_BY_USER),
)


def long_run(page: dict[str, Any], *, name: str, steps: int, metrics: Sequence[str], spikes: Sequence[int]) -> str:
    run = _ended(page, name)
    generator = np.random.default_rng(len(name))
    columns = {metric: generator.random(steps) for metric in metrics}
    for step in spikes:
        columns["reward"][step - 1] = SPIKE
    columns["num_tokens"] = np.arange(1, steps + 1) * 2048.0
    for rows in _rows(columns, steps):
        folding.add(run.pk, rows)
    last = {metric: float(column[-1]) for metric, column in columns.items()}
    Run.objects.filter(pk=run.pk).update(
        last_seq=steps, folded_seq=steps, step=steps, max_steps=steps, last_metrics=last
    )
    Attempt.objects.filter(run=run).update(first_seq=1, last_seq=steps)
    return run.pk


def _rows(columns: dict[str, Any], steps: int) -> Iterator[list[folding.Row]]:
    for begin in range(0, steps, BATCH):
        part = {metric: column[begin : begin + BATCH].tolist() for metric, column in columns.items()}
        names, values = list(part), zip(*part.values(), strict=True)
        yield [
            (begin + i + 1, begin + i + 1, BEGAN + begin + i, dict(zip(names, row, strict=True)))
            for i, row in enumerate(values)
        ]


def many_runs(page: dict[str, Any], count: int) -> None:
    dice = random.Random(1)
    now = timezone.now()
    model = _ended(page, "pattern")
    runs = [
        Run(
            name=f"gsm8k-think-{n}",
            owner=model.owner,
            spec=model.spec,
            dataset_version=model.dataset_version,
            reward_version=model.reward_version,
            profile=model.profile,
            step=dice.randrange(1000),
            max_steps=1000,
            last_metrics={"reward": dice.random(), "step_time": dice.random()},
            tags=sorted(dice.sample(["math", "code", "r16", "r32", "long"], dice.randrange(3))),
            trend=[dice.random() for _ in range(40)],
        )
        for n in range(count)
    ]
    Run.objects.bulk_create(runs, batch_size=500)
    attempts = []
    for n, run in enumerate(runs):
        status, reason = ENDS[n % len(ENDS)]
        at = now - timedelta(minutes=n)
        attempts.append(
            Attempt(
                id=f"{run.pk}-1",
                run=run,
                number=1,
                status=status,
                reason=reason,
                started_at=at,
                ended_at=at,
                first_seq=1,
            )
        )
    Attempt.objects.bulk_create(attempts, batch_size=500)


def _ended(page: dict[str, Any], name: str) -> Run:
    """Launched and cancelled: its spec is the one that the product freezes."""
    run = launching.submit(
        LaunchRequest(
            name=name,
            host=None,
            dataset_version=DatasetVersion.objects.get(pk=page["dataset_version"]),
            reward_version=RewardVersion.objects.get(pk=page["reward_version"]),
            profile=HardwareProfile.objects.get(pk=page["profile"]),
            model=page["model"],
            grpo={"max_steps": 1_000_000},
        ),
        user=User.objects.get(username="operator"),
    )
    now = timezone.now()
    Attempt.objects.filter(run=run).update(
        status=RunStatus.SUCCEEDED, reason=EndReason.COMPLETED, started_at=now, ended_at=now
    )
    for lease in run.latest().leases.all():
        lease.delete()
    return run
