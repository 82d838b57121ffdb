"""Claims: a supervisor's first request. The supervisor starts nothing unless the response is `go`."""

import hashlib
from typing import Annotated

import msgspec
from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.urls import reverse
from django.utils import timezone

from controlplane.platform.accounts import vault
from controlplane.platform.http import tokens
from runs.engine import hints
from runs.engine.models import Attempt, Run
from runs.engine.scheduling import ending
from runs.engine.scheduling.dispatching import attempt_spec
from runs.engine.served.models import Served
from runs.engine.spec import spec_of
from runs.engine.states import ON_HOST, RunStatus
from runs.engine.timeline import add_event
from runs.intake.host_api.reaping import MAX_LAUNCHES
from workers.contract.reports.chat import KEY_DIGEST
from workers.contract.reports.lines import ClaimAnswer
from workers.contract.run import gateway, sinks
from workers.contract.run.spec import RunSpec
from workers.contract.wire.artifacts import STORES
from workers.contract.wire.documents import ContractError, digest
from workers.contract.wire.names import SCHEMA, EndReason, Phase


class Claim(msgspec.Struct):
    """The body of a claim."""

    schema: int
    host: str
    pid: Annotated[int, msgspec.Meta(ge=1, lt=2**31)]
    boot_id: str

    def __post_init__(self) -> None:
        self.boot_id = self.boot_id[:64]


def claim(attempt: Attempt, request: Claim) -> ClaimAnswer:
    """Grant or refuse a claim. The first supervisor of a STARTING attempt gets `go` with the current values of the
    spec's secrets, also if it repeats its claim."""
    secrets: dict[str, str] = {}
    with transaction.atomic():
        row = Attempt.objects.select_for_update(of=("self",)).select_related("host", "run").get(pk=attempt.pk)
        refusal = _refusal(row, request)
        if not refusal and row.status == RunStatus.STARTING:  # later, the supervisor already has them
            secrets, refusal = _secrets(row)
        if not refusal and row.claimed_at is None:
            now = timezone.now()
            Attempt.objects.filter(pk=row.pk).update(
                claimed_at=now,
                last_seen_at=now,
                boot_id=request.boot_id,
                supervisor_pid=request.pid,
                phase=Phase.CLAIMED,
            )
            transaction.on_commit(lambda: hints.changed(row.run_id))
    return ClaimAnswer(
        go=not refusal,
        why=refusal,
        ack=row.last_seq,
        stop=row.stop_mode or None,
        spec_sha256="" if refusal else digest(attempt_spec(row)),
        secrets=secrets,
    )


def not_launched(attempt: Attempt, detail: str, *, final: bool) -> None:
    """Record that a launcher didn't start a supervisor. End the attempt if that is `final`, because a retry would fail
    as well, or if this was the last launch."""
    with transaction.atomic():
        row = Attempt.objects.select_for_update().get(pk=attempt.pk)
        if row.claimed_at is not None or row.status != RunStatus.STARTING:
            return
        add_event(row, "not_launched", "launcher", detail=detail)
        if final or row.launches_sent >= MAX_LAUNCHES:
            reason = EndReason.CANCELLED if row.stop_mode else EndReason.LAUNCH_FAILED
            ending.end(row, reason, actor="launcher", detail=detail, only_if=Q(claimed_at=None), proved_free=True)


def _refusal(attempt: Attempt, request: Claim) -> str:
    if attempt.claimed_at is not None:
        is_same = (attempt.supervisor_pid, attempt.boot_id) == (request.pid, request.boot_id)
        if is_same and attempt.status in ON_HOST:
            return ""
        return f"The attempt is {attempt.status}." if is_same else "Another supervisor has this attempt."
    if attempt.status != RunStatus.STARTING:
        return f"The attempt is {attempt.status}."
    if attempt.host is None or attempt.host.name != request.host:
        return f"The attempt's resources are leased on {attempt.host}, not on {request.host}."
    if request.schema != SCHEMA:
        reason = f"The supervisor uses version {request.schema} of the contract; the control plane uses {SCHEMA}."
        ending.end(attempt, EndReason.LAUNCH_FAILED, actor="claim", detail=reason, proved_free=True)
        return reason
    if attempt.host.is_another_machine(request.boot_id, timezone.now()):
        return f"Another machine is announcing itself as {attempt.host.name}."
    if attempt.stop_mode:
        # Nothing has been started, so there is nothing to stop or prove.
        ending.end(attempt, EndReason.CANCELLED, actor="claim", proved_free=True)
        return "The run was stopped before it started."
    return ""


def _secrets(attempt: Attempt) -> tuple[dict[str, str], str]:
    """Return the attempt's secrets and "". If they are unavailable, end the attempt and return the reason."""
    try:
        spec = spec_of(attempt.run)
        stores = {STORES: "1"} if vault.has_artifact_store() else {}  # its keys go only to the process that uploads
        return {
            **vault.for_run(spec),
            **_key_variable(attempt.run, spec),
            **stores,
            **_link_variable(attempt.run, spec),
        }, ""
    except vault.NotGiven as error:
        reason = str(error)
    except ContractError as error:
        reason = f"The run's spec can't be read: {error}"
    ending.end(attempt, EndReason.LAUNCH_FAILED, actor="claim", detail=reason, proved_free=True)
    return {}, reason


def _link_variable(run: Run, spec: RunSpec) -> dict[str, str]:
    """Build the public address of the run's page, as an environment variable for its sinks."""
    is_needed = settings.PUBLIC_URL and spec.sinks
    return {sinks.LINK: settings.PUBLIC_URL + reverse("run", args=[run.pk])} if is_needed else {}


def _key_variable(run: Run, spec: RunSpec) -> dict[str, str]:
    """Build the variable with the digest that a run's gateway or a served model checks keys against."""
    if spec.episodes is not None and spec.episodes.gateway is not None:
        return {gateway.KEY_DIGEST: hashlib.sha256(tokens.gateway_key(run.pk).encode()).hexdigest()}
    served_model = Served.objects.filter(run=run).first()
    return {KEY_DIGEST: served_model.key_sha256} if served_model and served_model.key_sha256 else {}
