"""The entries of the catalogue that a log matches, each with the confidence that its lines allow."""

import re
from dataclasses import dataclass, field
from pathlib import Path

from workers.diagnosis.catalogue import CatalogueEntry, Confidence, catalogue
from workers.diagnosis.prefixes import Cleaner
from workers.diagnosis.progress import MIN_STEPS_AFTER_ERROR, Progress, kind_of
from workers.diagnosis.scanning import (
    MAX_LINE_BYTES,
    LineFacts,
    LogLine,
    around,
    may_be_evidence,
    raw_lines,
    read,
    shape_of,
)

MAX_EVIDENCE_LENGTH = 400
MAX_EVIDENCE = 4
MAX_SHAPES = 20_000
"""Maximum number of shapes (lines without digits) remembered per log; beyond it, only lines with errors are matched."""
MAX_EXCEPTIONS = 100
RETRIED_WITHIN_BYTES = 500  # after a line; other processes' lines may come between
MAX_TRACEBACK_CHARS = 4096
"""Number of characters before an error in which its traceback's last frame is searched."""
UNEXPLAINED_ID = "unexplained"
_FRAME_FILE = re.compile(r'^[ \t]*File "([^"<>\n]{1,300})", line \d', re.MULTILINE)
_PACKAGE = re.compile(r"(?:^|/)(?:(?:site|dist)-packages|site)/([\w-]+)")
_STANDARD_LIBRARY = re.compile(r"/python3\.\d+/")
_IGNORED_EXCEPTIONS = ("Exception ignored ", "Error in atexit._run_exitfuncs")
"""What Python writes before a traceback that ends nothing: of a finalizer, and of clean-up as the program exits."""
_RETRIED = re.compile(rb"(?i)\bretry(?:ing)?\b")
_CHAINED_EXCEPTION = re.compile(r"During handling of the above|direct cause of the following")


@dataclass(frozen=True)
class Log:
    role: str
    path: Path


@dataclass
class Match:
    """A cause of which a log or another fact is evidence."""

    entry: CatalogueEntry
    role: str
    confidence: Confidence
    lines: list[LogLine]
    facts: list[str] = field(default_factory=list)
    values: dict[str, str] = field(default_factory=dict)
    position: float = 0.0
    is_mild: bool = False
    is_exception: bool = True
    """False if its line only speaks of the cause, and isn't the text of an error."""


@dataclass(frozen=True)
class _Position:
    """A line of a log with its position."""

    offset: int
    number: int
    line: LineFacts


@dataclass(frozen=True)
class _Shape:
    """What is known of all lines of a shape."""

    entries: tuple[str, ...] = ()
    progress: str = ""
    source: str = ""
    is_raised: bool = False
    is_typical: bool = True  # False if another line of the shape must be judged again


_Hit = tuple[_Position, re.Match[str]]


