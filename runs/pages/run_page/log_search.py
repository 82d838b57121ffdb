"""Search in a stored log, block by block, so that memory and time are bounded whatever the log's size."""

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypedDict

from runs.engine.models import Attempt
from runs.engine.records import LogChunk
from workers.contract.wire.names import LOG_LEFT_OUT

MAX_HITS = 200
MAX_SECONDS = 0.4
MAX_QUERY_CHARS = 200
CHUNKS_AT_ONCE = 16
MAX_LINE_BYTES = 64 * 1024
OVERLAP = 4 * MAX_QUERY_CHARS
"""Number of bytes of an overlong line that are searched again with the next block."""
EXCERPT = 240

ERROR = (
    r"^Traceback \(most recent call last\)|\b(?:[A-Z]\w*)?(?:Error|Exception)\b|\b(?:ERROR|CRITICAL|FATAL)\b"
    r"|\b[Oo]ut of memory\b|^Killed\b|Segmentation fault|No space left on device"
)
"""Pattern of error lines. The page's script uses it too, so it must be valid in Python and in JavaScript."""
SIGNS = (
    b"Traceback", b"Error", b"Exception", b"ERROR", b"CRITICAL", b"FATAL", b"ut of memory", b"Killed", b"Segmentation",
    b"No space",
)  # fmt: skip
"""Strings of which every error line contains at least one; checking for them first is a hundred times faster."""
_ERROR = re.compile(ERROR.encode(), re.MULTILINE)
_LEFT_OUT = LOG_LEFT_OUT.encode()
_BREAK = re.compile(rb"[\r\n]")

Finder = Callable[[bytes], Iterator[int]]


class LogHit(TypedDict):
    at: int
    text: str


@dataclass
class LogHits:
    hits: list[LogHit] = field(default_factory=list)
    next: int = 0
    size: int = 0
    done: bool = False
    left_out: bool = False
    """True if the searched part has gaps that are stored only on the host."""


def of_text(text: str) -> Finder:
    """Build a case-insensitive finder for ASCII text."""
    needle = text.encode().lower()

    def find(block: bytes) -> Iterator[int]:
        lower_block, position = block.lower(), -1
        while (position := lower_block.find(needle, position + 1)) >= 0:
            yield position

    return find


def of_errors(block: bytes) -> Iterator[int]:
    # Most blocks lack the capital letters of most signs, and finding a single byte is ten times as fast as a word.
    if any(sign[:1] in block and sign in block for sign in SIGNS):
        yield from (match.start() for match in _ERROR.finditer(block))


def search(attempt: Attempt, name: str, find: Finder, start: int = 0, seconds: float = MAX_SECONDS) -> LogHits:
    """Find hits from `start` on, at most one per line, until there are MAX_HITS or the time is up."""
    hits, deadline = LogHits(next=start, size=start), time.monotonic() + seconds
    block, block_start = b"", start
    for offset, data in _chunks(attempt, name, start):
        block += data[max(0, start - offset) :]
        hits.size = offset + len(data)
        end = _end_of_lines(block)
        if not _add_hits(hits, block[:end], block_start, find):
            return hits
        block, block_start = block[end:], block_start + end
        hits.next = block_start
        if time.monotonic() > deadline:
            return hits
    # The last line may be incomplete, so a continued search reads it again.
    hits.done = _add_hits(hits, block, block_start, find)
    return hits


def _chunks(attempt: Attempt, name: str, start: int) -> Iterator[tuple[int, bytes]]:
    """Yield chunks from the one that contains `start` on. No database cursor stays open in between."""
    chunks = LogChunk.objects.filter(attempt=attempt, name=name)
    first_offset = chunks.filter(offset__lte=start).order_by("-offset").values_list("offset", flat=True).first()
    position = first_offset or 0
    while batch := list(
        chunks.filter(offset__gte=position).order_by("offset").values_list("offset", "data")[:CHUNKS_AT_ONCE]
    ):
        for offset, data in batch:
            yield offset, bytes(data)
        position = batch[-1][0] + 1


def _end_of_lines(block: bytes) -> int:
    """Return the end of the last complete line, or almost the end of an overlong block that has none."""
    end = max(block.rfind(b"\n"), block.rfind(b"\r")) + 1
    return end if end or len(block) <= MAX_LINE_BYTES else len(block) - OVERLAP


def _add_hits(hits: LogHits, block: bytes, block_start: int, find: Finder) -> bool:
    """Add the block's hits, and return False if the limit was reached before the block's end."""
    hits.left_out = hits.left_out or _LEFT_OUT in block
    line_end = 0
    for hit in find(block):
        if hit < line_end:
            continue
        line_start = max(block.rfind(b"\n", 0, hit), block.rfind(b"\r", 0, hit)) + 1
        line_break = _BREAK.search(block, hit)
        line_end = line_break.start() if line_break else len(block)
        if len(hits.hits) >= MAX_HITS:
            hits.next = block_start + line_start
            return False
        hits.hits.append({"at": block_start + line_start, "text": _excerpt(block, line_start, hit, line_end)})
    return True


def _excerpt(block: bytes, start: int, hit: int, end: int) -> str:
    excerpt_start = start if hit - start < EXCERPT else hit - EXCERPT // 4
    text = block[excerpt_start : min(end, excerpt_start + EXCERPT)].decode("utf-8", "replace")
    return ("…" if excerpt_start > start else "") + text.strip() + ("…" if excerpt_start + EXCERPT < end else "")
