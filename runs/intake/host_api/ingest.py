"""Ingestion of the lines of an attempt's outbox: in order, each once, in one short transaction. Replaying a batch
changes nothing. Lines after a gap are ignored; the acknowledged seq tells the supervisor where to continue. Only
life-cycle events move the status."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from django.db import connection, transaction
from django.db.models import QuerySet
from django.utils import timezone

from controlplane.catalogue.joining.credentials import revoked_since_dispatch
from runs.engine import hints
from runs.engine import step_spans as phases
from runs.engine.models import Attempt, Run
from runs.engine.monitoring.measured import MeasuredDuration, measuring
from runs.engine.records import MetricRow, RunEvent
from runs.engine.scheduling import ending
from runs.engine.served import conversation
from runs.engine.states import ACTIVE, RunStatus
from runs.engine.transitions import move
from runs.insight.completions import progress
from runs.insight.metrics import folding, trend
from runs.intake.host_api.statements import Rows, encode_json, insert, update
from workers.contract.reports.lines import OutboxLine, Receipt, problem_of
from workers.contract.wire.documents import ContractError, from_dict
from workers.contract.wire.names import METRIC_KINDS, EndReason, EventKind, Phase

ACTOR = "supervisor"
_PLAIN_COLUMNS = (
    *("number", "status", "stop_mode", "first_seq", "last_seq", "run_id"),
    *("run__last_seq", "run__folded_seq", "run__last_metrics", "run__trend", "run__trend_of", "run__reward_ends"),
)
"""Columns of an attempt and its run that are read to store plain lines."""
_KINDS = frozenset(EventKind)
_MAX_SEQ, _MAX_T = 2**62, 4e9


class BadLine(ValueError):
    """A line violates the contract, so nothing of its batch is stored."""

    def __init__(self, index: int, message: str) -> None:
        super().__init__(message)
        self.index = index


class NotStarted(Exception):
    """Lines arrived for an attempt that was never dispatched."""


@dataclass(frozen=True)
class Delivery:
    """The lines of one request."""

    attempt_id: str
    lines: Sequence[OutboxLine]
    live: bool = True
    """True if the lines come from the attempt's live supervisor."""


@dataclass(frozen=True)
class DeliveryState:
    """An attempt's state after a delivery is stored."""

    run_id: str
    ack: int
    status: str
    stop_mode: str


@dataclass
class _Batch:
    """The new lines of one request, and the columns of the attempt and the run that they change."""

    attempt: Attempt
    lines: list[OutboxLine]
    resumed: list[int]
    """Steps from which later attempts have resumed."""
    facts: dict[str, Any] = field(default_factory=dict)
    run_facts: dict[str, Any] = field(default_factory=dict)

    @property
    def current(self) -> bool:
        """True if no later attempt has started, so that the run's headline values are this attempt's."""
        return not self.resumed

    @property
    def ack(self) -> int:
        return self.lines[-1].seq if self.lines else self.attempt.last_seq

    def state(self) -> DeliveryState:
        return DeliveryState(self.attempt.run_id, self.ack, self.attempt.status, self.attempt.stop_mode)


def accept(attempt: Attempt, lines: Sequence[OutboxLine], *, live: bool = True) -> int:
    """Store new lines and return the attempt's acknowledged seq. `live` says whether the lines come from its live
    supervisor. Update `attempt` with the resulting status and stop request.
    """
    check(lines)
    if not lines:
        if live:  # a heartbeat is one UPDATE
            Attempt.objects.filter(pk=attempt.pk).update(last_seen_at=timezone.now())
        return attempt.last_seq
    with measuring(MeasuredDuration.INGEST), transaction.atomic():
        locked_attempt = _locked_attempts().defer("run__spec").get(pk=attempt.pk)
        batch = _batch(Delivery(attempt.pk, lines, live), locked_attempt, _later_attempts([locked_attempt.run_id]))
        _apply_batches([batch], is_plain=is_plain(lines))
    attempt.status, attempt.stop_mode = locked_attempt.status, locked_attempt.stop_mode
    return batch.ack


def accept_together(deliveries: Sequence[Delivery]) -> list[DeliveryState | None]:
    """Store deliveries of different attempts, whose lines are plain and checked, in one transaction. Return each
    delivery's resulting state, or None if it can't be stored here, so that `accept` must store it or report its
    problem."""
    attempt_ids = [delivery.attempt_id for delivery in deliveries]
    with measuring(MeasuredDuration.INGEST), transaction.atomic():
        _commit_asynchronously()
        live_attempts = _locked_attempts().filter(~revoked_since_dispatch(), pk__in=attempt_ids, status__in=ACTIVE)
        attempts_by_id = {attempt.pk: attempt for attempt in live_attempts.only(*_PLAIN_COLUMNS)}
        later_attempts = _later_attempts([attempt.run_id for attempt in attempts_by_id.values()])
        batches: list[_Batch | None] = []
        for delivery in deliveries:
            try:
                attempt = attempts_by_id.get(delivery.attempt_id)
                batches.append(_batch(delivery, attempt, later_attempts) if attempt is not None else None)
            except (BadLine, NotStarted):
                batches.append(None)
        _apply_batches([batch for batch in batches if batch is not None], is_plain=True)
    return [batch.state() if batch is not None else None for batch in batches]


