"""Uploads of completions and logs. A part that is sent repeatedly is stored once."""

from collections.abc import Sequence
from typing import Any

from django.db import transaction
from django.db.models import F
from django.db.models.functions import Length

from runs.engine import hints
from runs.engine.models import Attempt
from runs.engine.records import LogChunk, SampleRow, SampleStore
from runs.insight.completions import progress
from runs.insight.completions.groups import figures
from runs.insight.completions.progress import Visit
from runs.insight.completions.solving import Solving
from runs.insight.completions.solving import of as solving_of
from runs.intake.host_api.ingest import BadLine
from workers.contract.reports.lines import is_step

LOG_CHUNK_BYTES = 64 * 1024
"""Size up to which a log's last chunk is extended, since logs grow by many small uploads."""


def samples(attempt: Attempt, first_line: int, lines: Sequence[dict[str, Any]]) -> int:
    """Store prompt groups from line `first_line` on, unless that leaves a gap. Return the last stored line's number."""
    for index, line in enumerate(lines):
        if not isinstance(line, dict) or not is_step(line.get("step")):
            raise BadLine(index, "a prompt group must be an object with a whole number as its `step`")
    with transaction.atomic():
        row = Attempt.objects.select_for_update(of=("self",)).select_related("run").get(pk=attempt.pk)
        stored_lines = row.samples_ack
        if first_line > stored_lines + 1:
            return stored_lines
        new_groups = lines[stored_lines + 1 - first_line :]
        if not new_groups:
            return stored_lines
        _store(row, stored_lines + 1, new_groups)
        ack = stored_lines + len(new_groups)
        Attempt.objects.filter(pk=row.pk).update(samples_ack=ack)
        transaction.on_commit(lambda: hints.announce((row.run_id, 0)))
    return ack


def _store(attempt: Attempt, first_line: int, groups: Sequence[dict[str, Any]]) -> None:
    """Store prompt groups and update the counts, in a constant number of queries."""
    store = progress.locked_store(attempt.run_id)
    void_from = progress.void_from(attempt)
    solving = solving_of(attempt.run.spec)
    rows = [_row(attempt, line, data, solving, void_from) for line, data in enumerate(groups, first_line)]
    SampleRow.objects.bulk_create(rows, ignore_conflicts=True, batch_size=200)
    SampleStore.objects.filter(pk=store.pk).update(
        size=F("size") + sum(row.size for row in rows),
        completions=F("completions") + sum(row.completions for row in rows),
    )
    progress.add(attempt.run_id, [Visit.of(row) for row in rows if row.row is not None and not row.superseded])


def _row(attempt: Attempt, line: int, data: dict[str, Any], solving: Solving, void_from: int | None) -> SampleRow:
    group = figures(data, solving)
    return SampleRow(
        run_id=attempt.run_id,
        attempt=attempt,
        line=line,
        step=data["step"],
        row=group.row,
        mode=group.mode,
        reward_low=group.low,
        reward_mean=group.mean,
        reward_high=group.high,
        completions=group.count,
        solved=group.solved,
        scored=group.scored,
        unfinished=group.unfinished,
        size=group.size,
        superseded=void_from is not None and data["step"] > void_from,
        sources=group.sources,
        data=data,
    )


def log(attempt: Attempt, name: str, offset: int, data: bytes) -> int:
    """Store log bytes at `offset`, unless that leaves a gap. Return the number of bytes stored from the log's start."""
    with transaction.atomic():
        # The attempt's row is the lock of its logs.
        row = Attempt.objects.select_for_update().get(pk=attempt.pk)
        chunks = LogChunk.objects.filter(attempt=row, name=name).order_by("-offset")
        last_chunk = chunks.annotate(size=Length("data")).values("pk", "offset", "size").first()
        size = last_chunk["offset"] + last_chunk["size"] if last_chunk else 0
        new_bytes = data[size - offset :] if offset <= size else b""
        if not new_bytes:
            return size
        if last_chunk and last_chunk["size"] + len(new_bytes) <= LOG_CHUNK_BYTES:
            chunk = LogChunk.objects.get(pk=last_chunk["pk"])
            LogChunk.objects.filter(pk=chunk.pk).update(data=bytes(chunk.data) + new_bytes)
        else:
            parts = range(0, len(new_bytes), LOG_CHUNK_BYTES)
            LogChunk.objects.bulk_create(
                LogChunk(attempt=row, name=name, offset=size + start, data=new_bytes[start : start + LOG_CHUNK_BYTES])
                for start in parts
            )
        transaction.on_commit(lambda: hints.announce((row.run_id, 0)))
    return size + len(new_bytes)
