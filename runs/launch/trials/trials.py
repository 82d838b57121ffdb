"""Trials of hardware profiles: two steps of each candidate on one host, as runs of their own kind.

They are leased, supervised and ended like any run. A candidate that could never run on the host is not queued; the
trial stores the reason.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from django.db import transaction

from controlplane.catalogue.datasets.models import DatasetVersion
from controlplane.catalogue.environments.models import EnvironmentVersion
from controlplane.catalogue.hardware.models import HardwareProfile, Host
from controlplane.catalogue.hardware.profiles import Profile, profile_of
from controlplane.catalogue.rewards.models import RewardVersion
from controlplane.platform.accounts.models import User
from runs.engine import queries
from runs.engine.hosts.view import HostView, host_views
from runs.engine.idempotency import once
from runs.engine.models import ProfileTrial
from runs.engine.scheduling import dispatching, launching, leasing, limits, stopping
from runs.engine.sentences import counted
from runs.engine.spec import LaunchRequest
from runs.engine.states import ACTIVE
from runs.launch import preflight
from runs.launch.new_run import drafting
from runs.launch.preflight import memory
from runs.launch.preflight.finding import Grade
from workers.contract.wire.documents import ContractError
from workers.contract.wire.names import StopMode

KIND = "trial"
STEPS = 2
"""Number of steps: the first includes one-time work (compiling, warm-up), the second is measured."""
TRIAL_ARGUMENTS = {"max_steps": STEPS, "save_strategy": "no"}


@dataclass(frozen=True)
class TrialSetup:
    """The setup that all candidates share."""

    host: Host
    model: str
    dataset_version: DatasetVersion
    reward_version: RewardVersion
    environment_version: EnvironmentVersion | None = None


@dataclass(frozen=True)
class Refusal:
    """A reason why a candidate is not tried."""

    why: str
    fits: bool | None = None
    """False if the host is too small for the candidate; None for any other problem."""


def start(
    setup: TrialSetup, profiles: Iterable[HardwareProfile], user: User, key: str | None
) -> tuple[ProfileTrial, bool]:
    """Start a trial and its runs; return (trial, True), or (earlier trial, False) if the key was used before. Raises
    QueueFull if this user may not queue that many runs."""
    chosen_profiles = list(profiles)
    # Checked outside the transaction, which other writers wait for.
    [view] = host_views([setup.host])
    candidates = [(row, refusal(row, setup, view)) for row in chosen_profiles]

    def make() -> ProfileTrial:
        trial = ProfileTrial.objects.create(
            owner=user,
            host=setup.host,
            model=setup.model,
            dataset_version=setup.dataset_version,
            reward_version=setup.reward_version,
            launch_key=key,
        )
        _launch(trial, setup, candidates, user)
        return trial

    return once(ProfileTrial.objects.all(), key, make)


def is_of(trial: ProfileTrial, setup: TrialSetup, profiles: Iterable[HardwareProfile]) -> bool:
    runs = list(trial.runs.all())
    candidates = {run.profile_id for run in runs} | {refused["profile"] for refused in trial.refused}
    environment = setup.environment_version.pk if setup.environment_version else None
    return (
        (trial.host, trial.model, trial.dataset_version, trial.reward_version)
        == (setup.host, setup.model, setup.dataset_version, setup.reward_version)
        and candidates == {row.pk for row in profiles}
        and {run.environment_version_id for run in runs} <= {environment}
    )


def stop_all(trial: ProfileTrial, user: User) -> int:
    """Stop the runs that are still active, without a checkpoint, and return how many there were."""
    runs = queries.with_attempts(trial.runs.all())
    active_attempts = [run.latest() for run in runs if run.latest().status in ACTIVE]
    counts = stopping.request_stops(active_attempts, StopMode.NOW, user)
    return counts.requested + counts.cancelled


def refusal(row: HardwareProfile, setup: TrialSetup, view: HostView) -> Refusal | None:
    """Check a candidate on this host with preflight and return why it can't be tried, or None if it can."""
    try:
        profile = profile_of(row)
    except ContractError as error:
        return Refusal(f"This profile can't be read: {error}.")
    shortage = too_small(profile, view)
    if shortage:
        return Refusal(shortage, fits=False)
    draft = drafting.draft_of(_request(setup, row, profile), hosts=[view])
    excess = next((finding for finding in memory.check(draft) if finding.grade == Grade.STOP), None)
    if excess:
        return Refusal(excess.cause, fits=False)
    first_stop = next((finding for finding in preflight.check(draft) if finding.grade == Grade.STOP), None)
    return Refusal(f"{first_stop.cause} {first_stop.fix}".strip()) if first_stop else None


def too_small(profile: Profile, view: HostView) -> str:
    """Describe the resources that the host lacks for this profile, even if all were free; return "" if none."""
    need = leasing.need_of(profile.spec)
    gpus = need.gpus + need.server_gpus
    if gpus > len(view.gpus):
        gpu_count = len(view.gpus) or "none"
        return f"Needs {counted(gpus, 'GPU')}, but {view.name} has {gpu_count}."
    placement = leasing.allocate(need, view.row, {})
    return "" if not isinstance(placement, leasing.Shortage) else f"{placement.text[:1].upper()}{placement.text[1:]}."


def _launch(
    trial: ProfileTrial, setup: TrialSetup, candidates: Sequence[tuple[HardwareProfile, Refusal | None]], user: User
) -> None:
    # All or none, since a trial of only some of the candidates would compare less than was asked for.
    limits.claim_room(user.pk, new_runs=sum(refused is None for _, refused in candidates))
    for row, refused in candidates:
        refused = refused or _submit(trial, setup, row, user)
        if refused is not None:
            trial.refused.append({"profile": row.pk, "name": row.name, "why": refused.why, "fits": refused.fits})
    trial.save(update_fields=["refused"])
    transaction.on_commit(dispatching.dispatch_ready, robust=True)


def _submit(trial: ProfileTrial, setup: TrialSetup, row: HardwareProfile, user: User) -> Refusal | None:
    profile = profile_of(row)
    try:
        request = replace(_request(setup, row, profile), trial=trial)
        launching.submit(request, user=user, dispatch=False)
    except ContractError as error:
        return Refusal(f"This can't be launched: {error}.")
    return None


def _request(setup: TrialSetup, row: HardwareProfile, profile: Profile) -> LaunchRequest:
    return LaunchRequest(
        name=f"{row.name[:100]} · trial",
        model=setup.model,
        host=setup.host,
        dataset_version=setup.dataset_version,
        reward_version=setup.reward_version,
        profile=row,
        grpo={**profile.batch, **TRIAL_ARGUMENTS},
        lora=profile.lora,
        kind=KIND,
        environment_version=setup.environment_version,
        episodes=setup.environment_version.episode_spec() if setup.environment_version else None,
    )


def key_of_page(setup: TrialSetup, profiles: Iterable[HardwareProfile], user: User, page: str) -> str | None:
    """Hash user, page and values, by which a repeated submission is recognised; return None without a page key."""
    if not page:
        return None
    environment = setup.environment_version and setup.environment_version.pk
    rows = (setup.host.pk, setup.dataset_version.pk, setup.reward_version.pk, environment)
    identity = (user.pk, page, setup.model, rows, sorted(row.pk for row in profiles))
    return hashlib.sha256(repr(identity).encode()).hexdigest()
