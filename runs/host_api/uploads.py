"""Completions and log bytes of an attempt: each lands once, whatever is sent again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import transaction
from django.db.models import F
from django.db.models.functions import Length

from runs import hints
from runs.completions import progress
from runs.completions.groups import figures
from runs.completions.progress import Visit
from runs.completions.solving import Solving
from runs.completions.solving import of as solving_of
from runs.host_api.ingest import BadLine, is_step
from runs.models import Attempt, LogChunk, SampleRow, SampleStore

LOG_CHUNK_BYTES = 64 * 1024
"""A log grows by many small sends: the last chunk is extended up to this size."""


def samples(attempt: Attempt, first_line: int, lines: Sequence[dict[str, Any]]) -> int:
    """Store prompt groups from line `first_line` on; answers the last line stored. After a gap nothing is stored."""
    for index, line in enumerate(lines):
        if not isinstance(line, dict) or not is_step(line.get("step")):
            raise BadLine(index, "a prompt group is an object with a `step`, a whole number")
    with transaction.atomic():
        held = Attempt.objects.select_for_update(of=("self",)).select_related("run").get(pk=attempt.pk)
        known = held.samples_ack
        if first_line > known + 1:
            return known
        fresh = lines[known + 1 - first_line :]
        if not fresh:
            return known
        _store(held, known + 1, fresh)
        ack = known + len(fresh)
        Attempt.objects.filter(pk=held.pk).update(samples_ack=ack)
        transaction.on_commit(lambda: hints.announce(held.run_id, 0))
    return ack


def _store(attempt: Attempt, first_line: int, groups: Sequence[dict[str, Any]]) -> None:
    """Rows and counts in a handful of queries, however many groups there are."""
    store = progress.locked_store(attempt.run_id)
    void_from = progress.void_from(attempt)
    solving = solving_of(attempt.run.spec)
    rows = [_row(attempt, line, data, solving, void_from) for line, data in enumerate(groups, first_line)]
    SampleRow.objects.bulk_create(rows, ignore_conflicts=True, batch_size=200)
    more = {"size": sum(row.size for row in rows), "completions": sum(row.completions for row in rows)}
    SampleStore.objects.filter(pk=store.pk).update(**{name: F(name) + by for name, by in more.items()})
    progress.add(
        attempt.run_id,
        [
            Visit(row.row, row.step, row.completions, row.solved, row.reward_mean, row.reward_high)
            for row in rows
            if row.row is not None and not row.superseded
        ],
    )


def _row(attempt: Attempt, line: int, data: dict[str, Any], solving: Solving, void_from: int | None) -> SampleRow:
    told = figures(data, solving)
    return SampleRow(
        run_id=attempt.run_id,
        attempt=attempt,
        line=line,
        step=data["step"],
        row=told.row,
        mode=told.mode,
        reward_low=told.low,
        reward_mean=told.mean,
        reward_high=told.high,
        completions=told.count,
        solved=told.solved,
        size=told.size,
        superseded=void_from is not None and data["step"] > void_from,
        data=data,
    )


def log(attempt: Attempt, name: str, offset: int, data: bytes) -> int:
    """Store bytes of a log that begin at `offset`; answers how many are stored from its start."""
    with transaction.atomic():
        # The attempt's row is the lock of its logs.
        held = Attempt.objects.select_for_update().get(pk=attempt.pk)
        chunks = LogChunk.objects.filter(attempt=held, name=name).order_by("-offset")
        last = chunks.annotate(size=Length("data")).values("pk", "offset", "size").first()
        size = last["offset"] + last["size"] if last else 0
        fresh = data[size - offset :] if offset <= size else b""
        if not fresh:
            return size
        if last and last["size"] + len(fresh) <= LOG_CHUNK_BYTES:
            chunk = LogChunk.objects.get(pk=last["pk"])
            LogChunk.objects.filter(pk=chunk.pk).update(data=bytes(chunk.data) + fresh)
        else:
            parts = range(0, len(fresh), LOG_CHUNK_BYTES)
            LogChunk.objects.bulk_create(
                LogChunk(attempt=held, name=name, offset=size + at, data=fresh[at : at + LOG_CHUNK_BYTES])
                for at in parts
            )
        transaction.on_commit(lambda: hints.announce(held.run_id, 0))
    return size + len(fresh)
