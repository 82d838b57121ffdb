"""Progress of training and serving in a log, which separates errors that a process survived from fatal ones."""

import re

from workers.diagnosis.prefixes import Cleaned

MIN_STEPS_AFTER_ERROR = 2
"""Number of steps after an error that show that the process survived it."""
_FIGURES = re.compile(r"\{'(?:loss|reward|num_tokens|grad_norm)|step:\d+ - ")
_FINISHED = re.compile(r"\{'train_(?:runtime|loss|samples)")
_BAR = re.compile(
    r"(?:[^%|\n]{0,60}(?:[Tt]rain|TRAIN|[Ss]tep|[Ee]poch|[Ii]ter|[Pp]rogress)[^%|\n]{0,60}?)?\s{0,40}\d{1,3}%\|"
)
_SERVED_REQUEST = re.compile(r"Avg (?:prompt|generation) throughput|\"POST [^\"]{1,200} HTTP/1\.\d\" 200")
_STEP = re.compile(rb"(?<!\d)(\d++)/(\d++)(?= \[)")
_IDLE = b"generation throughput: 0.0 "


def kind_of(cleaned: Cleaned) -> str:
    """Return the kind of progress that a line shows: "figures", "finished", "bar", "serving", or "" for none."""
    starts = {"figures": _FIGURES, "finished": _FINISHED, "bar": _BAR}
    kind = next((kind for kind, pattern in starts.items() if pattern.match(cleaned.text)), "")
    return kind or ("serving" if _SERVED_REQUEST.search(cleaned.text) else "")


class Progress:
    """The latest progress in a log: bars whose count exceeds all earlier ones, because they are redrawn at the end, and
    figures if there are no bars, because figures may be printed late."""

    def __init__(self) -> None:
        self.finished_at = -1
        """Offset of the line that says that training has finished; -1 if there is none."""
        self._latest: dict[str, list[tuple[int, str]]] = {"figures": [], "finished": [], "bar": [], "serving": []}
        self._highest: dict[bytes, int] = {}
        self._rises = 0
        self._last_figures = b""

    def note(self, kind: str, offset: int, raw: bytes, source: str) -> None:
        """Take in a line that shows progress of a kind."""
        if kind == "finished":
            self.finished_at = offset
        elif kind == "figures":
            if raw == self._last_figures:
                return
            self._last_figures, self.finished_at = raw, -1
        elif kind == "bar":
            if not self._has_risen(raw):
                return
        elif _IDLE in raw:
            return
        self._latest[kind] = [*self._latest[kind], (offset, source)][-MIN_STEPS_AFTER_ERROR:]

    def steps_after(self, offset: int, source: str, *, is_serving: bool) -> int:
        """Return the number of steps after an offset, at most ENOUGH. `is_serving`: the line there is from a server."""
        steps = self._latest["bar"] + (self._latest["serving"] if is_serving else [])
        steps += [] if self._rises >= MIN_STEPS_AFTER_ERROR else self._latest["figures"] + self._latest["finished"]
        return min(MIN_STEPS_AFTER_ERROR, sum(at > offset and _may_be_same(source, other) for at, other in steps))

    def figures_after(self, offset: int) -> int:
        """Return the number of different lines of metrics after an offset, at most ENOUGH."""
        return sum(at > offset for at, _ in self._latest["figures"])

    @property
    def last(self) -> int:
        """Offset of the latest progress; -1 if there is none."""
        return max((steps[-1][0] for steps in self._latest.values() if steps), default=-1)

    def _has_risen(self, raw: bytes) -> bool:
        steps = _STEP.findall(raw)
        if not steps:
            return False
        count, total = int(steps[-1][0]), steps[-1][1]
        before = self._highest.setdefault(total, count)
        self._highest[total] = max(before, count)
        self._rises += count > before
        return count > before


def _may_be_same(source: str, other: str) -> bool:
    return source == other or "" in (source, other) or "serving" in (source, other)
