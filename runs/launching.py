"""From a frozen spec to a claimed attempt: submit or resume, lease everything at once, send the launch."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone

from controlplane.accounts.models import User
from controlplane.datasets.models import DatasetVersion
from controlplane.hardware.models import HardwareProfile, Host
from controlplane.rewards.models import RewardConfig
from runs import leasing, messages, queries
from runs.models import Attempt, ProfileTrial, Run, RunEvent, new_run_id
from runs.spec import freeze, spec_of
from runs.states import FINAL, RunStatus
from runs.tokens import attempt_token
from runs.transitions import move
from workers.contract import AttemptSpec, EventKind, LoraSpec, ModelSpec, Placement, Task, from_dict, to_dict

log = logging.getLogger(__name__)

LATE_ROOM = 1_000_000
"""Seqs left free after an attempt whose last line never came: its outbox may still be handed in."""


class NotResumable(Exception):
    """The run's last attempt has not ended yet."""


def submit(
    *,
    user: User,
    name: str,
    host: Host | None,
    dataset_version: DatasetVersion,
    reward_config: RewardConfig,
    profile: HardwareProfile,
    model: ModelSpec | str,
    grpo: Mapping[str, Any],
    lora: LoraSpec | None = None,
    attn_implementation: str | None = None,
    eval_rows: int = 0,
    kind: str = "train",
    trial: ProfileTrial | None = None,
) -> Run:
    """Freeze the spec and queue the run's first attempt; it is dispatched on commit if its resources are free."""
    run_id = new_run_id()
    spec = freeze(
        run_id=run_id,
        name=name,
        kind=kind,
        model=model,
        dataset_version=dataset_version,
        reward_config=reward_config,
        profile=profile,
        grpo=grpo,
        lora=lora,
        attn_implementation=attn_implementation,
        eval_rows=eval_rows,
    )
    with transaction.atomic():
        run = Run.objects.create(
            id=run_id,
            name=name,
            kind=kind,
            owner=user,
            spec=to_dict(spec),
            host=host,
            dataset_version=dataset_version,
            reward_config=reward_config,
            profile=profile,
            trial=trial,
        )
        _queue(run, number=1, user=user, kind="submitted", host=host)
    return run


def resume(run: Run, user: User) -> Attempt:
    """A new attempt of an ended run, from its last checkpoint on the host that has it; from the start without one."""
    try:
        with transaction.atomic():
            # Locked, as every writer of events holds the attempt that the run had until now.
            last = run.attempts.select_for_update(of=("self", "run")).select_related("run").order_by("-number")[0]
            if last.status not in FINAL:
                raise NotResumable(f"{run.name} is still {last.status}.")
            checkpoint = queries.last_checkpoint(run)
            attempt = _queue(
                run,
                number=last.number + 1,
                user=user,
                kind="resumed",
                host=checkpoint.attempt.host if checkpoint else run.host,
                resume_from=f"{run.pk}/{checkpoint.attempt.number}/{checkpoint.data['path']}" if checkpoint else "",
                resume_step=int(checkpoint.data["step"]) if checkpoint else 0,
            )
    except IntegrityError:
        raise NotResumable(f"{run.name} has just been resumed by somebody else.") from None
    return attempt


def dispatch_ready() -> int:
    """Start every queued attempt whose resources can all be leased, by priority, then age. Answers how many."""
    waiting = Attempt.objects.filter(status=RunStatus.QUEUED).select_related("run")
    started = 0
    known: _Resources | None = None
    for attempt in waiting.order_by("-priority", "created_at", "pk"):
        known = known or _Resources()
        short = _start_anywhere(attempt, known)
        if short is None:
            started += 1
        elif short != attempt.waits_for:
            held = Attempt.objects.filter(pk=attempt.pk, status=RunStatus.QUEUED)
            held.update(waits_for=short[:200])
    return started