def is_plain(lines: Sequence[OutboxLine]) -> bool:
    """Return whether the lines only need to be stored, without changing a status or another row."""
    return not any(line.kind in _APPLY for line in lines)


def _apply_batches(batches: Sequence[_Batch], *, is_plain: bool) -> None:
    _store(batches)
    for batch in batches:
        for line in batch.lines:
            if apply := _APPLY.get(line.kind):
                apply(batch, line)
    _save(batches, is_plain=is_plain)
    if news := [(batch.attempt.run_id, batch.ack) for batch in batches if batch.lines]:
        transaction.on_commit(lambda: hints.announce(*news))


def _batch(delivery: Delivery, attempt: Attempt, later_attempts: Mapping[str, list[Attempt]]) -> _Batch:
    rows = [row for row in later_attempts.get(attempt.run_id, ()) if row.number > attempt.number]
    new_lines = _contiguous(attempt, delivery.lines, [row.first_seq for row in rows if row.first_seq is not None])
    batch = _Batch(attempt, new_lines, [row.resume_step for row in rows if row.started_at is not None])
    if delivery.live:
        batch.facts["last_seen_at"] = timezone.now()
    return batch


def _commit_asynchronously() -> None:
    """Let PostgreSQL confirm this transaction before its log is on disk, as SQLite is set up to do anyway. Plain lines
    that are lost in a crash are sent again, because the acknowledged seq goes back. An end waits for the disk and thus
    for all lines before it."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL synchronous_commit TO off")


def _locked_attempts() -> QuerySet[Attempt]:
    """Return a query that locks attempts with their runs, in a fixed order so that two groups can't deadlock."""
    return Attempt.objects.select_for_update(of=("self", "run")).select_related("run").order_by("pk")


def _later_attempts(runs: Sequence[str]) -> dict[str, list[Attempt]]:
    """Map the ids of runs to their attempts after the first, for runs that have any."""
    by_run: dict[str, list[Attempt]] = {}
    rows = Attempt.objects.filter(run_id__in=runs, number__gt=1).order_by()
    for attempt in rows.only("run_id", "number", "first_seq", "resume_step", "started_at"):
        by_run.setdefault(attempt.run_id, []).append(attempt)
    return by_run


def check(lines: Sequence[OutboxLine]) -> None:
    """Raise BadLine if a line violates the contract."""
    for index, line in enumerate(lines):
        if not 1 <= line.seq < _MAX_SEQ:
            raise BadLine(index, f"seq {line.seq} is out of range")
        if not 0 <= line.t < _MAX_T:
            raise BadLine(index, f"t {line.t} is not a valid time")
        if line.kind not in _KINDS:
            raise BadLine(index, f"kind {line.kind!r} is unknown")
        if problem := problem_of(line.kind, line.step, line.data):
            raise BadLine(index, problem)
        if line.kind == EventKind.ENDED:
            try:
                _receipt(line)
            except ContractError as error:
                raise BadLine(index, str(error)) from None


def _contiguous(attempt: Attempt, lines: Sequence[OutboxLine], later_first_seqs: Sequence[int]) -> list[OutboxLine]:
    """Select the lines that follow the stored ones without a gap. `later_first_seqs` are the first seqs of later
    attempts. Raises BadLine for a line with a seq of another attempt, and NotStarted if the attempt was never
    dispatched."""
    if attempt.first_seq is None:
        raise NotStarted(f"{attempt.pk} was never dispatched.")
    next_first_seq = min(later_first_seqs, default=_MAX_SEQ)
    for index, line in enumerate(lines):
        if line.seq < attempt.first_seq:
            raise BadLine(index, f"seq {line.seq} is before this attempt's first seq, {attempt.first_seq}")
        if line.seq >= next_first_seq:
            raise BadLine(index, f"seq {line.seq} belongs to a later attempt, which begins at {next_first_seq}")
    new_lines: list[OutboxLine] = []
    expected_seq = attempt.last_seq + 1
    for line in sorted(lines, key=lambda line: line.seq):
        if line.seq > expected_seq:
            break
        if line.seq == expected_seq:
            new_lines.append(line)
            expected_seq += 1
    return new_lines


def _store(batches: Sequence[_Batch]) -> None:
    """Store rows and events with hand-written statements, because the ORM's bulk_create takes several times as long."""
    rows: Rows = []
    events: Rows = []
    spans: Rows = []
    for batch in batches:
        _collect(batch, rows, events, spans)
    insert(MetricRow, ("run_id", "attempt_id", "seq", "t", "kind", "step", "values", "superseded"), rows)
    insert(RunEvent, ("run_id", "attempt_id", "seq", "at", "kind", "step", "actor", "data"), events)
    insert(phases.StepSpans, phases.COLUMNS, spans)


