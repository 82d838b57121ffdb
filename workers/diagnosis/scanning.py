"""A reader of logs of any size and content, which yields lines with their numbers, and recognises those that may be
evidence."""

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from workers.diagnosis.catalogue import catalogue
from workers.diagnosis.prefixes import Cleaned, Cleaner

BLOCK_BYTES = 1 << 20
MAX_LINE_BYTES = 16 * 1024
STEM_CONTEXT_BYTES = 4096
"""Number of bytes of an overlong line that are read on either side of a stem."""
BYTES_BEFORE = 24 * 1024
BYTES_AFTER = 4 * 1024
"""Lines without a stem aren't matched, because searching for bytes is a hundred times faster than matching patterns."""

_RAISED_EXCEPTION = re.compile(
    r"^(?:(?:[A-Za-z_][\w.]*)?(?:Error|Exception|Interrupt|Exit|Exhausted|Timeout|NotFound|OutOfResources)\b"
    r"|[Ee]rror\b|ERROR\b|[Ff]atal\b|FATAL\b|FAILED:|terminate called|what\(\)|CUDA (?:error|out of memory)|Killed"
    r"|Aborted\b|Bus error|Value error,|The (?:.+ settings|trainer) can't be |\w+ fatal\s*:"
    r"|(?:[\w./-]+ ){0,2}\S+: (?:fatal )?error\b"
    r"|(?:[a-z_]\w*\.)+[A-Z]\w+:\s|(?:[\w.-]*sh|docker|srun|sbatch|python\d?|make)(?:\[\d+\])?: "
    r"|(?:slurmstepd|NVRM): |Input should be "
    r"|.*\b(?:fault|core dumped|ErrImagePull|ImagePullBackOff|OOMKilled|Evicted|FailedScheduling)\b)"
)
_WARNED = re.compile(r"^(?:\S+:\d+: )?\w*Warning\b|^'.{1,2000}' thrown while requesting (?:GET|HEAD|POST)\b")
_FRAME = re.compile(
    r"^(?:File \"|[~^]+$|(?:\w+(?:Error|Exception)\s+)?Traceback \(most recent call last\)"
    r"|During handling|The above exception|(?:\w+\.)*ValidationError: \d+ validation errors? for )"
)
_METRICS_PREFIXES = ("{'", '{"')


@dataclass(frozen=True)
class LogLine:
    """A line of a log, as it is shown to people."""

    file: str
    number: int
    text: str


@dataclass(frozen=True)
class LineFacts:
    """A line that may be evidence."""

    text: str
    is_raised: bool
    is_mild: bool
    """True if the line is logged as a warning or below."""
    has_metrics: bool
    is_frame: bool
    """True for a line of a traceback other than its last."""
    is_exception: bool
    """True if the text itself reports an error, whatever level it was logged with."""
    source: str
    is_logged: bool


def raw_lines(path: Path, limit: int | None = None) -> Iterator[tuple[int, int, bytes]]:
    """Yield (offset, line number from 1, bytes) for each line that isn't empty. Of a line longer than MAX_LINE_BYTES,
    yield only the surroundings of its stems. Of a file larger than `limit` bytes, read a quarter of the limit from the
    beginning and three quarters from the end. Raises OSError if the file can't be read."""
    for offset, number, block in _blocks(path, limit):
        for line, raw in enumerate(block.split(b"\n"), number):
            if len(raw) > MAX_LINE_BYTES:
                for start, end in _windows(raw):
                    yield offset + start, line, raw[start:end]
            elif raw:
                yield offset, line, raw
            offset += len(raw) + 1


@functools.cache
def _stems() -> tuple[bytes, ...]:
    return tuple(stem.encode() for stem in catalogue().stems)


def shape_of(raw: bytes) -> int:
    """Return a hash of a line without its digits, because logs repeat lines that differ only in digits."""
    return hash(raw.translate(None, b"0123456789"))


def may_be_evidence(raw: bytes) -> bool:
    """Return whether a line has one of the stems."""
    return any(stem in raw for stem in _stems())


def read(cleaned: Cleaned) -> LineFacts:
    """Return the facts about a line that has a stem."""
    text, is_error = cleaned.text, cleaned.is_error
    is_mild = is_error is False or bool(_WARNED.match(text))
    is_exception = not is_mild and bool(_RAISED_EXCEPTION.match(text))
    return LineFacts(
        text,
        is_raised=bool(is_error) or (is_exception and is_error is None),
        is_mild=is_mild and not is_error,
        has_metrics=text.startswith(_METRICS_PREFIXES),
        is_frame=bool(_FRAME.match(text)),
        is_exception=is_exception,
        source=cleaned.source,
        is_logged=is_error is not None,
    )


def around(path: Path, offset: int, cleaner: Cleaner, after: int = BYTES_AFTER) -> str:
    """Return the cleaned lines around an offset: those of its traceback, and `after` bytes from it. Raises OSError if
    the file can't be read."""
    with path.open("rb") as file:
        file.seek(max(0, offset - BYTES_BEFORE))
        raw = file.read(min(offset, BYTES_BEFORE) + after)
    cleaned = (cleaner.clean(line) for line in raw.split(b"\n"))
    return "\n".join(line.context or line.text for line in cleaned)


def _windows(raw: bytes) -> Iterator[tuple[int, int]]:
    hits = sorted(offset for stem in _stems() for offset in _offsets(raw, stem))
    end = 0
    for offset in hits:
        if offset >= end:
            start, end = max(end, offset - STEM_CONTEXT_BYTES), min(len(raw), offset + STEM_CONTEXT_BYTES)
            yield start, end


def _offsets(raw: bytes, stem: bytes) -> Iterator[int]:
    offset = raw.find(stem)
    while offset >= 0:
        yield offset
        offset = raw.find(stem, offset + STEM_CONTEXT_BYTES)


def _blocks(path: Path, limit: int | None) -> Iterator[tuple[int, int, bytes]]:
    size, offset, number = path.stat().st_size, 0, 1
    gap = (limit // 4, size - limit * 3 // 4) if limit and size > limit else None
    with path.open("rb") as file:
        remainder = b""
        while block := file.read(BLOCK_BYTES):
            block = remainder + block
            cut = block.rfind(b"\n") + 1 or (0 if len(block) < 4 * BLOCK_BYTES else len(block) - STEM_CONTEXT_BYTES)
            remainder = block[cut:]
            if cut:
                yield offset, number, block[:cut]
                number += block.count(b"\n", 0, cut)
                offset += cut
            if gap and offset >= gap[0]:
                number += _count_lines(file, gap[1] - file.tell()) + remainder.count(b"\n")
                offset, remainder, gap = file.tell(), b"", None
        if remainder:
            yield offset, number, remainder


def _count_lines(file: object, length: int) -> int:
    lines = 0
    while length > 0 and (block := file.read(min(length, BLOCK_BYTES))):  # type: ignore[attr-defined]
        lines += block.count(b"\n")
        length -= len(block)
    return lines