def send_launch(attempt: Attempt, now: datetime | None = None) -> bool:
    """Send the launch message once more. Of two senders one wins; a broker that is down leaves it to the tick."""
    now = now or timezone.now()
    unclaimed = Attempt.objects.filter(pk=attempt.pk, status=RunStatus.STARTING, claimed_at=None)
    sent = attempt.launches_sent
    if not unclaimed.filter(launches_sent=sent).update(launches_sent=sent + 1, launch_sent_at=now):
        return False
    spec = attempt_spec(attempt)
    arguments = [to_dict(spec), attempt_token(attempt.pk)]
    try:
        messages.send(spec.placement.host, Task.LAUNCH_RUN, arguments, settings.LAUNCH_EXPIRES_S)
    except messages.BrokerDown as error:
        log.warning("launch of %s was not sent: %s", attempt.pk, error)
        unclaimed.filter(launches_sent=sent + 1).update(launches_sent=sent, launch_sent_at=None)
        return False
    return True


def attempt_spec(attempt: Attempt) -> AttemptSpec:
    """What the launcher writes as spec.json."""
    return AttemptSpec(
        attempt_id=attempt.pk,
        number=attempt.number,
        first_seq=attempt.first_seq or 1,
        run=spec_of(attempt.run),
        placement=from_dict(Placement, attempt.placement),
        resume_from=attempt.resume_from or None,
    )


def host_problem(host: Host, now: datetime) -> str:
    """Why launches can't go to a host, or nothing."""
    if host.draining:
        return f"{host.name} is draining"
    if host.announced_at is None or now - host.announced_at > timedelta(seconds=settings.HOST_STALE_AFTER_S):
        return f"{host.name} has not announced itself lately, so launches can't arrive there"
    return ""


def _queue(
    run: Run,
    *,
    number: int,
    user: User,
    kind: str,
    host: Host | None,
    resume_from: str = "",
    resume_step: int = 0,
) -> Attempt:
    attempt = Attempt.objects.create(
        id=f"{run.pk}-{number}",
        run=run,
        number=number,
        host=host,
        resume_from=resume_from,
        resume_step=resume_step,
    )
    data = {"attempt": number, "step": resume_step}
    RunEvent.objects.create(
        run=run, attempt=attempt, at=timezone.now(), kind=kind, actor=user.get_username(), data=data
    )
    transaction.on_commit(dispatch_ready, robust=True)
    return attempt


class _Resources:
    """What the hosts have and what of it is taken, read once for a whole queue and anew after each start."""

    def __init__(self) -> None:
        self.load()

    def load(self) -> None:
        self.hosts = list(Host.objects.all())
        self.held = leasing.held()


def _start_anywhere(attempt: Attempt, known: _Resources) -> str | None:
    """None: it is starting. Otherwise what it waits for, in words."""
    asked = attempt.host_id or attempt.run.host_id
    hosts = [host for host in known.hosts if asked in (None, host.pk)]
    need = leasing.need_of(spec_of(attempt.run).hardware)
    problems = []
    for host in hosts:
        problem = host_problem(host, timezone.now())
        if not problem:
            placement = leasing.place(need, host, known.held[host.pk])
            if isinstance(placement, Placement):
                started = _start(attempt, host, placement)
                known.load()  # what was free is taken, by this attempt or by whoever was first
                if started:
                    return None
                problem = "waits for its turn"
            else:
                problem = placement.text
        problems.append(problem)
    # The host that could do it soonest is the one that only waits.
    return next((p for p in problems if p.startswith("waits")), problems[0] if problems else "no host is known yet")


def _start(attempt: Attempt, host: Host, placement: Placement) -> bool:
    """Leases, STARTING and the seq range in one transaction; the message on commit."""
    try:
        with transaction.atomic():
            first = _first_seq(attempt)
            facts = {"host": host, "placement": to_dict(placement), "first_seq": first, "last_seq": first - 1}
            if not move(attempt, RunStatus.STARTING, reason="dispatched", actor="dispatcher", facts=facts):
                return False
            leasing.take(attempt, host, placement)
            transaction.on_commit(lambda: send_launch(attempt), robust=True)
    except IntegrityError:
        attempt.refresh_from_db(fields=["status", "host", "placement", "first_seq", "last_seq", "dispatched_at"])
        return False
    return True


def _first_seq(attempt: Attempt) -> int:
    if attempt.number == 1:
        return 1
    last = Run.objects.values_list("last_seq", flat=True).get(pk=attempt.run_id)
    before = attempt.run.attempts.filter(number__lt=attempt.number, first_seq__isnull=False)
    ended = RunEvent.objects.filter(run=attempt.run_id, seq=last, kind=EventKind.ENDED)
    complete = not before.exists() or ended.exists()
    return last + 1 if complete else last + 1 + LATE_ROOM
