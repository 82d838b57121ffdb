"""Draws random rows by hash: the same on every machine; a smaller choice is a subset of a larger one."""

from __future__ import annotations

import heapq
import tempfile
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec


def drawn(rows: Iterable[dict[str, Any]], number: int, seed: int, folder: Path) -> Iterator[dict[str, Any]]:
    """`number` of the rows at random, or all if there are fewer, in their order.

    The choice depends on the seed and the row ids alone. Candidates wait in an unnamed file in `folder`; memory holds
    one number per row of the choice.
    """
    largest_first: list[int] = []
    encode = msgspec.json.Encoder().encode
    with tempfile.TemporaryFile(dir=folder) as candidates:
        for row in rows:
            key = _key(row["row_id"], seed)
            if len(largest_first) < number:
                heapq.heappush(largest_first, -key)
            elif key < -largest_first[0]:
                heapq.heapreplace(largest_first, -key)
            else:
                continue
            candidates.write(encode(row) + b"\n")
        candidates.seek(0)
        decode = msgspec.json.Decoder().decode
        for line in candidates:
            row = decode(line)
            if _key(row["row_id"], seed) <= -largest_first[0]:
                yield row


def _key(row_id: int, seed: int) -> int:
    """A hash, made unique by the row id."""
    digest = blake2b(f"{seed} {row_id}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") << 64 | row_id