class Scan:
    """The entries of the catalogue that one log matches."""

    def __init__(self, log: Log, limit: int | None, *, has_failed: bool) -> None:
        """Read a log. `has_failed`: it is known that the attempt failed; otherwise the log may be a healthy one."""
        self.log = log
        self.matches: dict[str, Match] = {}
        self._has_failed = has_failed
        self._errors: dict[str, _Position] = {}
        """First errors: "first" of all, and "last" since the last progress."""
        self._exceptions: list[int] = []
        self._unexplained = -1
        """Offset of the first exception that no entry explains; -1 if there is none."""
        self._latest: dict[str, int] = {}
        """Offset of the last matching line, by entry."""
        self._retried: dict[str, int] = {}
        """Offset of the last matching line soon after which a line says that it is tried again, by entry."""
        self._is_ignored = False  # True until the end of a traceback that Python reports but ignores
        self._raised_at = -1  # offset of the last line that raises or logs an error
        self._progress = Progress()
        self._cleaner = Cleaner()
        self._hits: dict[str, list[_Hit]] = {}
        self._entries = [entry for entry in catalogue().entries if entry.patterns and is_written_by(entry, log.role)]
        self._read(limit)
        self._judge()

    @property
    def unexplained(self) -> Match | None:
        """The last resort: the first error that no progress follows, with the layer that raised it, as a cause."""
        position = self._errors.get("last") or (self._errors.get("first") if self._has_failed else None)
        entry = catalogue().by_id[UNEXPLAINED_ID]
        if position is None:
            return None
        values = {"error": position.line.text[:MAX_EVIDENCE_LENGTH], "layer": self._layer(position)}
        evidence, at = [self._evidence_line(position)], position.offset / max(1, self.log.path.stat().st_size)
        is_exception = position.line.is_exception
        return Match(entry, self.log.role, entry.confidence, evidence, [], values, at, is_exception=is_exception)

    @property
    def first_errors(self) -> list[LogLine]:
        """The first error, and the first since the last progress if that is another."""
        errors = [self._errors[key] for key in ("first", "last") if key in self._errors]
        return list(dict.fromkeys(self._evidence_line(position) for position in errors))

    def _read(self, limit: int | None) -> None:
        shapes: dict[int, _Shape] = {}
        before, end = _Shape(), 0
        for offset, number, raw in raw_lines(self.log.path, limit):
            if offset < end and before.entries and _RETRIED.search(raw):
                self._retried |= {id_: self._latest[id_] for id_ in before.entries}
            key = shape_of(raw)
            shape = shapes.get(key)
            if shape is None:
                is_full = len(shapes) >= MAX_SHAPES
                shape = self._match(offset, number, raw, only_raised=is_full)
                if shape.is_typical and not is_full:
                    shapes[key] = shape
            if shape.progress:
                self._progress.note(shape.progress, offset, raw, shape.source)
                if self._progress.last == offset:
                    self._errors.pop("last", None)
            if shape.is_raised:
                self._raised_at = offset
            self._latest |= dict.fromkeys(shape.entries, offset)
            if shape.entries or shape.is_raised:
                before, end = shape, offset + len(raw) + RETRIED_WITHIN_BYTES

    def _match(self, offset: int, number: int, raw: bytes, *, only_raised: bool) -> _Shape:
        """Match a line of a new shape."""
        if not may_be_evidence(raw):
            if len(raw) >= MAX_LINE_BYTES:
                return _Shape()
            cleaned = self._cleaner.clean(raw)
            return _Shape((), kind_of(cleaned), cleaned.source)
        cleaned = self._cleaner.clean(raw)
        line, progress = read(cleaned), kind_of(cleaned)
        if only_raised and not (line.is_raised or line.has_metrics):
            return _Shape((), progress, line.source)
        is_ignored = any(words in line.text for words in _IGNORED_EXCEPTIONS)
        if is_ignored or (self._is_ignored and line.is_exception and not line.is_frame):
            self._is_ignored = is_ignored
            return _Shape(is_typical=False)
        tried = [entry for entry in self._entries if entry.figures or not line.has_metrics]
        found = [
            (entry.id, hit)
            for entry in tried
            if (hit := next((match for pattern in entry.patterns if (match := pattern.search(line.text))), None))
        ]
        if (found or line.is_raised) and _is_noise(line):
            return _Shape()
        position = _Position(offset, number, line)
        for id_, hit in found:
            self._hits.setdefault(id_, []).append((position, hit))
        is_raised = line.is_raised and not line.has_metrics
        if is_raised and not line.is_frame:
            self._note_error(position)
        return _Shape(tuple(id_ for id_, _ in found), progress, line.source, is_raised)

    def _note_error(self, position: _Position) -> None:
        for key in ("first", "last"):
            noted_error = self._errors.get(key)
            # An exception says more than an earlier line that is only logged as an error.
            if noted_error is None or (position.line.is_exception and not noted_error.line.is_exception):
                self._errors[key] = position
        if position.line.is_exception and len(self._exceptions) < MAX_EXCEPTIONS:
            self._exceptions.append(position.offset)

    def _judge(self) -> None:
        size = max(1, self.log.path.stat().st_size)
        texts: dict[int, str] = {}
        by_entry = [
            (entry, hits)
            for entry in self._entries
            if (hits := [hit for hit in self._hits.get(entry.id, ()) if self._counts(entry, hit[0], texts)])
        ]
        explained = {at.offset for entry, hits in by_entry if entry.is_specific for at, _ in hits}
        self._unexplained = next((offset for offset in self._exceptions if offset not in explained), -1)
        for entry, hits in by_entry:
            # A line that raises is better evidence, and a match with more groups; of equals, the first.
            position, best = min(hits, key=lambda hit: (not hit[0].line.is_raised, hit[1].groups().count(None)))
            confidence = self._confidence(entry, position, texts)
            if confidence is None:
                continue
            values = {name: value for name, value in best.groupdict().items() if value}
            values |= {"layer": layer} if "*" in entry.follows and (layer := self._layer(position)) else {}
            lines = list(dict.fromkeys(map(self._evidence_line, [position, *(at for at, _ in hits)])))
            match = Match(entry, self.log.role, confidence, lines[:MAX_EVIDENCE], [], values, position.offset / size)
            match.is_mild = position.line.is_mild and not entry.anywhere
            match.is_exception = position.line.is_exception
            self.matches[entry.id] = match

    def _counts(self, entry: CatalogueEntry, position: _Position, texts: dict[int, str]) -> bool:
        """Return whether a line that matches an entry is where the entry expects it."""
        if entry.when == "end" and not 0 <= self._progress.finished_at < position.offset:
            return False
        return not entry.near or any(pattern.search(self._around(position.offset, texts)) for pattern in entry.near)

    def _around(self, offset: int, texts: dict[int, str]) -> str:
        if offset not in texts:
            texts[offset] = around(self.log.path, offset, self._cleaner)
        return texts[offset]

    def _layer(self, position: _Position) -> str:
        """Return what raised the error at a position, from the last frame of its traceback, or "" if unknown."""
        text = around(self.log.path, position.offset, self._cleaner, after=0)
        files = _FRAME_FILE.findall(text, max(0, len(text) - MAX_TRACEBACK_CHARS))
        package = _PACKAGE.search(files[-1]) if files else None
        if package:
            return catalogue().layers.get(package[1], package[1])
        if files and not _STANDARD_LIBRARY.search(files[-1]):
            return f"the script {files[-1].rpartition('/')[2]}"
        return "vLLM" if not files and position.line.source == "serving" else ""

    def _confidence(self, entry: CatalogueEntry, position: _Position, texts: dict[int, str]) -> Confidence | None:
        """Return how sure it is that the line at a position reports this cause, or None if the process was healthy."""
        line, confidence = position.line, entry.confidence
        is_reliable = line.is_raised or entry.anywhere or (line.has_metrics and entry.figures)
        if not is_reliable:
            if not self._has_failed and self._raised_at < 0 and (line.is_mild or self._progress.last >= 0):
                return None
            confidence = confidence.lowered(2 if line.is_mild else 1)
        if entry.when == "start" and 0 <= self._progress.finished_at < position.offset:
            confidence = Confidence.POSSIBLE
        latest = self._latest[entry.id]
        if self._retried.get(entry.id) == latest:
            confidence = Confidence.POSSIBLE
        if line.has_metrics:
            if self._progress.figures_after(latest) >= MIN_STEPS_AFTER_ERROR:  # the metrics have recovered
                if not self._has_failed and self._raised_at < self._progress.last:
                    return None
                confidence = Confidence.POSSIBLE
        else:
            is_serving = line.source == "serving" or self.log.role.startswith("vllm") or line.is_logged
            steps = self._progress.steps_after(latest, line.source, is_serving=is_serving)
            if steps >= MIN_STEPS_AFTER_ERROR and self._raised_at < self._progress.last and not self._has_failed:
                return None
            confidence = Confidence.POSSIBLE if steps else confidence
        if 0 <= self._unexplained < position.offset and not entry.anywhere:
            # An error that no entry explains came before this one, which may be its consequence.
            is_chained = bool(_CHAINED_EXCEPTION.search(self._around(position.offset, texts)))
            is_doubtful = self._unexplained > self._progress.last and "*" in entry.follows
            limit = Confidence.POSSIBLE if is_doubtful else Confidence.LIKELY
            confidence = confidence if is_chained else max(confidence, limit, key=lambda level: level.rank)
        return confidence

    def _evidence_line(self, position: _Position) -> LogLine:
        return LogLine(self.log.path.name, position.number, position.line.text[:MAX_EVIDENCE_LENGTH])


def _is_noise(line: LineFacts) -> bool:
    patterns = catalogue().noise if line.is_exception else (*catalogue().noise, *catalogue().fallbacks)
    return any(pattern.search(line.text) for pattern in patterns)


def is_written_by(entry: CatalogueEntry, role: str) -> bool:
    """Return whether a process of this role writes an entry's lines; one of unknown role may write any."""
    return not entry.where or not role or role.partition("-")[0] in entry.where
