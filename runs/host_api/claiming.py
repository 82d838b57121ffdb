"""A supervisor's first act: it starts nothing before this answers `go`."""

from __future__ import annotations

from dataclasses import dataclass

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from controlplane.accounts import vault
from runs import hints
from runs.host_api.reaping import MAX_LAUNCHES
from runs.models import Attempt, RunEvent
from runs.scheduling import ending
from runs.spec import spec_of
from runs.states import ON_HOST, EndReason, RunStatus
from workers.contract import SCHEMA, ClaimAnswer, ContractError, Phase


@dataclass(frozen=True)
class Claim:
    schema: int
    host: str
    pid: int
    boot_id: str


def claim(attempt: Attempt, said: Claim) -> ClaimAnswer:
    """Go to the first supervisor of a STARTING attempt, and to the same one when it asks again. With it go the secrets
    that the spec names, as they are now."""
    secrets: dict[str, str] = {}
    with transaction.atomic():
        held = Attempt.objects.select_for_update(of=("self",)).select_related("host", "run").get(pk=attempt.pk)
        why = _refusal(held, said)
        if not why and held.status == RunStatus.STARTING:  # later it has them
            secrets, why = _secrets(held)
        if not why and held.claimed_at is None:
            now = timezone.now()
            Attempt.objects.filter(pk=held.pk).update(
                claimed_at=now,
                last_seen_at=now,
                boot_id=said.boot_id,
                supervisor_pid=said.pid,
                phase=Phase.CLAIMED,
            )
            transaction.on_commit(lambda: hints.changed(held.run_id))
    return ClaimAnswer(go=not why, why=why, ack=held.last_seq, stop=held.stop_mode or None, secrets=secrets)


def not_launched(attempt: Attempt, detail: str, *, final: bool) -> None:
    """A launcher's word that it has started no supervisor, told at once. `final`: another try would fail as well."""
    with transaction.atomic():
        held = Attempt.objects.select_for_update().get(pk=attempt.pk)
        if held.claimed_at is not None or held.status != RunStatus.STARTING:
            return
        data = {"detail": detail}
        RunEvent.objects.create(
            run_id=held.run_id, attempt=held, at=timezone.now(), kind="not_launched", actor="launcher", data=data
        )
        transaction.on_commit(lambda: hints.changed(held.run_id))
        if final or held.launches_sent >= MAX_LAUNCHES:
            reason = EndReason.CANCELLED if held.stop_mode else EndReason.LAUNCH_FAILED
            ending.end(held, reason, actor="launcher", detail=detail, only_if=Q(claimed_at=None), proved_free=True)


def _refusal(attempt: Attempt, said: Claim) -> str:
    if attempt.claimed_at is not None:
        same = (attempt.supervisor_pid, attempt.boot_id) == (said.pid, said.boot_id)
        if same and attempt.status in ON_HOST:
            return ""
        return f"The attempt is {attempt.status}." if same else "Another supervisor has this attempt."
    if attempt.status != RunStatus.STARTING:
        return f"The attempt is {attempt.status}."
    if attempt.host is None or attempt.host.name != said.host:
        return f"The attempt's resources are leased on {attempt.host}, not on {said.host}."
    if said.schema != SCHEMA:
        why = f"The supervisor speaks version {said.schema} of the contract, the control plane {SCHEMA}."
        ending.end(attempt, EndReason.LAUNCH_FAILED, actor="claim", detail=why, proved_free=True)
        return why
    if attempt.stop_mode:
        # Nothing was started yet, so nothing has to be stopped or proved.
        ending.end(attempt, EndReason.CANCELLED, actor="claim", proved_free=True)
        return "The run was stopped before it started."
    return ""


def _secrets(attempt: Attempt) -> tuple[dict[str, str], str]:
    """What the attempt gets, or why it can't have what it needs; then it has ended."""
    try:
        return vault.for_run(spec_of(attempt.run)), ""
    except vault.NotGiven as error:
        why = str(error)
    except ContractError as error:
        why = f"The run's spec can't be read: {error}"
    ending.end(attempt, EndReason.LAUNCH_FAILED, actor="claim", detail=why, proved_free=True)
    return {}, why
