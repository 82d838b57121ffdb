"""Completions and log bytes of an attempt: each lands once, whatever is sent again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import transaction
from django.db.models.functions import Length

from runs import live
from runs.ingest import BadLine, is_step
from runs.models import Attempt, LogChunk, SampleRow

LOG_CHUNK_BYTES = 64 * 1024
"""A log grows by many small sends: the last chunk is extended up to this size."""


def samples(attempt: Attempt, first_line: int, lines: Sequence[dict[str, Any]]) -> int:
    """Store prompt groups from line `first_line` on; answers the last line stored. After a gap nothing is stored."""
    for index, line in enumerate(lines):
        if not isinstance(line, dict) or not is_step(line.get("step")):
            raise BadLine(index, "a prompt group is an object with a `step`, a whole number")
    with transaction.atomic():
        held = Attempt.objects.select_for_update().get(pk=attempt.pk)
        known = held.samples_ack
        if first_line > known + 1:
            return known
        fresh = lines[known + 1 - first_line :]
        if not fresh:
            return known
        rows = [
            SampleRow(run_id=held.run_id, attempt=held, line=known + 1 + i, step=data["step"], data=data)
            for i, data in enumerate(fresh)
        ]
        SampleRow.objects.bulk_create(rows, ignore_conflicts=True, batch_size=200)
        ack = known + len(fresh)
        Attempt.objects.filter(pk=held.pk).update(samples_ack=ack)
        transaction.on_commit(lambda: live.announce(held.run_id, 0))
    return ack


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
        transaction.on_commit(lambda: live.announce(held.run_id, 0))
    return size + len(fresh)
