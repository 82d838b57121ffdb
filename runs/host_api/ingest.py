"""Lines of an attempt's outbox into the store: in order, each once, in one short transaction.

Replaying a batch changes nothing. Lines after a gap are left out; the acknowledged seq tells the supervisor where to
go on. Life-cycle events move the status; nothing else that a host says does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec
from django.db import connection, models, transaction
from django.db.models import F
from django.db.models.functions import Greatest
from django.utils import timezone

from runs import hints
from runs.completions import progress
from runs.metrics import folding, trend
from runs.models import Attempt, MetricRow, Run, RunEvent
from runs.scheduling import ending
from runs.served import answering
from runs.states import EndReason, RunStatus
from runs.transitions import move
from workers.contract import METRIC_KINDS, ContractError, EventKind, OutboxLine, Phase, Receipt, from_dict
from workers.contract.lines import problem_of

ACTOR = "supervisor"
_KINDS = frozenset(EventKind)
_MAX_SEQ, _MAX_T = 2**62, 4e9


class BadLine(ValueError):
    """A line doesn't follow the contract; nothing of its batch is stored."""

    def __init__(self, index: int, what: str) -> None:
        super().__init__(what)
        self.index = index


class NotStarted(Exception):
    """Lines for an attempt that was never dispatched."""


@dataclass
class _Batch:
    """The new lines of one request, and what they change of the attempt's and the run's own columns."""

    attempt: Attempt
    lines: list[OutboxLine]
    current: bool
    """The run has no later attempt: its headline figures are this attempt's."""
    facts: dict[str, Any] = field(default_factory=dict)
    run_facts: dict[str, Any] = field(default_factory=dict)


def accept(attempt: Attempt, lines: Sequence[OutboxLine], *, seen: bool = True) -> int:
    """Store what is new and answer the attempt's acknowledged seq. `seen`: the lines come from its live supervisor.

    `attempt` holds the status and the stop that are in force afterwards.
    """
    _check(lines)
    now = timezone.now()
    if not lines:
        if seen:  # a heartbeat is one UPDATE
            Attempt.objects.filter(pk=attempt.pk).update(last_seen_at=now)
        return attempt.last_seq
    with transaction.atomic():
        locked = Attempt.objects.select_for_update(of=("self", "run")).select_related("run").defer("run__spec")
        held = locked.get(pk=attempt.pk)
        after = Attempt.objects.filter(run_id=held.run_id, number__gt=held.number).order_by()
        later = list(after.values_list("first_seq", "resume_step", "started_at"))
        new = _contiguous(held, lines, [first for first, _, _ in later if first is not None])
        resumed = [step for _, step, started_at in later if started_at is not None]
        batch = _Batch(held, new, current=not resumed)
        if seen:
            batch.facts["last_seen_at"] = now
        if new:
            _store(batch, void_after=min(resumed, default=None))
            for line in new:
                if apply := _APPLY.get(line.kind):
                    apply(batch, line)
        _save(batch)
        if new:
            transaction.on_commit(lambda: hints.announce(held.run_id, new[-1].seq))
    attempt.status, attempt.stop_mode = held.status, held.stop_mode
    return new[-1].seq if new else held.last_seq


def _check(lines: Sequence[OutboxLine]) -> None:
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


def _contiguous(attempt: Attempt, lines: Sequence[OutboxLine], later: Sequence[int]) -> list[OutboxLine]:
    """The lines that follow what is stored without a gap; `later` is where later attempts begin."""
    if attempt.first_seq is None:
        raise NotStarted(f"{attempt.pk} was never dispatched.")
    beyond = min(later, default=_MAX_SEQ)
    for index, line in enumerate(lines):
        if line.seq < attempt.first_seq:
            raise BadLine(index, f"seq {line.seq} is before this attempt's first, {attempt.first_seq}")
        if line.seq >= beyond:
            raise BadLine(index, f"seq {line.seq} belongs to a later attempt, which begins at {beyond}")
    new: list[OutboxLine] = []
    expected = attempt.last_seq + 1
    for line in sorted(lines, key=lambda each: each.seq):
        if line.seq > expected:
            break
        if line.seq == expected:
            new.append(line)
            expected += 1
    return new


