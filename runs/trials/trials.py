"""Trying hardware profiles: two steps of each candidate on one host, as runs of their own kind.

They are leased, supervised, killed and proved like any run. A candidate that could never run there is not queued: the
trial keeps why.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.db import transaction

from controlplane.accounts.models import User
from controlplane.datasets.models import DatasetVersion
from controlplane.hardware.models import HardwareProfile, Host
from controlplane.hardware.profiles import Profile, profile_of
from controlplane.rewards.models import RewardVersion
from runs import preflight, queries
from runs.hosts.cards import HostView, host_views
from runs.idempotency import once
from runs.models import ProfileTrial
from runs.new_run import drafting
from runs.preflight import memory
from runs.scheduling import launching, leasing, limits, stopping
from runs.spec import LaunchRequest
from runs.states import ACTIVE
from workers.contract import ContractError, StopMode

KIND = "trial"
STEPS = 2
"""The first step holds what happens once (compiling, warming up); the second is measured."""
ONLY = {"max_steps": STEPS, "save_strategy": "no"}


@dataclass(frozen=True)
class Wanted:
    """What all candidates are tried with."""

    host: Host
    model: str
    dataset_version: DatasetVersion
    reward_version: RewardVersion


@dataclass(frozen=True)
class Refusal:
    """Why a candidate is not tried."""

    why: str
    fits: bool | None = None
    """False: the host is too small for it. None: something else is wrong."""


def start(wanted: Wanted, profiles: Iterable[HardwareProfile], user: User, page: str) -> tuple[ProfileTrial, bool]:
    """The trial with its runs, and whether this call made it: the same page sent twice is one trial.

    QueueFull: its runs are more than this person may still queue.
    """
    chosen = list(profiles)
    key = _key(wanted, chosen, user, page)
    # Outside the transaction, which other writers wait for.
    [view] = host_views([wanted.host])
    found = [(row, refusal(row, wanted, view)) for row in chosen]

    def make() -> ProfileTrial:
        trial = ProfileTrial.objects.create(
            owner=user,
            host=wanted.host,
            model=wanted.model,
            dataset_version=wanted.dataset_version,
            reward_version=wanted.reward_version,
            launch_key=key,
        )
        _launch(trial, wanted, found, user)
        return trial

    return once(ProfileTrial.objects.all(), key, make)


def stop_all(trial: ProfileTrial, user: User) -> int:
    """Stop what is still going. Nothing of a trial is worth a checkpoint."""
    runs = queries.with_attempts(trial.runs.all())
    live = [run.latest() for run in runs if run.latest().status in ACTIVE]
    done = stopping.request_stops(live, StopMode.NOW, user)
    return done.asked + done.cancelled


def refusal(row: HardwareProfile, wanted: Wanted, view: HostView) -> Refusal | None:
    """What preflight would say of this candidate on this host; None when it can be tried."""
    try:
        profile = profile_of(row)
    except ContractError as error:
        return Refusal(f"This profile can't be read: {error}.")
    small = too_small(profile, view)
    if small:
        return Refusal(small, fits=False)
    draft = drafting.draft_of(_request(wanted, row, profile), hosts=[view])
    floor = next((finding for finding in memory.check(draft) if finding.grade == preflight.Grade.STOP), None)
    if floor:
        return Refusal(floor.cause, fits=False)
    first = next((finding for finding in preflight.check(draft) if finding.grade == preflight.Grade.STOP), None)
    return Refusal(f"{first.cause} {first.fix}".strip()) if first else None


def too_small(profile: Profile, view: HostView) -> str:
    """What the host would need to have for this profile; "" when it has it, whether free now or not."""
    need = leasing.need_of(profile.spec)
    gpus = need.gpus + need.server_gpus
    if gpus > len(view.gpus):
        has = len(view.gpus) or "none"
        return f"Needs {gpus} GPU{'' if gpus == 1 else 's'}, {view.name} has {has}."
    placed = leasing.place(need, view.row, {})
    return "" if not isinstance(placed, leasing.Shortage) else f"{placed.text[:1].upper()}{placed.text[1:]}."


def _launch(
    trial: ProfileTrial, wanted: Wanted, found: Sequence[tuple[HardwareProfile, Refusal | None]], user: User
) -> None:
    # All or none: half of the candidates would answer another question.
    limits.claim_room(user.pk, adding=sum(refused is None for _, refused in found))
    for row, refused in found:
        refused = refused or _submit(trial, wanted, row, user)
        if refused is not None:
            trial.refused.append({"profile": row.pk, "name": row.name, "why": refused.why, "fits": refused.fits})
    trial.save(update_fields=["refused"])
    transaction.on_commit(launching.dispatch_ready, robust=True)


def _submit(trial: ProfileTrial, wanted: Wanted, row: HardwareProfile, user: User) -> Refusal | None:
    profile = profile_of(row)
    try:
        request = replace(_request(wanted, row, profile), trial=trial)
        launching.submit(request, user=user, dispatch=False)
    except ContractError as error:
        return Refusal(f"This can't be launched: {error}.")
    return None


def _request(wanted: Wanted, row: HardwareProfile, profile: Profile) -> LaunchRequest:
    return LaunchRequest(
        name=f"{row.name[:100]} · trial",
        model=wanted.model,
        host=wanted.host,
        dataset_version=wanted.dataset_version,
        reward_version=wanted.reward_version,
        profile=row,
        grpo=_grpo(profile),
        lora=profile.lora,
        kind=KIND,
    )


def _grpo(profile: Profile) -> dict[str, Any]:
    return {**profile.batch, **ONLY}


def _key(wanted: Wanted, profiles: Sequence[HardwareProfile], user: User, page: str) -> str | None:
    """Who, which page, and what it held: Back and a change make a new trial, a second click doesn't."""
    if not page:
        return None
    rows = (wanted.host.pk, wanted.dataset_version.pk, wanted.reward_version.pk)
    held = (user.pk, page, wanted.model, rows, sorted(row.pk for row in profiles))
    return hashlib.sha256(repr(held).encode()).hexdigest()