def _collect(batch: _Batch, rows: Rows, events: Rows, spans: Rows) -> None:
    attempt, run = batch.attempt, batch.attempt.run
    void_after = min(batch.resumed, default=None)
    late_rows: list[folding.Row] = []
    newest_values: dict[str, float] = {}
    rewards: list[float] = []
    for line in batch.lines:
        if line.kind in (EventKind.ANSWER, EventKind.SPANS):  # in rows of their own
            spans += phases.row_of(attempt, line, void_after)
            continue
        if line.kind not in METRIC_KINDS:
            event_time = connection.ops.adapt_datetimefield_value(datetime.fromtimestamp(line.t, UTC))
            data = encode_json(line.data)
            events.append((run.pk, attempt.pk, line.seq, event_time, line.kind, line.step, ACTOR, data))
            continue
        values = line.data
        is_void = void_after is not None and line.step is not None and line.step > void_after
        rows.append((run.pk, attempt.pk, line.seq, line.t, line.kind, line.step, encode_json(values), is_void))
        if line.seq <= run.folded_seq and not is_void:
            late_rows.append((line.seq, line.step, line.t, values))
        newest_values |= values
        if trend.REWARD in values:
            rewards.append(values[trend.REWARD])
        if line.kind == EventKind.TRAIN and line.step is not None:
            batch.run_facts["step"] = line.step
    if late_rows:
        folding.add(run.pk, late_rows)
    if newest_values:
        batch.run_facts["last_metrics"] = {**run.last_metrics, **newest_values}
    if rewards:
        batch.run_facts |= trend.extended_columns(run, rewards)


def _save(batches: Sequence[_Batch], *, is_plain: bool) -> None:
    runs: dict[str, dict[str, Any]] = {}
    for batch in batches:
        if batch.lines:
            batch.facts["last_seq"] = last_seq = batch.lines[-1].seq
            # The row is locked, so the values read are current.
            facts = runs.setdefault(batch.attempt.run_id, {"last_seq": batch.attempt.run.last_seq})
            facts |= batch.run_facts if batch.current else {}
            facts["last_seq"] = max(facts["last_seq"], last_seq)
    attempts = {batch.attempt.pk: batch.facts for batch in batches}
    if is_plain:
        update(Run, runs)
        update(Attempt, attempts)
        return
    for pk, facts in runs.items():
        Run.every.filter(pk=pk).update(**facts)
    for pk, facts in attempts.items():
        Attempt.objects.filter(pk=pk).update(**facts)


# --- life-cycle events ---------------------------------------------------------------------------------------


def _apply_phase(batch: _Batch, line: OutboxLine) -> None:
    phase = line.data["phase"]
    batch.facts |= {"phase": phase[:24], "phase_detail": str(line.data.get("detail") or "")}
    if phase in (Phase.STOPPING, Phase.VERIFYING, Phase.UPLOADING):
        move(batch.attempt, RunStatus.STOPPING, reason="stopping", actor=ACTOR)


def _apply_training(batch: _Batch, line: OutboxLine) -> None:
    step = line.data["step"]
    batch.facts |= {"resume_step": step, "phase": "", "phase_detail": ""}
    batch.run_facts |= {"max_steps": line.data["max_steps"], "step": max(step, batch.run_facts.get("step", 0))}
    move(batch.attempt, RunStatus.RUNNING, reason="training", actor=ACTOR)
    if batch.attempt.number > 1:
        folding.supersede(batch.attempt, step)
        batch.run_facts |= trend.rebuilt_columns(batch.attempt.run)
        progress.supersede(batch.attempt, step)


def _apply_end(batch: _Batch, line: OutboxLine) -> None:
    name, detail = line.data["reason"], str(line.data.get("detail") or "")
    if name in set(EndReason):
        reason = EndReason(name)
    else:
        # If the line were refused, the attempt would keep its leases forever.
        reason, detail = EndReason.SUPERVISOR_ERROR, f"The supervisor gave an unknown reason: {name}. {detail}"
    receipt = _receipt(line)
    codes = line.data.get("exit_codes")
    has_ended = ending.end(
        batch.attempt,
        reason,
        actor=ACTOR,
        detail=detail,
        receipt=receipt,
        exit_codes=codes if isinstance(codes, dict) else {},
    )
    if not has_ended and receipt is not None:
        ending.late_receipt(batch.attempt, receipt, actor=ACTOR)


def _receipt(line: OutboxLine) -> Receipt | None:
    data = line.data.get("receipt")
    return from_dict(Receipt, data, at="data.receipt") if data is not None else None


_APPLY: dict[str, Callable[[_Batch, OutboxLine], None]] = {
    EventKind.PHASE: _apply_phase,
    EventKind.STAGE: lambda batch, line: batch.facts.update(phase_detail=line.data["stage"]),
    EventKind.TRAINING: _apply_training,
    EventKind.ANSWER: lambda batch, line: conversation.store_answer(batch.attempt.run_id, line.data),
    EventKind.ENDED: _apply_end,
}