def _store(batch: _Batch, void_after: int | None) -> None:
    """Rows and events by `executemany`: the ORM's bulk_create takes several times as long."""
    attempt, run = batch.attempt, batch.attempt.run
    rows, events = [], []
    late: list[folding.Row] = []
    newest: dict[str, float] = {}
    rewards: list[float] = []
    for line in batch.lines:
        if line.kind == EventKind.ANSWER:
            continue  # in rows of its own
        if line.kind not in METRIC_KINDS:
            at = connection.ops.adapt_datetimefield_value(datetime.fromtimestamp(line.t, UTC))
            data = _encode(line.data)
            events.append((run.pk, attempt.pk, line.seq, at, line.kind, line.step, ACTOR, data))
            continue
        values = line.data
        void = void_after is not None and line.step is not None and line.step > void_after
        rows.append((run.pk, attempt.pk, line.seq, line.t, line.kind, line.step, _encode(values), void))
        if line.seq <= run.folded_seq and not void:
            late.append((line.seq, line.step, line.t, values))
        newest |= values
        if trend.REWARD in values:
            rewards.append(values[trend.REWARD])
        if line.kind == EventKind.TRAIN and line.step is not None:
            batch.run_facts["step"] = line.step
    _insert(MetricRow, ("run_id", "attempt_id", "seq", "t", "kind", "step", "values", "superseded"), rows)
    _insert(RunEvent, ("run_id", "attempt_id", "seq", "at", "kind", "step", "actor", "data"), events)
    if late:
        folding.add(run.pk, late)
    if newest:
        batch.run_facts["last_metrics"] = {**run.last_metrics, **newest}
    if rewards:
        batch.run_facts |= trend.extended(run, rewards)


def _save(batch: _Batch) -> None:
    attempt, run = batch.attempt, batch.attempt.run
    if batch.lines:
        last = batch.lines[-1].seq
        batch.facts["last_seq"] = last
        headline = batch.run_facts if batch.current else {}
        Run.objects.filter(pk=run.pk).update(last_seq=Greatest(F("last_seq"), last), **headline)
    Attempt.objects.filter(pk=attempt.pk).update(**batch.facts)


def _insert(model: type[models.Model], columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
    """`rows` hold values as the database's driver takes them."""
    if not rows:
        return
    quote = connection.ops.quote_name
    names = ", ".join(quote(name) for name in columns)
    places = ", ".join(["%s"] * len(columns))
    # Table and column names are constants of this module; ON CONFLICT is understood by SQLite and PostgreSQL alike.
    sql = f"INSERT INTO {quote(model._meta.db_table)} ({names}) VALUES ({places}) ON CONFLICT DO NOTHING"  # noqa: S608
    with connection.cursor() as cursor:
        cursor.executemany(sql, rows)


def _encode(value: object) -> str:
    return msgspec.json.encode(value).decode()


# --- life-cycle events ---------------------------------------------------------------------------------------


def _phase(batch: _Batch, line: OutboxLine) -> None:
    phase = line.data["phase"]
    batch.facts |= {"phase": phase[:24], "phase_detail": str(line.data.get("detail") or "")}
    if phase in (Phase.STOPPING, Phase.VERIFYING):
        move(batch.attempt, RunStatus.STOPPING, reason="stopping", actor=ACTOR)


def _stage(batch: _Batch, line: OutboxLine) -> None:
    batch.facts["phase_detail"] = line.data["stage"]


def _training(batch: _Batch, line: OutboxLine) -> None:
    step = line.data["step"]
    batch.facts |= {"resume_step": step, "phase": "", "phase_detail": ""}
    batch.run_facts |= {"max_steps": line.data["max_steps"], "step": max(step, batch.run_facts.get("step", 0))}
    move(batch.attempt, RunStatus.RUNNING, reason="training", actor=ACTOR)
    if batch.attempt.number > 1:
        folding.supersede(batch.attempt, step)
        batch.run_facts |= trend.rebuilt(batch.attempt.run)
        progress.supersede(batch.attempt, step)


def _answer(batch: _Batch, line: OutboxLine) -> None:
    answering.take(batch.attempt.run_id, line.data)


def _ended(batch: _Batch, line: OutboxLine) -> None:
    name, detail = line.data["reason"], str(line.data.get("detail") or "")
    if name in set(EndReason):
        reason = EndReason(name)
    else:
        # Refusing the line would keep the attempt, and its lease, for ever.
        reason, detail = EndReason.SUPERVISOR_ERROR, f"The supervisor gave a reason unknown here: {name}. {detail}"
    receipt = _receipt(line)
    codes = line.data.get("exit_codes")
    ended = ending.end(
        batch.attempt,
        reason,
        actor=ACTOR,
        detail=detail,
        receipt=receipt,
        exit_codes=codes if isinstance(codes, dict) else {},
    )
    if not ended and receipt is not None:
        ending.late_receipt(batch.attempt, receipt, actor=ACTOR)


def _receipt(line: OutboxLine) -> Receipt | None:
    data = line.data.get("receipt")
    return from_dict(Receipt, data, at="data.receipt") if data is not None else None


_APPLY: dict[str, Callable[[_Batch, OutboxLine], None]] = {
    EventKind.PHASE: _phase,
    EventKind.STAGE: _stage,
    EventKind.TRAINING: _training,
    EventKind.ANSWER: _answer,
    EventKind.ENDED: _ended,
}
