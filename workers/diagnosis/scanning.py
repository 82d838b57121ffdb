"""A reader of logs of any size and content: lines that may be evidence, without their prefixes, with their numbers."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

BLOCK = 1 << 20
LONG = 16 * 1024
REACH = 4096
"""The bytes of a longer line that are read on either side of a stem."""
AROUND = 24 * 1024
"""The bytes before a match in which its traceback is searched."""
BEHIND = 4 * 1024
STEMS = (
    b"rror", b"xception", b"annot", b"n't ", b"ailed", b"ailure", b"emory", b"illed", b"ssert", b"imeout",
    b"imed out", b" not ", b"o module", b"o space", b"nan", b"NaN", b"gated", b"must ", b"ault", b"nterrupt",
    b"uplicate", b"refused", b"arning", b"larger", b"greater", b"nsupported", b"Too many", b"unavailable",
    b"nrecognized", b"no kernel", b"No ", b"too old", b"estricted", b"disabled", b"Found ", b"ERROR", b"SIG", b"Xid",
    b"terminat", b"NCCL", b"undefined", b"already", b"o step", b"ootstrapping", b"Not Found", b"Not Allowed",
    b"return code", b"mismatch",
)  # fmt: skip
"""Parts of words of which every line of a failure has one, and few others do. A line without any is never matched:
bytes are found a hundred times faster than patterns."""

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
_FIGURES = ("{'", '{"')
_PROGRESS = re.compile(
    r"^\{'(?:loss|reward|num_tokens|grad_norm|train_)|Avg (?:prompt|generation) throughput|HTTP/1\.\d\" 200|"
    r"^\s*\d+%\|.*\d+/\d+ \["
)
_STEP = re.compile(rb"(?<!\d)\d++/\d+(?= \[)")


@dataclass(frozen=True)
class LogLine:
    """A line of a log as it is shown."""

    file: str
    number: int
    """The line's number, from 1."""
    text: str


@dataclass(frozen=True)
class LineFacts:
    """A line that may be evidence."""

    text: str
    """The text without prefixes and colours."""
    raised: bool
    """True if the line raises or logs an error."""
    mild: bool
    """True if the line is logged as a warning or below."""
    figures: bool
    """True if the line has the trainer's figures."""


def clean(raw: bytes) -> tuple[str, bool | None]:
    """Remove colours, the text that a progress bar has overwritten, and prefixes.

    Also returns whether the line is logged as an error; False: as a warning or below, None: it has no level.
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
    """Check whether the line shows that the process continued."""
    return bool(_PROGRESS.search(text))


def step_of(raw: bytes) -> bytes:
    """Read the step that a progress bar shows, or the whole line if it has no bar. A bar that is drawn again when its
    program ends shows the same step as before."""
    steps = _STEP.findall(raw)
    return steps[-1] if steps else raw


def raw_lines(path: Path, limit: int | None = None) -> Iterator[tuple[int, int, bytes]]:
    """Yield (offset, number from 1, bytes) of each line that isn't empty. Raises OSError. Of a line longer than LONG,
    only the surroundings of its stems. Of a file larger than `limit` bytes, a quarter of them from the beginning and
    three quarters from the end."""
    for offset, number, block in _blocks(path, limit):
        at = offset
        for line, raw in enumerate(block.split(b"\n"), number):
            if len(raw) > LONG:
                for start, end in _windows(raw):
                    yield at + start, line, raw[start:end]
            elif raw:
                yield at, line, raw
            at += len(raw) + 1


def shape_of(raw: bytes) -> int:
    """Hash a line without its digits, since a log repeats lines that differ only in digits."""
    return hash(raw.translate(None, b"0123456789"))


def read(raw: bytes) -> LineFacts | None:
    """Read a line; None if it can't be evidence."""
    if not any(stem in raw for stem in STEMS):
        return None
    text, is_error = clean(raw)
    raised = bool(_RAISED.match(text)) if is_error is None else is_error
    return LineFacts(text, raised, mild=is_error is False, figures=text.startswith(_FIGURES))


def around(path: Path, offset: int) -> str:
    """Read the cleaned lines around an offset: its traceback, and the lines after it. Raises OSError."""
    with path.open("rb") as file:
        file.seek(max(0, offset - AROUND))
        raw = file.read(min(offset, AROUND) + BEHIND)
    return "\n".join(clean(line)[0] for line in raw.split(b"\n"))


def _windows(raw: bytes) -> Iterator[tuple[int, int]]:
    """Yield the surroundings of the stems in a long line, in order."""
    hits = sorted(at for stem in STEMS for at in _offsets(raw, stem))
    end = 0
    for at in hits:
        if at >= end:
            start, end = max(end, at - REACH), min(len(raw), at + REACH)
            yield start, end


def _offsets(raw: bytes, stem: bytes) -> Iterator[int]:
    at = raw.find(stem)
    while at >= 0:
        yield at
        at = raw.find(stem, at + REACH)


def _blocks(path: Path, limit: int | None) -> Iterator[tuple[int, int, bytes]]:
    """Yield (offset, number of the first line, bytes) of each block, cut at the ends of lines if possible."""
    size, at, number = path.stat().st_size, 0, 1
    gap = (limit // 4, size - limit * 3 // 4) if limit and size > limit else None
    with path.open("rb") as file:
        rest = b""
        while block := file.read(BLOCK):
            block = rest + block
            cut = block.rfind(b"\n") + 1 or (0 if len(block) < 4 * BLOCK else len(block) - REACH)
            rest = block[cut:]
            if cut:
                yield at, number, block[:cut]
                number += block.count(b"\n", 0, cut)
                at += cut
            if gap and at >= gap[0]:
                number += _count(file, gap[1] - file.tell()) + rest.count(b"\n")
                at, rest, gap = file.tell(), b"", None
        if rest:
            yield at, number, rest


def _count(file: object, length: int) -> int:
    lines = 0
    while length > 0 and (block := file.read(min(length, BLOCK))):  # type: ignore[attr-defined]
        lines += block.count(b"\n")
        length -= len(block)
    return lines
