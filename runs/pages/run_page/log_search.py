"""Search in a stored log, block by block: bounded in memory and time, whatever the log's size."""

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypedDict

from runs.engine.models import Attempt
from runs.engine.records import LogChunk
from workers.contract.wire.names import LOG_LEFT_OUT

MAX_HITS = 200
"""Hits per answer."""
MAX_SECONDS = 0.4
LONGEST_QUERY = 200
CHUNKS_AT_ONCE = 16
LONGEST_LINE = 64 * 1024
OVERLAP = 4 * LONGEST_QUERY
"""Bytes of an overlong line that are searched again with the next block."""
EXCERPT = 240

ERROR = (
    r"^Traceback \(most recent call last\)|\b(?:[A-Z]\w*)?(?:Error|Exception)\b|\b(?:ERROR|CRITICAL|FATAL)\b"
    r"|\b[Oo]ut of memory\b|^Killed\b|Segmentation fault|No space left on device"
)
"""Patterns of error lines. Also used by the page's script, so the syntax must work in both."""
SIGNS = (
    b"Traceback", b"Error", b"Exception", b"ERROR", b"CRITICAL", b"FATAL", b"ut of memory", b"Killed", b"Segmentation",
    b"No space",
)  # fmt: skip
"""Every error line contains one of these; checking them first is a hundred times faster."""
_ERROR = re.compile(ERROR.encode(), re.MULTILINE)
_LEFT_OUT = LOG_LEFT_OUT.encode()
_BREAK = re.compile(rb"[\r\n]")

Finder = Callable[[bytes], Iterator[int]]
"""Yields the positions of hits in a block, in order."""


class LogHit(TypedDict):
    at: int
    """The start of its line in the log."""
    text: str


@dataclass
class LogHits:
    hits: list[LogHit] = field(default_factory=list)
    next: int = 0
    """Offset at which the search continues."""
    size: int = 0
    done: bool = False
    """The search reached the end of the log."""
    left_out: bool = False
    """The searched part has gaps that only the host has."""


def of_text(text: str) -> Finder:
    """Build a case-insensitive finder for ASCII text."""
    needle = text.encode().lower()

    def find(block: bytes) -> Iterator[int]:
        lower, at = block.lower(), -1
        while (at := lower.find(needle, at + 1)) >= 0:
            yield at

    return find


def of_errors(block: bytes) -> Iterator[int]:
    # Most signs begin with a capital letter that a block lacks, and a single byte is found ten times as fast as a word.
    if any(sign[:1] in block and sign in block for sign in SIGNS):
        yield from (match.start() for match in _ERROR.finditer(block))


def search(attempt: Attempt, name: str, find: Finder, start: int = 0, seconds: float = MAX_SECONDS) -> LogHits:
    """Find hits from `start` on, one per line, until there are enough of them or the time is up."""
    hits, deadline = LogHits(next=start, size=start), time.monotonic() + seconds
    block, at = b"", start
    for offset, data in _chunks(attempt, name, start):
        block += data[max(0, start - offset) :]
        hits.size = offset + len(data)
        cut = _end_of_lines(block)
        if not _take(hits, block[:cut], at, find):
            return hits
        block, at = block[cut:], at + cut
        hits.next = at
        if time.monotonic() > deadline:
            return hits
    # The last line may be incomplete, so a continued search reads it again.
    hits.done = _take(hits, block, at, find)
    return hits


def _chunks(attempt: Attempt, name: str, start: int) -> Iterator[tuple[int, bytes]]:
    """Yield chunks from the one that contains `start`; no database cursor stays open in between."""
    chunks = LogChunk.objects.filter(attempt=attempt, name=name)
    first = chunks.filter(offset__lte=start).order_by("-offset").values_list("offset", flat=True).first()
    at = first or 0
    while batch := list(
        chunks.filter(offset__gte=at).order_by("offset").values_list("offset", "data")[:CHUNKS_AT_ONCE]
    ):
        for offset, data in batch:
            yield offset, bytes(data)
        at = batch[-1][0] + 1


def _end_of_lines(block: bytes) -> int:
    """Find the end of the last complete line; nearly the whole block if there is none."""
    end = max(block.rfind(b"\n"), block.rfind(b"\r")) + 1
    return end if end or len(block) <= LONGEST_LINE else len(block) - OVERLAP


def _take(hits: LogHits, block: bytes, at: int, find: Finder) -> bool:
    """Add the block's hits. False: the limit was reached before its end."""
    hits.left_out = hits.left_out or _LEFT_OUT in block
    line_end = 0
    for hit in find(block):
        if hit < line_end:
            continue
        line_start = max(block.rfind(b"\n", 0, hit), block.rfind(b"\r", 0, hit)) + 1
        after = _BREAK.search(block, hit)
        line_end = after.start() if after else len(block)
        if len(hits.hits) >= MAX_HITS:
            hits.next = at + line_start
            return False
        hits.hits.append({"at": at + line_start, "text": _excerpt(block, line_start, hit, line_end)})
    return True


def _excerpt(block: bytes, start: int, hit: int, end: int) -> str:
    """Cut out the line, or the part of it around the hit."""
    first = start if hit - start < EXCERPT else hit - EXCERPT // 4
    text = block[first : min(end, first + EXCERPT)].decode("utf-8", "replace")
    return ("…" if first > start else "") + text.strip() + ("…" if first + EXCERPT < end else "")
