"""A reader of logs of any size and content, which yields lines that may be evidence, with their numbers and without
their prefixes."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

BLOCK_BYTES = 1 << 20
MAX_LINE_BYTES = 16 * 1024
STEM_CONTEXT_BYTES = 4096
"""Number of bytes of an overlong line that are read on either side of a stem."""
BYTES_BEFORE = 24 * 1024
BYTES_AFTER = 4 * 1024
STEMS = (
    b"rror", b"xception", b"annot", b"n't ", b"ailed", b"ailure", b"emory", b"illed", b"ssert", b"imeout",
    b"imed out", b" not ", b"o module", b"o space", b"nan", b"NaN", b"gated", b"must ", b"ault", b"nterrupt",
    b"uplicate", b"refused", b"arning", b"larger", b"greater", b"nsupported", b"Too many", b"unavailable",
    b"nrecognized", b"no kernel", b"No ", b"too old", b"estricted", b"disabled", b"Found ", b"ERROR", b"SIG", b"Xid",
    b"terminat", b"NCCL", b"undefined", b"already", b"o step", b"ootstrapping", b"Not Found", b"Not Allowed",
    b"return code", b"mismatch",
)  # fmt: skip
"""Word stems, one of which occurs in every line that reports a failure, and in few others. Lines without a stem aren't
matched, because searching for bytes is a hundred times faster than matching patterns."""

_ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_PREFIX = re.compile(
    r"""(?:\s*(?:
      \[(?:rank|default|Rank\ )?\d+\]:?                              # torchrun's ranks
    | \((?:[\w/.-]+\ )?pid=\d+(?:,\ ip=[\d.]+)?\)(?:\ \[repeated.*?\])?  # vLLM's and Ray's processes
    | \[?\d{4}-\d\d-\d\d[T\ ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|\ ?[+-]\d\d:?\d\d)?\]?:?
    | \[?\d\d[-/]\d\d[-/]\d\d\ \d\d:\d\d:\d\d\]?
    | \d\d-\d\d\ \d\d:\d\d:\d\d(?:[.,]\d+)?
    | \[?\d\d:\d\d:\d\d(?:[.,]\d+)?\]?
    | \[?(?P<level>ERROR|CRITICAL|FATAL|error|E)\]?:?(?=\s|\d)
    | \[?(?P<mild>WARNING|WARN|INFO|DEBUG|W|I)\]?:?(?=\s|\d)
    | \d{4}\ \d\d:\d\d:\d\d\.\d+\ +\d+\ \S+\]                       # glog, after its letter
    | \[[\w./-]+\.(?:py|cpp|cc|cu|hpp):\d+(?::\w+)?\]               # the place that logged
    | [\w.-]+\s+\|(?=\s)                                             # docker compose
    | \[[\w.-]+\](?=\s)
    | \|
    )\s*)+""",
    re.VERBOSE,
)
_RAISED = re.compile(
    r"^(?:[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Exhausted|Timeout|NotFound|OutOfResources)\b"
    r"|[Ee]rror\b|ERROR\b|[Ff]atal\b|FATAL\b|terminate called|what\(\)|CUDA (?:error|out of memory)|Killed|Value error,"
    r"|The (?:.+ settings|trainer) can't be |\S+: error:|(?:[a-z_]\w*\.)+[A-Z]\w+:\s|.*\b(?:fault|core dumped)\b)"
)
_METRICS_PREFIXES = ("{'", '{"')
_PROGRESS = re.compile(
    r"^\{'(?:loss|reward|num_tokens|grad_norm|train_)|Avg (?:prompt|generation) throughput|HTTP/1\.\d\" 200|"
    r"^\s*\d+%\|.*\d+/\d+ \["
)
_STEP = re.compile(rb"(?<!\d)\d++/\d+(?= \[)")


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


def clean(raw: bytes) -> tuple[str, bool | None]:
    """Return a line without colours, prefixes, and text that a progress bar has overwritten.

    Also return whether the line is logged as an error: False if it is a warning or below, None if it has no level.
    """
    text = raw.decode("utf-8", "replace").replace("\0", "")
    text = _ANSI.sub("", text) if "\x1b" in text else text
    if "\r" in text:
        text = next((part for part in reversed(text.split("\r")) if part.strip()), "")
    prefix = _PREFIX.match(text)
    if prefix is None:
        return text.lstrip(), None
    is_error = True if prefix["level"] else False if prefix["mild"] else None
    return text[prefix.end() :], is_error


def is_progress(text: str) -> bool:
    """Return whether the line shows that the process has made progress."""
    return bool(_PROGRESS.search(text))


def step_of(raw: bytes) -> bytes:
    """Return the step that a progress bar shows, or the whole line if there is no bar. A bar that is redrawn when its
    program ends shows the same step as before."""
    steps = _STEP.findall(raw)
    return steps[-1] if steps else raw


def raw_lines(path: Path, limit: int | None = None) -> Iterator[tuple[int, int, bytes]]:
    """Yield (offset, line number from 1, bytes) for each line that isn't empty. Of a line longer than MAX_LINE_BYTES,
    yield only the surroundings of its stems. Of a file larger than `limit` bytes, read a quarter of the limit from the
    beginning and three quarters from the end. Raises OSError."""
    for offset, number, block in _blocks(path, limit):
        for line, raw in enumerate(block.split(b"\n"), number):
            if len(raw) > MAX_LINE_BYTES:
                for start, end in _windows(raw):
                    yield offset + start, line, raw[start:end]
            elif raw:
                yield offset, line, raw
            offset += len(raw) + 1


def shape_of(raw: bytes) -> int:
    """Return a hash of a line without its digits, because logs repeat lines that differ only in digits."""
    return hash(raw.translate(None, b"0123456789"))


def read(raw: bytes) -> LineFacts | None:
    """Return the facts about a line, or None if it can't be evidence."""
    if not any(stem in raw for stem in STEMS):
        return None
    text, is_error = clean(raw)
    is_raised = bool(_RAISED.match(text)) if is_error is None else is_error
    return LineFacts(text, is_raised, is_mild=is_error is False, has_metrics=text.startswith(_METRICS_PREFIXES))


def around(path: Path, offset: int) -> str:
    """Return the cleaned lines around an offset: those of its traceback, and those after it. Raises OSError."""
    with path.open("rb") as file:
        file.seek(max(0, offset - BYTES_BEFORE))
        raw = file.read(min(offset, BYTES_BEFORE) + BYTES_AFTER)
    return "\n".join(clean(line)[0] for line in raw.split(b"\n"))


def _windows(raw: bytes) -> Iterator[tuple[int, int]]:
    hits = sorted(offset for stem in STEMS for offset in _offsets(raw, stem))
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
        rest = b""
        while block := file.read(BLOCK_BYTES):
            block = rest + block
            cut = block.rfind(b"\n") + 1 or (0 if len(block) < 4 * BLOCK_BYTES else len(block) - STEM_CONTEXT_BYTES)
            rest = block[cut:]
            if cut:
                yield offset, number, block[:cut]
                number += block.count(b"\n", 0, cut)
                offset += cut
            if gap and offset >= gap[0]:
                number += _count_lines(file, gap[1] - file.tell()) + rest.count(b"\n")
                offset, rest, gap = file.tell(), b"", None
        if rest:
            yield offset, number, rest


def _count_lines(file: object, length: int) -> int:
    lines = 0
    while length > 0 and (block := file.read(min(length, BLOCK_BYTES))):  # type: ignore[attr-defined]
        lines += block.count(b"\n")
        length -= len(block)
    return lines
